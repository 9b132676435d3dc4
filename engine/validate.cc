#include "engine/validate.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace serval {
namespace {

absl::Status Bad(const std::string& field, const auto& value, const std::string& range) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", range));
}

absl::Status CheckTokens(const std::string& field, std::span<const int32_t> ids, int64_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return Bad(absl::StrCat(field, "[", i, "]"), ids[i],
                 absl::StrCat("a token id in 0 … ", vocab - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const SamplingParams& s) {
  if (!std::isfinite(s.temperature) || s.temperature < 0) {
    return Bad("temperature", s.temperature, "a finite number, at least 0");
  }
  if (s.top_k < 0) return Bad("top_k", s.top_k, "at least 0 (0 = off)");
  if (!(s.top_p > 0 && s.top_p <= 1)) return Bad("top_p", s.top_p, "over 0 and at most 1");
  if (!(s.min_p >= 0 && s.min_p <= 1)) return Bad("min_p", s.min_p, "in 0 … 1");
  if (!std::isfinite(s.repetition_penalty) || s.repetition_penalty <= 0) {
    return Bad("repetition_penalty", s.repetition_penalty, "a finite number over 0");
  }
  if (!std::isfinite(s.presence_penalty)) {
    return Bad("presence_penalty", s.presence_penalty, "a finite number");
  }
  if (!std::isfinite(s.frequency_penalty)) {
    return Bad("frequency_penalty", s.frequency_penalty, "a finite number");
  }
  if (s.n < 1 || s.n > 64) return Bad("n", s.n, "in 1 … 64");
  if (s.max_tokens < 1) return Bad("max_tokens", s.max_tokens, "at least 1");
  if (s.min_tokens < 0 || s.min_tokens > s.max_tokens) {
    return Bad("min_tokens", s.min_tokens, absl::StrCat("in 0 … max_tokens (", s.max_tokens, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const SamplingParams& s, int64_t vocab) {
  const std::string counts = absl::StrCat("in -1 … ", vocab);
  if (s.logprobs < -1 || s.logprobs > vocab) return Bad("logprobs", s.logprobs, counts);
  if (s.prompt_logprobs < -1 || s.prompt_logprobs > vocab) {
    return Bad("prompt_logprobs", s.prompt_logprobs, counts);
  }
  if (absl::Status status = CheckTokens("stop_token_ids", s.stop_token_ids, vocab); !status.ok()) {
    return status;
  }
  for (const auto& [id, bias] : s.logit_bias) {
    if (id < 0 || id >= vocab) {
      return Bad("logit_bias id", id, absl::StrCat("a token id in 0 … ", vocab - 1));
    }
    if (!std::isfinite(bias)) {
      return Bad(absl::StrCat("logit_bias of token ", id), bias, "a finite number");
    }
  }
  for (size_t i = 0; i < s.bad_words.size(); ++i) {
    const std::string field = absl::StrCat("bad_words[", i, "]");
    if (s.bad_words[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(field, " is empty; it must have a token"));
    }
    if (absl::Status status = CheckTokens(field, s.bad_words[i], vocab); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRequest(const Request& request, const ModelInfo& model,
                             const StepLimits& limits) {
  const SamplingParams& sampling = request.sampling;
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("prompt is empty; it must have at least one token");
  }
  if (absl::Status status = CheckSampling(sampling); !status.ok()) return status;
  if (sampling.n > limits.max_sequences) {
    return Bad("n", sampling.n,
               absl::StrCat("at most --max-num-seqs (", limits.max_sequences, ")"));
  }
  // Before the ids: a prompt of millions of tokens is refused without reading it.
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  // What only scores its prompt may fill the context: the one token it draws is not stored.
  const bool scores_only = sampling.prompt_logprobs >= 0 && sampling.max_tokens == 1;
  const int64_t room = limits.max_context - prompt + (scores_only ? 1 : 0);
  if (prompt > limits.max_context || sampling.max_tokens > room) {
    return absl::OutOfRangeError(absl::StrCat("the prompt has ", prompt,
                                              " tokens and max_tokens is ", sampling.max_tokens,
                                              ", but the context is ", limits.max_context,
                                              " tokens: shorten the prompt or lower max_tokens"));
  }
  if (absl::Status status = CheckIds(sampling, model.vocab); !status.ok()) return status;
  return CheckTokens("prompt", request.prompt, model.vocab);
}

absl::Status ValidateFits(const Request& request, std::span<MemoryBank* const> banks) {
  const auto tokens = static_cast<int64_t>(request.prompt.size()) + request.sampling.max_tokens;
  for (const MemoryBank* bank : banks) {
    if (bank->Need(tokens) <= bank->Capacity()) continue;
    return absl::OutOfRangeError(absl::StrCat(
        "prompt and max_tokens are ", tokens, " tokens and need ", bank->Need(tokens).value,
        " bytes of ", std::string(bank->kind()), " memory, which has ", bank->Capacity().value,
        ": lower max_tokens, or raise --kv-cache-bytes"));
  }
  return absl::OkStatus();
}

}  // namespace serval
