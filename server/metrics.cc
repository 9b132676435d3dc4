#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "server/describe.h"

namespace serval {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Gathers families; every metric carries the model's name.
class Collector {
 public:
  explicit Collector(std::string model_name) : model_name_(std::move(model_name)) {}

  void Gauge(const char* name, const char* help, double value) {
    Family(name, help, MetricType::Gauge);
    Add(value);
  }
  void Counter(const char* name, const char* help, double value) {
    Family(name, help, MetricType::Counter);
    Add(value);
  }
  void Family(const char* name, const char* help, MetricType type) {
    families_.push_back({std::string("serval:") + name, help, type, {}});
  }
  // One more metric of the latest family.
  void Add(double value, const char* label = nullptr, const std::string& label_value = {}) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label.push_back({"model_name", model_name_});
    if (label != nullptr) metric.label.push_back({label, label_value});
    metric.gauge.value = metric.counter.value = value;
  }
  void Distribution(const char* name, const char* help, const Histogram& histogram) {
    Family(name, help, MetricType::Histogram);
    Add(0);
    ClientMetric::Histogram& out = families_.back().metric.back().histogram;
    out.sample_count = histogram.count;
    out.sample_sum = histogram.sum;
    uint64_t cumulative = 0;
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      cumulative += histogram.counts[i];
      const bool last = i == histogram.bounds.size();
      out.bucket.push_back(
          {cumulative, last ? std::numeric_limits<double>::infinity() : histogram.bounds[i]});
    }
  }
  std::string Text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return out.str();
  }

 private:
  const std::string model_name_;
  std::vector<MetricFamily> families_;
};

double At(const EngineStats& stats, FinishReason reason) {
  return static_cast<double>(stats.finished[static_cast<size_t>(reason)]);
}

void CollectRequests(const EngineStats& stats, Collector& out) {
  out.Gauge("num_requests_running", "Requests being computed.", stats.num_requests_running);
  out.Gauge("num_requests_waiting", "Requests waiting to be computed.", stats.num_requests_waiting);
  out.Counter("num_preemptions_total", "Requests put back because memory ran out.",
              stats.num_preemptions);
  out.Counter("prompt_tokens_total", "Prompt tokens computed.", stats.prompt_tokens);
  out.Counter("generation_tokens_total", "Tokens generated.", stats.generation_tokens);
  out.Family("request_success_total", "Requests that ended by themselves.", MetricType::Counter);
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength}) {
    out.Add(At(stats, reason), "finished_reason", Name(reason));
  }
  out.Counter("cancelled_total", "Requests that were cancelled.",
              At(stats, FinishReason::kCancelled));
  out.Counter("deadline_exceeded_total", "Requests whose deadline passed.",
              At(stats, FinishReason::kDeadline));
  out.Counter("failed_total", "Requests that failed.", At(stats, FinishReason::kError));
}

void CollectMemory(const ServedModel& model, const EngineStats& stats, Collector& out) {
  out.Gauge("kv_cache_usage_perc", "Share of the memories in use, 0 to 1.",
            stats.kv_cache_usage_perc);
  out.Counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
              stats.prefix_cache_queries);
  out.Counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
              stats.prefix_cache_hits);
  out.Family("memory_bytes", "Bytes set aside, by kind of memory.", MetricType::Gauge);
  out.Add(static_cast<double>(model.engine->model_info().weight_bytes), "kind", "weights");
  for (const BankStats& bank : stats.banks) out.Add(bank.capacity_bytes, "kind", bank.kind);
  out.Family("memory_used_bytes", "Bytes held by requests, by kind of memory.", MetricType::Gauge);
  for (const BankStats& bank : stats.banks) out.Add(bank.used_bytes, "kind", bank.kind);
}

void CollectLatencies(const EngineStats& stats, Collector& out) {
  out.Distribution("time_to_first_token_seconds", "From arrival to the first token.",
                   stats.time_to_first_token);
  out.Distribution("inter_token_latency_seconds", "Between two tokens of a request.",
                   stats.inter_token_latency);
  out.Distribution("e2e_request_latency_seconds", "From arrival to the last token.",
                   stats.e2e_request_latency);
  out.Distribution("request_queue_time_seconds", "Spent waiting.", stats.request_queue_time);
  out.Distribution("request_prefill_time_seconds", "Spent on the prompt.",
                   stats.request_prefill_time);
  out.Distribution("request_decode_time_seconds", "Spent on the output.",
                   stats.request_decode_time);
  out.Distribution("iteration_tokens_total", "Tokens computed in one step.",
                   stats.iteration_tokens);
}

}  // namespace

std::string MetricsText(ServerState& state) {
  const ServedModel* model = state.model();
  Collector out(model != nullptr ? model->name : "");
  out.Gauge("resident_memory_bytes", "Resident memory of the process.",
            static_cast<double>(ResidentBytes()));
  out.Gauge("open_calls", "Generate calls that are open.",
            static_cast<double>(state.running_calls()));
  std::map<std::string, uint64_t> rejected = state.admission().rejected();
  if (model != nullptr) {
    const EngineStats stats = model->engine->Stats();
    CollectRequests(stats, out);
    CollectMemory(*model, stats, out);
    CollectLatencies(stats, out);
    for (const auto& [reason, count] : stats.rejected) rejected[reason] += count;
  }
  out.Family("rejected_total", "Requests refused, by reason.", MetricType::Counter);
  for (const auto& [reason, count] : rejected) {
    out.Add(static_cast<double>(count), "reason", reason);
  }
  return out.Text();
}

}  // namespace serval
