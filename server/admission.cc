#include "server/admission.h"

#include <algorithm>

namespace serval {

void Admission::CountFinished(Clock::time_point now) {
  MutexLock lock(&mutex_);
  finished_.push_back(now);
  if (finished_.size() > kRecent) finished_.pop_front();
}

std::chrono::milliseconds Admission::RetryAfter(int64_t waiting, Clock::time_point now) const {
  using Ms = std::chrono::milliseconds;
  MutexLock lock(&mutex_);
  if (finished_.size() < 2) return Ms(1000);
  // Up to now, not up to the last ending: a queue that stands still makes the answer grow.
  const double seconds = std::chrono::duration<double>(now - finished_.front()).count();
  const double each = seconds / static_cast<double>(finished_.size());
  const double quarter = each * static_cast<double>(std::max<int64_t>(1, waiting / 4));
  return Ms(static_cast<int64_t>(std::clamp(quarter * 1000, 50.0, 60000.0)));
}

void Admission::CountRejected(const std::string& reason) {
  MutexLock lock(&mutex_);
  ++rejected_[reason];
}

std::map<std::string, uint64_t> Admission::rejected() const {
  MutexLock lock(&mutex_);
  return rejected_;
}

}  // namespace serval
