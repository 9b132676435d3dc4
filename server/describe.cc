#include "server/describe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "server/options.h"

namespace serval {
namespace {

void DescribeLatency(const Histogram& histogram, v1::LatencyStats& out) {
  out.set_count(histogram.count);
  if (histogram.count == 0) return;
  out.set_mean_seconds(histogram.sum / static_cast<double>(histogram.count));
  out.set_p50_seconds(Quantile(histogram, 0.5));
  out.set_p99_seconds(Quantile(histogram, 0.99));
}

void DescribeEngine(const EngineStats& stats, v1::StatsResponse& out) {
  out.set_num_requests_running(stats.num_requests_running);
  out.set_num_requests_waiting(stats.num_requests_waiting);
  out.set_kv_cache_usage_perc(stats.kv_cache_usage_perc);
  for (const BankStats& bank : stats.banks) {
    v1::BankStats& entry = *out.add_banks();
    entry.set_kind(bank.kind);
    entry.set_used_bytes(bank.used_bytes);
    entry.set_free_bytes(bank.free_bytes);
    entry.set_capacity_bytes(bank.capacity_bytes);
  }
  out.set_prefix_cache_queries(stats.prefix_cache_queries);
  out.set_prefix_cache_hits(stats.prefix_cache_hits);
  out.set_num_preemptions(stats.num_preemptions);
  out.set_prompt_tokens(stats.prompt_tokens);
  out.set_generation_tokens(stats.generation_tokens);
  for (size_t i = 0; i < stats.finished.size(); ++i) {
    (*out.mutable_finished())[Name(static_cast<FinishReason>(i))] = stats.finished[i];
  }
  for (const auto& [reason, count] : stats.rejected) (*out.mutable_rejected())[reason] += count;
  DescribeLatency(stats.time_to_first_token, *out.mutable_time_to_first_token());
  DescribeLatency(stats.inter_token_latency, *out.mutable_inter_token_latency());
  DescribeLatency(stats.e2e_request_latency, *out.mutable_e2e_request_latency());
  out.set_steps(stats.steps);
}

}  // namespace

void DescribeModel(const ServedModel& model, v1::Model& out) {
  const ModelInfo& info = model.engine->model_info();
  const EngineOptions& options = model.engine->options();
  out.set_id(model.name);
  out.set_architecture(info.architecture);
  out.set_max_model_len(options.limits.max_context);
  out.set_vocab_size(info.vocab);
  out.set_parameters(info.parameters);
  out.set_weight_bytes(info.weight_bytes);
  out.set_created(model.created);
  out.set_memory_plan(options.memory_plan);
  out.set_memory_plan_table(model.engine->PlanTable());
  out.set_chat_template(model.chat_template);
  const std::vector<BankStats> banks = model.engine->Stats().banks;
  for (const BankStats& bank : banks) {
    v1::MemoryBytes& memory = *out.add_memory();
    memory.set_kind(bank.kind);
    memory.set_capacity_bytes(bank.capacity_bytes);
    // One bank holds all layers; with several the plan's table says which holds which.
    if (banks.size() != 1 || bank.kind != "paged") continue;
    int64_t bytes = 0;
    for (const AttentionShape& layer : info.layers) {
      bytes += RowBytes(options.kv_dtype, 2LL * layer.kv_heads * layer.head_dim);
    }
    memory.set_layers(static_cast<int32_t>(info.layers.size()));
    memory.set_bytes_per_token(bytes);
  }
}

void DescribeStats(const ServerState& state, const std::map<std::string, uint64_t>& refused,
                   v1::StatsResponse& out) {
  out.set_version(kServalVersion);
  out.set_uptime_seconds(state.uptime_seconds());
  out.set_draining(state.phase() == Phase::kDraining);
  out.set_resident_bytes(ResidentBytes());
  for (const auto& [reason, count] : refused) (*out.mutable_rejected())[reason] += count;
  if (state.model() != nullptr) DescribeEngine(state.model()->engine->Stats(), out);
}

double Quantile(const Histogram& histogram, double quantile) {
  if (histogram.count == 0) return 0;
  const double wanted = quantile * static_cast<double>(histogram.count);
  double below = 0;
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    const auto here = static_cast<double>(histogram.counts[i]);
    if (below + here >= wanted && here > 0) {
      const double left = i == 0 ? 0 : histogram.bounds[i - 1];
      return left + (histogram.bounds[i] - left) * std::max(0.0, wanted - below) / here;
    }
    below += here;
  }
  return histogram.bounds.empty() ? 0 : histogram.bounds.back();
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return file ? resident_pages * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace serval
