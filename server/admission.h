// What the server knows about refusals: how many, why, and when a refused client should come back.
// Whether there is room is the engine's decision. Thread rule: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "kernels/mutex.h"

namespace serval {

class Admission {
 public:
  using Clock = std::chrono::steady_clock;

  // A request ended; the pace of endings is the pace at which the queue moves.
  void CountFinished(Clock::time_point now = Clock::now()) SERVAL_EXCLUDES(mutex_);
  // When a quarter of `waiting` requests should have left the queue: 50 ms to 60 s, 1 s while
  // nothing is known.
  std::chrono::milliseconds RetryAfter(int64_t waiting, Clock::time_point now = Clock::now()) const
      SERVAL_EXCLUDES(mutex_);

  // Refused by the server itself: "invalid", "unknown_model", "loading", "draining".
  void CountRejected(const std::string& reason) SERVAL_EXCLUDES(mutex_);
  std::map<std::string, uint64_t> rejected() const SERVAL_EXCLUDES(mutex_);

 private:
  static constexpr size_t kRecent = 32;
  mutable Mutex mutex_;
  std::deque<Clock::time_point> finished_
      SERVAL_GUARDED_BY(mutex_);  // the latest kRecent, ascending
  std::map<std::string, uint64_t> rejected_ SERVAL_GUARDED_BY(mutex_);
};

}  // namespace serval
