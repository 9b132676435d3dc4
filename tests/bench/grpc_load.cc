// Concurrent requests of mixed length against a running server: failures, tokens/s, latency, and
// the server's memory against what it planned (Admin.Stats, Models). The requests are those of
// engine_bench's `mixed` test. Prints one JSON object.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/mutex.h"
#include "serval/v1/admin.grpc.pb.h"
#include "serval/v1/generation.grpc.pb.h"
#include "serval/v1/models.grpc.pb.h"
#include "tests/bench/bench_flags.h"
#include "tests/bench/workload.h"

namespace serval::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kUsage[] =
    "grpc_load --target HOST:PORT [--width 64] [--requests 192]\n"
    "Sends requests of mixed length, WIDTH at a time, and prints one JSON object.\n";

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// What all calls report to. Called from gRPC's threads.
class Totals {
 public:
  void Done(const grpc::Status& status, int64_t tokens, double first_token) {
    MutexLock lock(&mutex_);
    --running_;
    if (status.ok()) {
      tokens_ += tokens;
      first_tokens_.push_back(first_token);
    } else {
      ++failures_[std::to_string(status.error_code()) + ": " + status.error_message()];
    }
    changed_.NotifyAll();
  }
  void EnterBelow(int width) {
    MutexLock lock(&mutex_);
    while (running_ >= width) changed_.Wait(&mutex_);
    ++running_;
  }
  void WaitForAll() {
    MutexLock lock(&mutex_);
    while (running_ > 0) changed_.Wait(&mutex_);
  }
  nlohmann::json Report(double seconds) {
    MutexLock lock(&mutex_);
    std::ranges::sort(first_tokens_);
    const auto percentile = [&](double p) {
      return first_tokens_.empty() ? 0.0 : first_tokens_[p * (first_tokens_.size() - 1)];
    };
    nlohmann::json out = {
        {"completed", first_tokens_.size()}, {"seconds", seconds},
        {"output_tokens", tokens_},          {"tokens_per_second", tokens_ / seconds},
        {"ttft_p50", percentile(0.5)},       {"ttft_p99", percentile(0.99)}};
    int64_t failed = 0;
    for (const auto& [what, count] : failures_) failed += count;
    out["failures"] = failed;
    out["failures_by_status"] = failures_;
    return out;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int running_ SERVAL_GUARDED_BY(mutex_) = 0;
  int64_t tokens_ SERVAL_GUARDED_BY(mutex_) = 0;
  std::vector<double> first_tokens_ SERVAL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> failures_ SERVAL_GUARDED_BY(mutex_);
};

// One streaming call; deletes itself when done.
class Call : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(v1::Generation::Stub* stub, const Job& job, Totals* totals)
      : wanted_(job.output), totals_(totals), begin_(Clock::now()) {
    request_.mutable_tokens()->mutable_ids()->Assign(job.prompt.begin(), job.prompt.end());
    v1::SamplingParams* sampling = request_.mutable_sampling();
    sampling->set_temperature(0);
    sampling->set_max_tokens(static_cast<int32_t>(job.output));
    sampling->set_ignore_eos(true);
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (first_token_ < 0 && response_.has_choice()) first_token_ = Seconds(Clock::now() - begin_);
    if (response_.has_usage()) completion_ = response_.usage().completion_tokens();
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const bool cut = status.ok() && completion_ != wanted_;
    const std::string what = "answer of " + std::to_string(completion_) + " tokens instead of " +
                             std::to_string(wanted_);
    totals_->Done(cut ? grpc::Status(grpc::StatusCode::DATA_LOSS, what) : status, completion_,
                  first_token_);
    delete this;
  }

 private:
  const int64_t wanted_;
  Totals* const totals_;
  const Clock::time_point begin_;
  double first_token_ = -1;
  int64_t completion_ = 0;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
};

void Require(const grpc::Status& status, const std::string& what) {
  if (!status.ok()) {
    Flags::Fail(what + " failed: " + status.error_message() + " (is serval-server running there?)");
  }
}

v1::Model GetModel(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  v1::Model model;
  Require(v1::Models::NewStub(channel)->GetModel(&context, {}, &model), "Models.GetModel");
  return model;
}

v1::StatsResponse GetStats(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  v1::StatsResponse stats;
  Require(v1::Admin::NewStub(channel)->Stats(&context, {}, &stats), "Admin.Stats");
  return stats;
}

int Main(int argc, char** argv) {
  const Flags flags(argc, argv,
                    {{"--target", "localhost:50051"}, {"--width", "64"}, {"--requests", "192"}},
                    kUsage);
  const auto channel =
      grpc::CreateChannel(flags.Text("--target"), grpc::InsecureChannelCredentials());
  const v1::Model model = GetModel(channel);
  const auto stub = v1::Generation::NewStub(channel);
  const std::vector<Job> jobs =
      MixedJobs(static_cast<int>(flags.Int("--requests")), model.vocab_size());
  Totals totals;
  const Clock::time_point begin = Clock::now();
  for (const Job& job : jobs) {
    totals.EnterBelow(static_cast<int>(flags.Int("--width")));
    new Call(stub.get(), job, &totals);
  }
  totals.WaitForAll();
  nlohmann::json out = totals.Report(Seconds(Clock::now() - begin));
  const v1::StatsResponse stats = GetStats(channel);
  int64_t capacity = 0;
  for (const v1::BankStats& bank : stats.banks()) capacity += bank.capacity_bytes();
  out["resident_bytes"] = stats.resident_bytes();
  out["weight_bytes"] = model.weight_bytes();
  out["kv_capacity_bytes"] = capacity;
  out["preemptions"] = stats.num_preemptions();
  std::printf("%s\n", out.dump().c_str());
  return out["failures"] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace serval::bench

int main(int argc, char** argv) { return serval::bench::Main(argc, argv); }
