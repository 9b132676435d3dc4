#include "server/convert_sampling.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/convert.h"

namespace serval {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kMaxChoices = 64;
constexpr int kMaxLogprobs = 20;
constexpr int kMaxStopStrings = 64;
constexpr int kMaxBadWords = 1024;
constexpr size_t kMaxWordBytes = 1024;

template <class T>
absl::Status Refused(const std::string& field, const T& value, const char* allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; allowed: ", allowed));
}

// Sets `value` from an optional field of the message; false when it is out of range.
template <class T, class Predicate>
absl::Status Take(const char* field, bool given, T written, Predicate&& in_range,
                  const char* allowed, T& value) {
  if (!given) return absl::OkStatus();
  if (!in_range(written)) return Refused(field, written, allowed);
  value = written;
  return absl::OkStatus();
}

auto Between(float least, float most) {
  return [=](float x) { return std::isfinite(x) && x >= least && x <= most; };
}

absl::Status TakeNumbers(const v1::SamplingParams& in, SamplingParams& out) {
  absl::Status status;
  status.Update(Take("temperature", in.has_temperature(), in.temperature(), Between(0, kInfinity),
                     "a finite number, 0 or more", out.temperature));
  status.Update(Take(
      "top_p", in.has_top_p(), in.top_p(), [](float x) { return x > 0 && x <= 1; },
      "more than 0, at most 1", out.top_p));
  status.Update(Take("min_p", in.has_min_p(), in.min_p(), Between(0, 1), "0 to 1", out.min_p));
  status.Update(Take(
      "repetition_penalty", in.has_repetition_penalty(), in.repetition_penalty(),
      [](float x) { return std::isfinite(x) && x > 0; }, "a finite number, more than 0",
      out.repetition_penalty));
  status.Update(Take("presence_penalty", in.has_presence_penalty(), in.presence_penalty(),
                     Between(-2, 2), "-2 to 2", out.presence_penalty));
  status.Update(Take("frequency_penalty", in.has_frequency_penalty(), in.frequency_penalty(),
                     Between(-2, 2), "-2 to 2", out.frequency_penalty));
  return status;
}

absl::Status TakeCounts(const v1::SamplingParams& in, SamplingParams& out) {
  absl::Status status;
  int32_t top_k = 0, max_tokens = 16, min_tokens = 0;
  status.Update(Take(
      "top_k", in.has_top_k(), in.top_k(), [](int32_t k) { return k >= -1; },
      "1 or more; 0 or -1 = off", top_k));
  status.Update(Take(
      "max_tokens", in.has_max_tokens(), in.max_tokens(), [](int32_t n) { return n >= 1; },
      "1 or more", max_tokens));
  status.Update(Take(
      "min_tokens", in.has_min_tokens(), in.min_tokens(),
      [&](int32_t n) { return n >= 0 && n <= max_tokens; }, "0 to max_tokens", min_tokens));
  status.Update(Take(
      "n", in.has_n(), in.n(), [](int32_t n) { return n >= 1 && n <= kMaxChoices; }, "1 to 64",
      out.n));
  const auto logprobs = [](int32_t k) { return k >= 0 && k <= kMaxLogprobs; };
  status.Update(
      Take("logprobs", in.has_logprobs(), in.logprobs(), logprobs, "0 to 20", out.logprobs));
  status.Update(Take("prompt_logprobs", in.has_prompt_logprobs(), in.prompt_logprobs(), logprobs,
                     "0 to 20", out.prompt_logprobs));
  out.top_k = top_k == -1 ? 0 : top_k;
  out.max_tokens = max_tokens;
  out.min_tokens = min_tokens;
  out.ignore_eos = in.ignore_eos();
  return status;
}

absl::Status TakeTokens(const v1::SamplingParams& in, int64_t vocab, SamplingParams& out) {
  for (const auto& [id, bias] : in.logit_bias()) {
    if (absl::Status status = CheckTokenIds("logit_bias", {&id, 1}, vocab); !status.ok()) {
      return status;
    }
    if (!Between(-100, 100)(bias)) {
      return Refused(absl::StrCat("logit_bias of token ", id), bias, "-100 to 100");
    }
    out.logit_bias.emplace_back(id, bias);
  }
  out.stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  return CheckTokenIds("stop_token_ids", out.stop_token_ids, vocab);
}

absl::Status CheckWord(const std::string& field, const std::string& word) {
  if (word.empty()) return absl::InvalidArgumentError(field + " is empty; allowed: some text");
  if (word.size() > kMaxWordBytes) {
    return Refused(absl::StrCat("length of ", field), absl::StrCat(word.size(), " bytes"),
                   "at most 1024 bytes");
  }
  return absl::OkStatus();
}

// A word is banned at the start of a text and, with its leading space, within it (as in vLLM).
absl::Status TakeBadWords(const v1::SamplingParams& in, const Tokenizer& tokenizer,
                          SamplingParams& out) {
  if (in.bad_words_size() > kMaxBadWords) {
    return Refused("number of bad_words", in.bad_words_size(), "at most 1024");
  }
  for (int i = 0; i < in.bad_words_size(); ++i) {
    const std::string& word = in.bad_words(i);
    const std::string field = absl::StrCat("bad_words[", i, "]");
    if (absl::Status status = CheckWord(field, word); !status.ok()) return status;
    const size_t start = std::min(word.find_first_not_of(' '), word.size() - 1);
    for (const std::string& form : {word.substr(start), " " + word.substr(start)}) {
      std::vector<int32_t> ids = tokenizer.Encode(form, /*add_special=*/false);
      if (!ids.empty()) out.bad_words.push_back(std::move(ids));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SamplingParams> ParseSampling(const v1::SamplingParams& message,
                                             const ServedModel& model) {
  SamplingParams params;
  absl::Status status = TakeNumbers(message, params);
  status.Update(TakeCounts(message, params));
  status.Update(TakeTokens(message, model.engine->model_info().vocab, params));
  status.Update(TakeBadWords(message, *model.tokenizer, params));
  if (!status.ok()) return status;
  params.seed = message.seed();
  return params;
}

absl::StatusOr<std::vector<std::string>> ParseStop(const v1::SamplingParams& message) {
  if (message.stop_size() > kMaxStopStrings) {
    return Refused("number of stop strings", message.stop_size(), "at most 64");
  }
  for (int i = 0; i < message.stop_size(); ++i) {
    const absl::Status status = CheckWord(absl::StrCat("stop[", i, "]"), message.stop(i));
    if (!status.ok()) return status;
  }
  return std::vector<std::string>(message.stop().begin(), message.stop().end());
}

}  // namespace serval
