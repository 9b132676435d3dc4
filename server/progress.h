// The progress of loading on standard error: a bar with bytes, rate and time left on a terminal, a
// plain line every few seconds elsewhere. Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace serval {

// One state of the bar, without line ends: "Loading X  43% [####      ] 40.1 MiB of 93.0 MiB, 512.0
// MiB/s, 0.1 s left".
std::string ProgressLine(const std::string& what, int64_t done, int64_t total, double seconds);
// "93.0 MiB"
std::string FormatBytes(double bytes);

class ProgressBar {
 public:
  ProgressBar(std::string what, std::FILE* out);
  void Update(int64_t done, int64_t total);
  // Ends the bar with what was read and how long it took.
  void Done();

 private:
  using Clock = std::chrono::steady_clock;
  const std::string what_;
  std::FILE* const out_;
  const bool terminal_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point shown_ = started_;
  int64_t total_ = 0;
};

}  // namespace serval
