#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/executor.h"
#include "engine/memory/available_memory.h"
#include "engine/memory/make_banks.h"
#include "engine/memory/memory_plan.h"
#include "engine/scheduler.h"
#include "engine/validate.h"
#include "kernels/check.h"
#include "kernels/mutex.h"

namespace serval {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<MemoryBank*> Pointers(const Banks& banks) {
  std::vector<MemoryBank*> pointers;
  for (const auto& bank : banks.banks) pointers.push_back(bank.get());
  return pointers;
}

absl::Status CheckOptions(const EngineOptions& options, const ModelInfo& model) {
  const StepLimits& limits = options.limits;
  const auto at_least_one = [](const char* flag, int64_t value) {
    return value >= 1 ? absl::OkStatus()
                      : absl::InvalidArgumentError(
                            absl::StrCat(flag, " is ", value, "; it must be at least 1"));
  };
  for (const auto& status : {at_least_one("--max-num-seqs", limits.max_sequences),
                             at_least_one("max_logit_rows", limits.max_logit_rows),
                             at_least_one("--max-model-len", limits.max_context),
                             at_least_one("--max-num-queued-reqs", options.max_queued)}) {
    if (!status.ok()) return status;
  }
  if (limits.max_context > model.context) {
    return absl::InvalidArgumentError(absl::StrCat("--max-model-len is ", limits.max_context,
                                                   ", but the model's context is ", model.context,
                                                   " tokens: lower it to at most that"));
  }
  if (limits.max_tokens < limits.max_sequences) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-num-batched-tokens is ", limits.max_tokens, "; it must be at least --max-num-seqs (",
        limits.max_sequences, "), for every running request takes a token a step"));
  }
  if (options.kv_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--kv-cache-bytes is ", options.kv_bytes,
                                                   "; it must be at least 0 (0 = automatic)"));
  }
  if (options.kv_dtype != DType::kF32 && options.kv_dtype != DType::kF16 &&
      options.kv_dtype != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat("--kv-cache-dtype is ", Name(options.kv_dtype),
                                                   "; it must be f32, f16 or bf16"));
  }
  return absl::OkStatus();
}

// Every sequence at full length, but at most a quarter of the memory that is free; at least one
// sequence when it can be had.
int64_t AutomaticBytes(const std::vector<BankPlan>& plan, const StepLimits& limits) {
  int64_t one = 0;
  for (const BankPlan& bank : plan) one += bank.kind->bytes_for(bank.config, limits.max_context);
  const int64_t available = AvailableMemory();
  const int64_t modest = std::max(available / 4, std::min(one, available / 10 * 9));
  return std::min(one * limits.max_sequences, modest);
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::unique_ptr<Model> model, EngineOptions options, Banks banks, std::string table)
      : model_(std::move(model)),
        options_(std::move(options)),
        plan_table_(std::move(table)),
        banks_(std::move(banks)),
        pointers_(Pointers(banks_)),
        executor_(Bound(), pointers_, options_.limits, options_.threads, options_.cpu_exact),
        scheduler_({options_.limits, options_.prefix_caching, model_->info().eos_tokens},
                   pointers_) {
    published_ = scheduler_.stats();
    thread_ = std::thread([this] { Loop(); });
  }

  ~EngineImpl() override {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
    }
    wake_.NotifyOne();
    thread_.join();
  }

  absl::StatusOr<RequestHandle> Submit(Request request) override;
  void Cancel(RequestHandle handle, FinishReason reason, int choice) override;
  void Drain(std::function<void()> idle) override;
  EngineStats Stats() const override;

  const ModelInfo& model_info() const override { return model_->info(); }
  const EngineOptions& options() const override { return options_; }
  std::string PlanTable() const override { return plan_table_; }

 private:
  struct CancelOrder {
    RequestHandle handle;
    FinishReason reason;
    int choice;
  };
  // What other threads ask for, as taken by the engine thread.
  struct Inbox {
    std::vector<std::unique_ptr<RequestState>> requests;
    std::vector<CancelOrder> cancels;
    std::vector<std::function<void()>> drains;
  };

  Model* Bound() {
    model_->Bind(banks_.layers, options_.limits);
    return model_.get();
  }
  absl::Status Refuse(const char* reason, absl::Status status) SERVAL_REQUIRES(mutex_) {
    ++rejected_[reason];
    return status;
  }
  void Loop();
  bool WaitForWork() SERVAL_EXCLUDES(mutex_);  // false = stop
  void DrainInbox();
  void RunStep();
  void PublishStats() SERVAL_EXCLUDES(mutex_);

  const std::unique_ptr<Model> model_;
  const EngineOptions options_;
  const std::string plan_table_;
  const Banks banks_;
  const std::vector<MemoryBank*> pointers_;

  // The engine thread's.
  Executor executor_;
  Scheduler scheduler_;
  Inbox taken_;
  std::vector<std::function<void()>> when_idle_;

  mutable Mutex mutex_;
  CondVar wake_;
  Inbox inbox_ SERVAL_GUARDED_BY(mutex_);
  bool draining_ SERVAL_GUARDED_BY(mutex_) = false;
  bool stopping_ SERVAL_GUARDED_BY(mutex_) = false;
  int64_t waiting_ SERVAL_GUARDED_BY(mutex_) = 0;  // in the scheduler, as of the last Plan
  RequestHandle next_handle_ SERVAL_GUARDED_BY(mutex_) = 1;
  EngineStats published_ SERVAL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> rejected_ SERVAL_GUARDED_BY(mutex_);

  std::thread thread_;  // last: it uses all of the above
};

