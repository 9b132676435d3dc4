// A thread that works off tasks. One turns the engine's tokens into messages, so that neither the
// engine waits for text or sockets, nor does every stream need a thread; another one reads long
// requests. Thread rule: Post from any thread; Pump
// runs on the outbox's thread only, one task at a time.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "kernels/mutex.h"

namespace serval {

class OutboxTask {
 public:
  virtual ~OutboxTask() = default;
  virtual void Pump() = 0;  // must not block
};

class Outbox {
 public:
  Outbox();
  ~Outbox();  // finishes what was posted
  void Post(std::shared_ptr<OutboxTask> task) SERVAL_EXCLUDES(mutex_);

 private:
  void Run();

  Mutex mutex_;
  CondVar posted_;
  std::vector<std::shared_ptr<OutboxTask>> tasks_ SERVAL_GUARDED_BY(mutex_);
  bool stop_ SERVAL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace serval
