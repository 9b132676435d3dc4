// Drives an Engine in process, without gRPC: submits jobs, waits for them, and keeps the times
// their tokens came at. Thread rule: one caller; the engine's thread calls in through the sinks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "tests/bench/workload.h"

namespace serval::bench {

using Clock = std::chrono::steady_clock;

struct JobResult {
  absl::Status status;
  Clock::time_point submitted, done;
  std::vector<Clock::time_point> tokens;  // when each came
};

struct RunResult {
  std::vector<JobResult> jobs;
  double seconds = 0;  // first submit to last end
  int64_t failures() const;
  int64_t tokens() const;
  // Generated tokens a second while all jobs decoded together: from the moment the last of them had
  // its first token to the moment the first of them ended.
  double SteadyTokensPerSecond() const;
};

// Runs all jobs, at most `width` at a time; greedy, end tokens ignored.
RunResult RunJobs(Engine& engine, std::span<const Job> jobs, int width);

}  // namespace serval::bench