absl::StatusOr<RequestHandle> EngineImpl::Submit(Request request) {
  SERVAL_CHECK(request.sink != nullptr, "a request needs a sink");
  absl::Status valid = ValidateRequest(request, model_->info(), options_.limits);
  if (valid.ok()) valid = ValidateFits(request, pointers_);
  MutexLock lock(&mutex_);
  if (draining_) {
    return Refuse("draining", absl::UnavailableError(
                                  "the server is draining and takes no new requests: try another"));
  }
  if (!valid.ok()) return Refuse(absl::IsOutOfRange(valid) ? "context" : "invalid", valid);
  const int64_t queued = waiting_ + static_cast<int64_t>(inbox_.requests.size());
  if (queued >= options_.max_queued) {
    return Refuse("queue_full",
                  absl::ResourceExhaustedError(absl::StrCat(
                      "the queue is full (", queued, " requests wait, --max-num-queued-reqs is ",
                      options_.max_queued, "): try again later")));
  }
  const RequestHandle handle = next_handle_++;
  inbox_.requests.push_back(
      std::make_unique<RequestState>(handle, std::move(request), Clock::now(), pointers_.size()));
  wake_.NotifyOne();
  return handle;
}

void EngineImpl::Cancel(RequestHandle handle, FinishReason reason, int choice) {
  MutexLock lock(&mutex_);
  inbox_.cancels.push_back({handle, reason, choice});
  wake_.NotifyOne();
}

void EngineImpl::Drain(std::function<void()> idle) {
  MutexLock lock(&mutex_);
  draining_ = true;
  inbox_.drains.push_back(std::move(idle));
  wake_.NotifyOne();
}

EngineStats EngineImpl::Stats() const {
  MutexLock lock(&mutex_);
  EngineStats stats = published_;
  stats.rejected = rejected_;
  return stats;
}

void EngineImpl::Loop() {
  while (WaitForWork()) {
    DrainInbox();
    RunStep();
    PublishStats();
    if (!scheduler_.idle()) continue;
    scheduler_.CheckConservation();
    for (const auto& idle : std::exchange(when_idle_, {})) idle();
  }
  DrainInbox();
  scheduler_.CancelAll(Clock::now());
  scheduler_.CheckConservation();
}

// Blocks only while no request is alive, so no deadline can pass meanwhile.
bool EngineImpl::WaitForWork() {
  MutexLock lock(&mutex_);
  while (!stopping_ && scheduler_.idle() && inbox_.requests.empty() && inbox_.cancels.empty() &&
         inbox_.drains.empty()) {
    wake_.Wait(&mutex_);
  }
  std::swap(taken_, inbox_);
  waiting_ += static_cast<int64_t>(taken_.requests.size());
  return !stopping_;
}

void EngineImpl::DrainInbox() {
  for (auto& request : taken_.requests) scheduler_.Add(std::move(request));
  const TimePoint now = Clock::now();
  for (const CancelOrder& order : taken_.cancels) {
    scheduler_.Cancel(order.handle, order.reason, order.choice, now);
  }
  for (auto& idle : taken_.drains) when_idle_.push_back(std::move(idle));
  taken_.requests.clear();
  taken_.cancels.clear();
  taken_.drains.clear();
}

void EngineImpl::RunStep() {
  const TimePoint now = Clock::now();
  scheduler_.Expire(now);
  Step& step = scheduler_.Plan(now);
  if (step.empty()) return;
  {
    // Who was admitted makes room in the queue before the long part of the step.
    MutexLock lock(&mutex_);
    waiting_ = scheduler_.waiting();
  }
  executor_.Run(step);
  scheduler_.Commit(step, Clock::now());
}

void EngineImpl::PublishStats() {
  const EngineStats& stats = scheduler_.stats();
  MutexLock lock(&mutex_);
  published_ = stats;
  waiting_ = scheduler_.waiting();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<Model> model,
                                                       EngineOptions options) {
  const ModelInfo& info = model->info();
  if (absl::Status status = CheckOptions(options, info); !status.ok()) return status;
  auto layers = ParseMemoryPlan(options.memory_plan, static_cast<int>(info.layers.size()));
  if (!layers.ok()) return layers.status();
  const std::vector<BankPlan> plan = GroupLayers(*layers, info, options.limits, options.kv_dtype);
  if (options.kv_bytes == 0) {
    options.kv_bytes = AutomaticBytes(plan, options.limits);
  } else if (const int64_t available = AvailableMemory(); options.kv_bytes > available) {
    // What is promised but not there would be missed in the middle of a step.
    return absl::ResourceExhaustedError(
        absl::StrCat("--kv-cache-bytes is ", options.kv_bytes, ", but only ", available,
                     " bytes of memory are available: lower it to less than that"));
  }
  std::string table = serval::PlanTable(plan, options.limits.max_context, options.kv_bytes);
  auto banks = MakeBanks(plan, options.kv_bytes);
  if (!banks.ok()) return banks.status();
  return std::unique_ptr<Engine>(
      new EngineImpl(std::move(model), std::move(options), *std::move(banks), std::move(table)));
}

}  // namespace serval
