#include "clients/cli/generation.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "clients/common/utf8.h"

namespace serval {
namespace {

using Json = nlohmann::ordered_json;

// The double that prints as the float does: -0.1, not -0.10000000149011612.
double Shortest(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double shortest = value;
  std::from_chars(text, end, shortest);
  return shortest;
}

Json ToJson(const v1::TokenLogprob& token) {
  const std::string& bytes = token.token();
  Json json = {{"token_id", token.token_id()}, {"token", ReplaceInvalidUtf8(bytes)}};
  if (!IsUtf8(bytes)) {
    json["bytes"] = Json::array();
    for (const char byte : bytes) json["bytes"].push_back(static_cast<unsigned char>(byte));
  }
  json["logprob"] = Shortest(token.logprob());
  json["rank"] = token.rank();
  return json;
}

Json ToJson(const v1::PositionLogprobs& position) {
  Json json = ToJson(position.chosen());
  json["top"] = Json::array();
  for (const v1::TokenLogprob& token : position.top()) json["top"].push_back(ToJson(token));
  return json;
}

Json ToJson(const std::optional<v1::PositionLogprobs>& position) {
  return position ? ToJson(*position) : Json(nullptr);
}

template <class Positions>
Json ToJson(const Positions& positions, bool wanted) {
  if (!wanted) return nullptr;
  Json json = Json::array();
  for (const auto& position : positions) json.push_back(ToJson(position));
  return json;
}

Json FinishReason(const v1::Choice& end) {
  if (end.finish_reason() == v1::FINISH_REASON_STOP) return "stop";
  if (end.finish_reason() == v1::FINISH_REASON_LENGTH) return "length";
  return nullptr;
}

Json StopReason(const v1::Choice& end) {
  switch (end.stop_reason_case()) {
    case v1::Choice::kStopString:
      return end.stop_string();
    case v1::Choice::kStopTokenId:
      return end.stop_token_id();
    default:
      return nullptr;
  }
}

Json ToJson(const Generation::Choice& choice, bool want_logprobs) {
  return {{"text", choice.text},
          {"token_ids", choice.token_ids},
          {"finish_reason", FinishReason(choice.end)},
          {"stop_reason", StopReason(choice.end)},
          {"logprobs", ToJson(choice.logprobs, want_logprobs)}};
}

double Seconds(Generation::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Generation::Generation(const v1::GenerateRequest& request, Clock::time_point start)
    : want_logprobs_(request.sampling().has_logprobs()),
      want_prompt_logprobs_(request.sampling().has_prompt_logprobs()),
      start_(start),
      last_(start),
      choices_(std::clamp(request.sampling().has_n() ? request.sampling().n() : 1, 1, 64)) {}

bool Generation::Finished(int choice) const {
  return choices_[choice].end.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
}

void Generation::Add(const v1::GenerateResponse& message, Clock::time_point now) {
  if (!message.request_id().empty()) request_id_ = message.request_id();
  if (!message.model().empty()) model_ = message.model();
  for (const int32_t id : message.prompt_token_ids()) prompt_token_ids_.push_back(id);
  const int begin = std::max(message.prompt_logprobs_begin(), 0);
  const size_t end = begin + static_cast<size_t>(message.prompt_logprobs_size());
  if (end > prompt_logprobs_.size() && message.prompt_logprobs_size() > 0) {
    prompt_logprobs_.resize(end);
  }
  for (int i = 0; i < message.prompt_logprobs_size(); ++i) {
    // Position 0 has nothing before it; a server that fills its place sends it empty.
    if (message.prompt_logprobs(i).has_chosen()) {
      prompt_logprobs_[begin + i] = message.prompt_logprobs(i);
    }
  }
  if (message.has_usage()) usage_ = message.usage();
  if (!message.has_choice()) return;

  const v1::Choice& delta = message.choice();
  if (delta.index() < 0 || delta.index() >= static_cast<int>(choices_.size())) return;
  Choice& choice = choices_[delta.index()];
  choice.text += delta.text();
  choice.token_ids.insert(choice.token_ids.end(), delta.token_ids().begin(),
                          delta.token_ids().end());
  choice.logprobs.insert(choice.logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
  if (delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) choice.end = delta;
  if (!first_) first_ = now;
  last_ = now;
}

Json Generation::ToJson() const {
  Json json = serval::ToJson(choices_[0], want_logprobs_);
  json["prompt_logprobs"] = serval::ToJson(prompt_logprobs_, want_prompt_logprobs_);
  json["prompt_token_ids"] = prompt_token_ids_;
  if (choices_.size() > 1) {
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Json choice = {{"index", i}};
      choice.update(serval::ToJson(choices_[i], want_logprobs_));
      json["choices"].push_back(std::move(choice));
    }
  }
  json["usage"] = {{"prompt_tokens", usage_.prompt_tokens()},
                   {"completion_tokens", usage_.completion_tokens()},
                   {"total_tokens", usage_.prompt_tokens() + usage_.completion_tokens()},
                   {"cached_tokens", usage_.cached_tokens()},
                   {"kv_bytes", usage_.kv_bytes()}};
  json["request_id"] = request_id_;
  json["model"] = model_;
  return json;
}

std::string Generation::Summary() const {
  const int tokens = usage_.completion_tokens();
  const double first = first_ ? Seconds(*first_ - start_) : 0;
  // The first token of each choice came with the prompt's work and says nothing of the decoding
  // speed.
  const int decoded = tokens - static_cast<int>(choices_.size());
  const double decoding = first_ ? Seconds(last_ - *first_) : 0;
  const double rate = decoded > 0 && decoding > 0 ? decoded / decoding : 0;
  char line[200];
  std::snprintf(line, sizeof line,
                "%d tokens, TTFT %.0f ms, %.1f tokens/s; %d of %d prompt tokens cached", tokens,
                first * 1e3, rate, usage_.cached_tokens(), usage_.prompt_tokens());
  return line;
}

}  // namespace serval
