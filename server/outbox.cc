#include "server/outbox.h"

#include <utility>

namespace serval {

Outbox::Outbox() : thread_([this] { Run(); }) {}

Outbox::~Outbox() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  posted_.NotifyOne();
  thread_.join();
}

void Outbox::Post(std::shared_ptr<OutboxTask> task) {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) posted_.NotifyOne();
}

void Outbox::Run() {
  std::vector<std::shared_ptr<OutboxTask>> tasks;
  while (true) {
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stop_) posted_.Wait(&mutex_);
      if (tasks_.empty()) return;
      tasks.swap(tasks_);
    }
    for (auto& task : tasks) task->Pump();
    tasks.clear();
  }
}

}  // namespace serval
