// std::mutex with the annotations clang's -Wthread-safety checks. (absl::Mutex would be opaque to
// ThreadSanitizer: Debian's library is not instrumented.)
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SERVAL_TSA(x) __attribute__((x))
#else
#define SERVAL_TSA(x)
#endif
#define SERVAL_GUARDED_BY(x) SERVAL_TSA(guarded_by(x))
#define SERVAL_REQUIRES(...) SERVAL_TSA(requires_capability(__VA_ARGS__))
#define SERVAL_EXCLUDES(...) SERVAL_TSA(locks_excluded(__VA_ARGS__))

namespace serval {

class SERVAL_TSA(capability("mutex")) Mutex {
 public:
  void Lock() SERVAL_TSA(acquire_capability()) { mutex_.lock(); }
  void Unlock() SERVAL_TSA(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SERVAL_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) SERVAL_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() SERVAL_TSA(release_capability()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mutex_;
};

class CondVar {
 public:
  void Wait(Mutex* mutex) SERVAL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False on timeout.
  bool WaitUntil(Mutex* mutex, std::chrono::steady_clock::time_point deadline)
      SERVAL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool woken = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace serval
