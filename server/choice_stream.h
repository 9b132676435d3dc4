// One choice of a request, from tokens to the deltas a client sees: text through the detokenizer,
// token ids, logprobs, and why it ended. Thread rule: one owner at a time (the outbox).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "models/detokenizer.h"
#include "serval/v1/generation.pb.h"

namespace serval {

// How the choices of a request are shown; shared by all of them.
struct OutputFormat {
  const Tokenizer* tokenizer = nullptr;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> end_tokens;  // the model's own; empty when they are ignored
  bool include_stop = false;
  int64_t min_tokens = 0;  // no stop string ends a choice earlier
  bool skip_special = true;
  bool return_token_ids = false;
  std::string echo;  // text that comes before the output
};

// A position's logprobs: `entries` is the chosen token, then the most likely ones.
void FillLogprobs(const Tokenizer& tokenizer, std::span<const TokenLogprob> entries,
                  v1::PositionLogprobs& out);

class ChoiceStream {
 public:
  // `format` must outlive it.
  ChoiceStream(int index, const OutputFormat* format);

  // A new token, with its logprobs or none. True: it completed a stop string, nothing may follow.
  // Tokens after the end are dropped.
  bool Push(int32_t token, std::span<const TokenLogprob> logprobs);
  // The engine ended it. A cancelled or failed choice shows no reason: the call's status tells.
  void Finish(FinishReason reason);
  // What is new since the last Take; nullopt when nothing can be shown.
  std::optional<v1::Choice> Take();

  int64_t tokens() const { return tokens_; }

 private:
  void Restart();

  const int index_;
  const OutputFormat* format_;
  Detokenizer detokenizer_;
  v1::Choice delta_;
  bool fresh_ = false;  // delta_ has something to show
  bool finished_ = false;
  int64_t tokens_ = 0;
  std::optional<int32_t> last_stop_id_;  // the last token, when it is one of stop_token_ids
};

}  // namespace serval
