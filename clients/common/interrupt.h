// Ctrl-C (SIGINT) and SIGTERM as a callback on an ordinary thread, for as long as this object
// lives. The first signal calls back; a second one ends the process as it would without us. Thread
// rule: one object at a time; `on_interrupt` runs on a thread of its own and may call anything
// thread-safe.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace serval {

class Interrupt {
 public:
  explicit Interrupt(std::function<void()> on_interrupt);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool Raised() const { return raised_; }

 private:
  std::atomic<bool> raised_ = false;
  std::atomic<bool> stop_ = false;
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
  std::thread watcher_;
};

// A reader that went away then shows as a failed write, not as a silent death.
void IgnoreSigPipe();

}  // namespace serval
