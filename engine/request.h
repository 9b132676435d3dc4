// What comes in and what goes out: token ids only. Strings stop at the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/sample/sample.h"

namespace serval {

struct SamplingParams {
  float temperature = 1.0f;
  int top_k = 0;  // 0 = off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that must not appear
  uint64_t seed = 0;
  int64_t max_tokens = 16;
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  int n = 1;
  int logprobs = -1;         // -1 = none, 0 = of the chosen token, k = and of the k most likely
  int prompt_logprobs = -1;  // the same for every prompt token but the first
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kDeadline, kError };
const char* Name(FinishReason reason);

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // all choices together
  int64_t cached_tokens = 0;      // prompt tokens found in the prefix cache
  int64_t kv_bytes = 0;           // most bytes the request held
};

struct TokenOutput {
  int choice = 0;
  int32_t token = 0;
  bool has_logprob = false;
  TokenLogprob logprob;
  std::span<const TokenLogprob> top;  // valid during the call
};

// Where a request's output goes. Called on the engine thread; must not block and must not call the
// engine except Cancel. After OnDone no further call comes, and the engine drops its reference.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Prompt positions [first, first + rows.size()): the logprob of each prompt token given those
  // before it. In order, in slices.
  virtual void OnPromptLogprobs(int64_t first, std::span<const SampleResult> rows) {}
  virtual void OnToken(const TokenOutput& output) = 0;
  // One choice ended. The stop or eos token itself was delivered by OnToken before.
  virtual void OnFinish(int choice, FinishReason reason) = 0;
  // All choices ended, or the request failed (status not ok: DEADLINE_EXCEEDED, CANCELLED, INTERNAL
  // …).
  virtual void OnDone(const absl::Status& status, const Usage& usage) = 0;
};

struct Request {
  std::string id;               // request id for logs; unique not required
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  int priority = 0;         // lower runs earlier (as in vLLM)
  uint64_t cache_salt = 0;  // prefixes are shared only under equal salts
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::shared_ptr<TokenSink> sink;
};

}  // namespace serval
