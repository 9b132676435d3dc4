// The mailbox between the engine and one call: the engine appends, the outbox takes everything at
// once. A client that does not read costs a few bytes a token here, and max_tokens bounds them.
// Thread rule: the TokenSink half is the engine thread's; Take is the outbox's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "kernels/mutex.h"

namespace serval {

struct TokenEvent {
  int32_t choice = 0;
  bool finish = false;  // the choice ended for `reason`; else it got `token`
  FinishReason reason = FinishReason::kStop;
  int32_t token = 0;
  int32_t logprobs_begin =
      -1;  // into TokenBatch::logprobs: the chosen one, then the most likely; -1 = none
  int32_t logprobs_count = 0;
};

struct TokenBatch {
  int64_t prompt_begin = 0;  // position of the first of prompt_rows
  std::vector<SampleResult> prompt_rows;
  std::vector<TokenEvent> events;
  std::vector<TokenLogprob> logprobs;
  bool done = false;
  absl::Status status;
  Usage usage;
  void Clear();
};

class TokenQueue : public TokenSink {
 public:
  // `wake` is called once after each Take, when something has come; it must not block.
  explicit TokenQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  void OnPromptLogprobs(int64_t first, std::span<const SampleResult> rows) override;
  void OnToken(const TokenOutput& output) override;
  void OnFinish(int choice, FinishReason reason) override;
  void OnDone(const absl::Status& status, const Usage& usage) override;

  // Replaces `batch` by everything that has come.
  void Take(TokenBatch& batch) SERVAL_EXCLUDES(mutex_);

 private:
  void Wake() SERVAL_EXCLUDES(mutex_);

  const std::function<void()> wake_;
  Mutex mutex_;
  TokenBatch batch_ SERVAL_GUARDED_BY(mutex_);
  bool woken_ SERVAL_GUARDED_BY(mutex_) = false;
};

}  // namespace serval
