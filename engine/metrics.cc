#include "engine/metrics.h"

#include <algorithm>

namespace serval {
namespace {

// vLLM's bounds, with finer steps at the fast end.
constexpr double kFirstToken[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1.0,   2.5,   5.0,  7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kInterToken[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                  0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1.0,   2.5,
                                  5.0,   7.5,    10,    20,   40,    80};
constexpr double kLatency[] = {0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,  15,
                               20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
constexpr double kStepTokens[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

}  // namespace

Histogram::Histogram(std::span<const double> bounds) : bounds(bounds), counts(bounds.size() + 1) {}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[bucket];
  sum += value;
  ++count;
}

EngineStats::EngineStats()
    : time_to_first_token(kFirstToken),
      inter_token_latency(kInterToken),
      e2e_request_latency(kLatency),
      request_queue_time(kLatency),
      request_prefill_time(kLatency),
      request_decode_time(kLatency),
      iteration_tokens(kStepTokens) {}

}  // namespace serval
