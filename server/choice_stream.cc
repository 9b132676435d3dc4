#include "server/choice_stream.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace serval {
namespace {

// The stop string that ends `text`; of several the longest, as the detokenizer decides it.
const std::string& StopAtEnd(std::string_view text, const std::vector<std::string>& stops) {
  const std::string* longest = nullptr;
  for (const std::string& stop : stops) {
    if (text.ends_with(stop) && (longest == nullptr || stop.size() > longest->size())) {
      longest = &stop;
    }
  }
  SERVAL_CHECK(longest != nullptr, "stopped without a stop string");
  return *longest;
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void FillLogprob(const Tokenizer& tokenizer, const TokenLogprob& entry, v1::TokenLogprob& out) {
  out.set_token_id(entry.token);
  out.set_token(std::string(tokenizer.TokenBytes(entry.token)));
  out.set_logprob(entry.logprob);
  out.set_rank(entry.rank);
}

}  // namespace

void FillLogprobs(const Tokenizer& tokenizer, std::span<const TokenLogprob> entries,
                  v1::PositionLogprobs& out) {
  FillLogprob(tokenizer, entries.front(), *out.mutable_chosen());
  for (const TokenLogprob& entry : entries.subspan(1)) {
    FillLogprob(tokenizer, entry, *out.add_top());
  }
}

ChoiceStream::ChoiceStream(int index, const OutputFormat* format)
    : index_(index),
      format_(format),
      // The stop string is kept here in any case, to tell which one it was.
      detokenizer_(format->tokenizer, {.stop = format->stop,
                                       .include_stop = true,
                                       .skip_special = format->skip_special,
                                       .min_tokens = format->min_tokens}) {
  Restart();
  delta_.set_text(format->echo);
  fresh_ = !format->echo.empty();
}

void ChoiceStream::Restart() {
  delta_ = v1::Choice();
  delta_.set_index(index_);
  fresh_ = false;
}

bool ChoiceStream::Push(int32_t token, std::span<const TokenLogprob> logprobs) {
  if (finished_) return false;
  ++tokens_;
  if (format_->return_token_ids) {
    delta_.add_token_ids(token);
    fresh_ = true;
  }
  if (!logprobs.empty()) {
    FillLogprobs(*format_->tokenizer, logprobs, *delta_.add_logprobs());
    fresh_ = true;
  }
  const bool is_stop_id = Contains(format_->stop_token_ids, token);
  last_stop_id_ = is_stop_id ? std::optional(token) : std::nullopt;
  // The token that ends a choice is not part of its text, as in vLLM.
  if ((is_stop_id || Contains(format_->end_tokens, token)) && !format_->include_stop) return false;

  std::string text;
  const bool stopped = detokenizer_.Push(token, text);
  if (stopped) {
    const std::string& stop = StopAtEnd(text, format_->stop);
    delta_.set_stop_string(stop);
    if (!format_->include_stop) text.resize(text.size() - stop.size());
  }
  if (!text.empty()) {
    delta_.mutable_text()->append(text);
    fresh_ = true;
  }
  if (!stopped) return false;
  finished_ = fresh_ = true;
  delta_.set_finish_reason(v1::FINISH_REASON_STOP);
  return true;
}

void ChoiceStream::Finish(FinishReason reason) {
  if (finished_) return;
  finished_ = true;
  if (reason != FinishReason::kStop && reason != FinishReason::kLength) return;
  std::string text;
  detokenizer_.Flush(text);
  delta_.mutable_text()->append(text);
  delta_.set_finish_reason(reason == FinishReason::kStop ? v1::FINISH_REASON_STOP
                                                         : v1::FINISH_REASON_LENGTH);
  if (reason == FinishReason::kStop && last_stop_id_) delta_.set_stop_token_id(*last_stop_id_);
  fresh_ = true;
}

std::optional<v1::Choice> ChoiceStream::Take() {
  if (!fresh_) return std::nullopt;
  v1::Choice taken = std::move(delta_);
  Restart();
  return taken;
}

}  // namespace serval
