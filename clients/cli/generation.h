// All that a Generate call answered, put together from its stream, and its JSON.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serval/v1/generation.pb.h"

namespace serval {

class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  struct Choice {
    std::string text;
    std::vector<int32_t> token_ids;
    std::vector<v1::PositionLogprobs> logprobs;
    v1::Choice end;  // the last message: finish and stop reason
  };

  explicit Generation(const v1::GenerateRequest& request, Clock::time_point start = Clock::now());

  void Add(const v1::GenerateResponse& message, Clock::time_point now = Clock::now());

  const std::vector<Choice>& choices() const { return choices_; }
  bool Finished(int choice) const;

  // text, token_ids, finish_reason, stop_reason, logprobs, prompt_logprobs, prompt_token_ids,
  // usage, request_id, model; with n > 1 also `choices`. What was not asked for is null.
  nlohmann::ordered_json ToJson() const;

  // "42 tokens, TTFT 35 ms, 180.2 tokens/s; 0 of 12 prompt tokens cached"
  std::string Summary() const;

 private:
  bool want_logprobs_;
  bool want_prompt_logprobs_;
  Clock::time_point start_;
  std::optional<Clock::time_point> first_;  // token
  Clock::time_point last_;
  std::string request_id_;
  std::string model_;
  std::vector<Choice> choices_;
  std::vector<std::optional<v1::PositionLogprobs>> prompt_logprobs_;
  std::vector<int32_t> prompt_token_ids_;
  v1::Usage usage_;
};

}  // namespace serval
