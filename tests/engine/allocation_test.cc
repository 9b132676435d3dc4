// "A step allocates nothing": every new is counted while requests run.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "engine/executor.h"
#include "tests/engine/harness.h"
#include "tests/support/fake_model.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Not inlined: g++ would take a new of its own and this free for a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* data = std::malloc(size)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace serval {
namespace {

class CountingSink final : public TokenSink {
 public:
  void OnToken(const TokenOutput&) override { ++tokens; }
  void OnFinish(int, FinishReason) override {}
  void OnDone(const absl::Status&, const Usage&) override { done = true; }
  int64_t tokens = 0;
  bool done = false;
};

SamplingParams Everything() {
  SamplingParams sampling = Tokens(300);
  sampling.top_p = 0.9f;
  sampling.frequency_penalty = 0.5f;
  sampling.logit_bias = {{3, 1.0f}};
  sampling.bad_words = {{5, 6}, {7}};
  sampling.stop_token_ids = {1};
  sampling.min_tokens = 300;
  sampling.n = 2;
  sampling.logprobs = 3;
  return sampling;
}

class Steps {
 public:
  Steps() {
    auto plan = GroupLayers(std::vector<LayerPlan>(model_.info().layers.size()), model_.info(),
                            kLimits, DType::kBF16);
    auto banks = MakeBanks(std::move(plan), 1 << 24);
    EXPECT_TRUE(banks.ok()) << banks.status();
    banks_ = *std::move(banks);
    model_.Bind(banks_.layers, kLimits);
    const std::vector<MemoryBank*> pointers{banks_.banks[0].get()};
    executor_ = std::make_unique<Executor>(&model_, pointers, kLimits, 2, false);
    scheduler_ = std::make_unique<Scheduler>(SchedulerConfig{kLimits, true, {}}, pointers);
  }

  std::shared_ptr<CountingSink> Add(int64_t prompt, SamplingParams sampling) {
    auto sink = std::make_shared<CountingSink>();
    Request request;
    for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back(static_cast<int32_t>(i % 97));
    request.sampling = std::move(sampling);
    request.sink = sink;
    scheduler_->Add(std::make_unique<RequestState>(++handle_, std::move(request), TimePoint{}, 1));
    return sink;
  }
  // Returns how often the step allocated.
  int64_t Run() {
    const int64_t before = allocations;
    Step& step = scheduler_->Plan(TimePoint{});
    if (!step.empty()) executor_->Run(step);
    scheduler_->Commit(step, TimePoint{});
    return allocations - before;
  }

 private:
  static constexpr StepLimits kLimits{
      .max_tokens = 16, .max_sequences = 4, .max_logit_rows = 2, .max_context = 512};
  FakeModel model_;
  Banks banks_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  RequestHandle handle_ = 0;
};

TEST(Allocation, RunningRequestsAllocateNothing) {
  Steps steps;
  const auto plain = steps.Add(70, Tokens(300));
  const auto greedy = steps.Add(3, [] {
    SamplingParams sampling = Tokens(300);
    sampling.temperature = 0;
    return sampling;
  }());
  const auto rich = steps.Add(130, Everything());
  while (rich->tokens < 4) {
    steps.Run();
    ASSERT_LT(plain->tokens, 100);
  }
  for (int step = 0; step < 190; ++step) {  // every sequence comes over several pages
    ASSERT_EQ(steps.Run(), 0) << "step " << step;
  }
  EXPECT_GE(plain->tokens, 190);
  EXPECT_GE(greedy->tokens, 190);
  EXPECT_GE(rich->tokens, 380);
  EXPECT_FALSE(plain->done || greedy->done || rich->done);
}

TEST(Allocation, TheCounterCounts) {
  Steps steps;
  steps.Add(20, Tokens(5));
  EXPECT_GT(steps.Run(), 0);  // an admission takes what the request will need
}

}  // namespace
}  // namespace serval
