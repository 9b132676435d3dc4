// What the engine's tests share: a sink that remembers, and a scheduler with its memories but
// without a model.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/memory/make_banks.h"
#include "engine/memory/memory_plan.h"
#include "engine/scheduler.h"
#include "kernels/mutex.h"

namespace serval {

// Any thread.
class RecordingSink : public TokenSink {
 public:
  void OnPromptLogprobs(int64_t first, std::span<const SampleResult> rows) override;
  void OnToken(const TokenOutput& output) override;
  void OnFinish(int choice, FinishReason reason) override;
  void OnDone(const absl::Status& status, const Usage& usage) override;

  // Blocks until OnDone; the test fails when it does not come.
  void Wait();
  // Blocks until `count` tokens of all choices came, or OnDone.
  void WaitForTokens(int64_t count);

  struct Record {
    std::vector<std::vector<int32_t>> tokens = std::vector<std::vector<int32_t>>(64);
    std::vector<std::vector<TokenLogprob>> logprobs = std::vector<std::vector<TokenLogprob>>(64);
    std::vector<std::pair<int, FinishReason>> finished;
    std::vector<std::pair<int64_t, int64_t>> slices;  // of prompt logprobs: first, count
    std::vector<TokenLogprob> prompt;
    int64_t total = 0;
    int done = 0;
    absl::Status status;
    Usage usage;
  };
  Record record() const;
  std::vector<int32_t> tokens(int choice = 0) const { return record().tokens[choice]; }
  absl::Status status() const { return record().status; }
  bool done() const { return record().done > 0; }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  Record record_ SERVAL_GUARDED_BY(mutex_);
};

struct RigOptions {
  StepLimits limits{.max_tokens = 16, .max_sequences = 4, .max_logit_rows = 4, .max_context = 512};
  int64_t pages = 64;
  bool prefix_caching = true;
  std::vector<int32_t> eos_tokens = {};
};

// A scheduler over real banks. Tokens are "drawn" by a fixed rule from position and seed; time is a
// number of seconds.
class Rig {
 public:
  explicit Rig(RigOptions options = {});

  // Adds a request of `prompt` tokens (ids `first`, first + 1, …).
  std::shared_ptr<RecordingSink> Add(int64_t prompt, SamplingParams sampling = {}, int first = 0);
  std::shared_ptr<RecordingSink> Add(Request request);
  // Plan and Commit; false when nothing was to do.
  bool StepOnce();
  void RunDry();
  static int32_t Drawn(int64_t position, uint64_t seed) {
    return static_cast<int32_t>((position * 7 + static_cast<int64_t>(seed % 89)) % 97);
  }
  TimePoint now() const { return TimePoint{} + std::chrono::seconds(1000 + seconds); }

  MemoryBank& bank() { return *banks.banks[0]; }

  Banks banks;
  std::unique_ptr<Scheduler> scheduler;
  RequestHandle last_handle = 0;
  int seconds = 0;
  std::vector<int64_t> counts;  // tokens of each sequence of the last step
};

// Sampling with a token limit.
SamplingParams Tokens(int64_t max_tokens);

}  // namespace serval
