#include "server/convert.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/tokenizer_utf8.h"
#include "server/convert_sampling.h"

namespace serval {
namespace {

constexpr size_t kMaxIdBytes = 128;

absl::Status CheckRequestId(const std::string& id) {
  if (id.empty() || IsRequestId(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request_id of ", id.size(),
                   " bytes; allowed: at most 128 printable ASCII characters without spaces"));
}

// A text whose tokens, were they all the longest there is, would still not fit.
absl::Status CheckItMayFit(std::string_view text, const ServedModel& model) {
  const int64_t context = model.engine->options().limits.max_context;
  if (static_cast<int64_t>(text.size()) <= context * model.longest_token_bytes) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat("the prompt's ", text.size(),
                                            " bytes are more tokens than the context of ", context,
                                            "; shorten it or set truncate_prompt_tokens"));
}

absl::StatusOr<std::vector<int32_t>> ParsePrompt(const v1::GenerateRequest& message,
                                                 const ServedModel& model) {
  std::vector<int32_t> ids;
  if (message.has_tokens()) {
    ids.assign(message.tokens().ids().begin(), message.tokens().ids().end());
    const absl::Status status =
        CheckTokenIds("prompt tokens", ids, model.engine->model_info().vocab);
    if (!status.ok()) return status;
  } else if (!message.text().empty()) {
    absl::Status status;
    if (!message.has_truncate_prompt_tokens()) status = CheckItMayFit(message.text(), model);
    if (status.ok()) status = CheckText("prompt", message.text());
    if (!status.ok()) return status;
    ids = model.tokenizer->Encode(
        message.text(), !message.has_add_special_tokens() || message.add_special_tokens());
  }
  if (ids.empty()) {
    return absl::InvalidArgumentError("prompt is empty; allowed: at least one token");
  }
  return ids;
}

// Keeps the last tokens; true when some were dropped.
absl::StatusOr<bool> Truncate(const v1::GenerateRequest& message, std::vector<int32_t>& prompt) {
  if (!message.has_truncate_prompt_tokens()) return false;
  const int32_t keep = message.truncate_prompt_tokens();
  if (keep < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("truncate_prompt_tokens is ", keep, "; allowed: 1 or more"));
  }
  if (prompt.size() <= static_cast<size_t>(keep)) return false;
  prompt.erase(prompt.begin(), prompt.end() - keep);
  return true;
}

absl::StatusOr<OutputFormat> ParseFormat(const v1::GenerateRequest& message,
                                         const SamplingParams& sampling, const ServedModel& model) {
  auto stop = ParseStop(message.sampling());
  if (!stop.ok()) return stop.status();
  OutputFormat format;
  format.tokenizer = model.tokenizer.get();
  format.stop = *std::move(stop);
  format.stop_token_ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) format.end_tokens = model.engine->model_info().eos_tokens;
  format.include_stop = message.sampling().include_stop_str_in_output();
  if (message.sampling().has_skip_special_tokens()) {
    format.skip_special = message.sampling().skip_special_tokens();
  }
  format.min_tokens = sampling.min_tokens;
  format.return_token_ids = message.return_token_ids();
  return format;
}

}  // namespace

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 32 && c < 127; });
}

absl::Status CheckText(const std::string& field, std::string_view text) {
  if (text.size() > kMaxPromptBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, " is ", text.size(), " bytes long; allowed: at most ", kMaxPromptBytes, " bytes"));
  }
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is not valid UTF-8 at byte ", valid, "; allowed: UTF-8 text"));
}

absl::Status CheckTokenIds(const std::string& field, std::span<const int32_t> ids, int64_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ": token id ", ids[i], " at index ", i,
                                                   " is not in the vocabulary; allowed: 0 to ",
                                                   vocab - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<ParsedRequest> ParseGenerate(const v1::GenerateRequest& message,
                                            const ServedModel& model, uint64_t random_seed) {
  if (absl::Status status = CheckRequestId(message.request_id()); !status.ok()) return status;
  auto sampling = ParseSampling(message.sampling(), model);
  if (!sampling.ok()) return sampling.status();
  auto format = ParseFormat(message, *sampling, model);
  if (!format.ok()) return format.status();
  auto prompt = ParsePrompt(message, model);
  if (!prompt.ok()) return prompt.status();
  const auto truncated = Truncate(message, *prompt);
  if (!truncated.ok()) return truncated.status();

  if (message.echo()) {
    // A text prompt comes back as it was, not as its tokens spell it.
    format->echo = message.has_text() && !*truncated
                       ? message.text()
                       : model.tokenizer->Decode(*prompt, format->skip_special);
  }
  ParsedRequest parsed{.request = {}, .format = *std::move(format)};
  parsed.request.id = message.request_id();
  parsed.request.prompt = *std::move(prompt);
  parsed.request.sampling = *std::move(sampling);
  if (!message.sampling().has_seed()) parsed.request.sampling.seed = random_seed;
  parsed.request.priority = message.priority();
  if (!message.cache_salt().empty()) {
    parsed.request.cache_salt = std::hash<std::string>()(message.cache_salt());
  }
  return parsed;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

}  // namespace serval
