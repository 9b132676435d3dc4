// Counts the engine keeps; the server turns them into Prometheus metrics and Admin.Stats. Names
// follow vLLM's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace serval {

// Cumulative histogram over fixed bucket bounds (seconds or tokens).
struct Histogram {
  std::span<const double> bounds;  // static storage, ascending
  std::vector<uint64_t> counts;    // bounds.size() + 1, not cumulative; the last is +Inf
  double sum = 0;
  uint64_t count = 0;
  explicit Histogram(std::span<const double> bounds = {});
  void Observe(double value);
};

struct BankStats {
  std::string kind;
  int64_t used_bytes = 0, free_bytes = 0, capacity_bytes = 0;
};

struct EngineStats {
  // gauges
  int64_t num_requests_running = 0;
  int64_t num_requests_waiting = 0;
  double kv_cache_usage_perc = 0;  // 0 … 1
  std::vector<BankStats> banks;
  // counters
  uint64_t prefix_cache_queries = 0;  // tokens asked for
  uint64_t prefix_cache_hits = 0;     // tokens found
  uint64_t num_preemptions = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t steps = 0;
  std::array<uint64_t, 5> finished{};        // by FinishReason
  std::map<std::string, uint64_t> rejected;  // by reason: queue_full, context, draining, invalid
  // histograms
  Histogram time_to_first_token, inter_token_latency, e2e_request_latency, request_queue_time,
      request_prefill_time, request_decode_time, iteration_tokens;
  EngineStats();
};

}  // namespace serval
