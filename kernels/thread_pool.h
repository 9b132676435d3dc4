// Workers that spin briefly, then park: a step's ops come microseconds apart, requests seconds
// apart. Thread rule: ParallelFor is called by one thread at a time (the step's), and that thread
// works too, as worker 0.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace serval {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller; 0 = the physical cores this process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(task, worker) once for every task in [0, tasks); returns when all have ended. Tasks
  // are dealt dynamically, so their results must not depend on the worker (which only selects
  // scratch space, 0 <= worker < threads()).
  template <class Body>
  void ParallelFor(int64_t tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    RunTasks(
        tasks, const_cast<void*>(static_cast<const void*>(&body)),
        [](void* self, int64_t task, int worker) { (*static_cast<Plain*>(self))(task, worker); });
  }

 private:
  using TaskFn = void (*)(void* body, int64_t task, int worker);
  void RunTasks(int64_t tasks, void* body, TaskFn fn);

  struct State;
  std::unique_ptr<State> state_;
  int threads_ = 1;
};

}  // namespace serval
