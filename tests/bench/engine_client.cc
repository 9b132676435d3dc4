#include "tests/bench/engine_client.h"

#include <algorithm>
#include <utility>

#include "kernels/mutex.h"

namespace serval::bench {
namespace {

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// How many jobs are out; the submitting thread waits for a free place.
class Gate {
 public:
  explicit Gate(int width) : free_(width), width_(width) {}
  void Enter() SERVAL_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (free_ == 0) changed_.Wait(&mutex_);
    --free_;
  }
  void Leave() SERVAL_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    ++free_;
    changed_.NotifyAll();
  }
  void WaitUntilEmpty() SERVAL_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (free_ != width_) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int free_ SERVAL_GUARDED_BY(mutex_);
  const int width_;
};

class TimingSink : public TokenSink {
 public:
  TimingSink(JobResult* result, Gate* gate) : result_(result), gate_(gate) {}
  void OnToken(const TokenOutput&) override { result_->tokens.push_back(Clock::now()); }
  void OnFinish(int, FinishReason) override {}
  void OnDone(const absl::Status& status, const Usage&) override {
    result_->done = Clock::now();
    result_->status = status;
    gate_->Leave();
  }

 private:
  JobResult* result_;
  Gate* gate_;
};

Request MakeRequest(const Job& job, std::shared_ptr<TokenSink> sink) {
  Request request;
  request.id = "bench";
  request.prompt = job.prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = job.output;
  request.sampling.ignore_eos = true;
  request.sink = std::move(sink);
  return request;
}

}  // namespace

int64_t RunResult::failures() const {
  return std::ranges::count_if(jobs, [](const JobResult& job) { return !job.status.ok(); });
}

int64_t RunResult::tokens() const {
  int64_t total = 0;
  for (const JobResult& job : jobs) total += static_cast<int64_t>(job.tokens.size());
  return total;
}

double RunResult::SteadyTokensPerSecond() const {
  Clock::time_point begin = Clock::time_point::min(), end = Clock::time_point::max();
  for (const JobResult& job : jobs) {
    if (job.tokens.empty()) return 0;
    begin = std::max(begin, job.tokens.front());
    end = std::min(end, job.tokens.back());
  }
  if (end <= begin) return 0;
  int64_t within = 0;
  for (const JobResult& job : jobs) {
    within += std::ranges::count_if(job.tokens, [&](auto at) { return at > begin && at <= end; });
  }
  return static_cast<double>(within) / Seconds(end - begin);
}

RunResult RunJobs(Engine& engine, std::span<const Job> jobs, int width) {
  Gate gate(width);
  RunResult run;
  run.jobs.resize(jobs.size());
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < jobs.size(); ++i) {
    gate.Enter();
    JobResult& result = run.jobs[i];
    result.tokens.reserve(jobs[i].output);
    result.submitted = Clock::now();
    const auto handle =
        engine.Submit(MakeRequest(jobs[i], std::make_shared<TimingSink>(&result, &gate)));
    if (!handle.ok()) {
      result.status = handle.status();
      gate.Leave();
    }
  }
  gate.WaitUntilEmpty();
  run.seconds = Seconds(Clock::now() - begin);
  return run;
}

}  // namespace serval::bench
