// A request while the engine has it, and its choices: each choice is one Sequence. Until the prompt
// is computed, choice 0 alone (the carrier) is scheduled for all of them; then the others share its
// pages. Thread rule: the engine thread's once it is handed to the scheduler.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/memory/bank.h"
#include "engine/request.h"

namespace serval {

using TimePoint = std::chrono::steady_clock::time_point;

struct RequestState;

struct Sequence {
  enum class Place : uint8_t { kNowhere, kWaiting, kRunning };

  RequestState* request = nullptr;
  int choice = 0;
  uint64_t seed = 0;
  Place place = Place::kNowhere;
  bool finished = false;

  std::vector<int32_t> tokens;    // prompt, then what was drawn
  std::vector<Holding> holdings;  // one a bank
  int64_t computed = 0;           // tokens whose past is stored
  int64_t shared = 0;             // of them, in pages that belong to the carrier too
  int64_t held_bytes = 0;         // counted in the request's
  std::vector<BlockKey> keys;     // of the first full blocks of tokens
  int64_t published = 0;          // blocks made findable
  std::vector<int32_t> banned;    // ids that must not be drawn now
  int64_t chunk = 0;              // tokens dealt to it by the step being planned
  TimePoint last_token;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t remaining() const { return size() - computed; }
  int64_t prompt_size() const;
  std::span<const int32_t> output() const;
  // Room for all tokens it may yet draw, and their keys: drawing them allocates nothing.
  void ReserveTokens();
};

struct RequestState {
  RequestState(RequestHandle handle, Request request, TimePoint arrival, size_t banks);
  RequestState(const RequestState&) = delete;
  RequestState& operator=(const RequestState&) = delete;

  const RequestHandle handle;  // ascending: later is larger
  Request request;
  const TimePoint arrival;
  TimePoint first_scheduled{}, first_token{};
  std::vector<Sequence> choices;
  bool forked;                      // every choice stands on its own
  int live;                         // choices not finished
  int cancelled = 0;                // choices that ended kCancelled
  int64_t next_prompt_logprob = 1;  // position of the prompt token to report next
  int64_t held_bytes = 0;
  absl::Status status;  // what OnDone will say
  Usage usage;

  bool done() const { return live == 0; }
  bool prompt_logprobs_pending() const {
    return request.sampling.prompt_logprobs >= 0 &&
           next_prompt_logprob < static_cast<int64_t>(request.prompt.size());
  }
};

// Scheduling order: priority, then arrival, then choice.
bool RunsBefore(const Sequence& a, const Sequence& b);
struct RunsBeforeByPointer {
  bool operator()(const Sequence* a, const Sequence* b) const { return RunsBefore(*a, *b); }
};

// The seed of a choice: choice 0 has the request's own, so that n does not change it.
uint64_t ChoiceSeed(uint64_t seed, int choice);

// Fills sequence.banned: the model's eos tokens and the stop ids while output is shorter than
// min_tokens, and the last id of every bad word whose earlier ids were just drawn.
void UpdateBanned(Sequence& sequence, std::span<const int32_t> eos);

// Whether the sequence's last token ends it, and how.
bool EndsWithLastToken(const Sequence& sequence, std::span<const int32_t> eos,
                       FinishReason& reason);

// How a choice of this sequence's request is drawn after `sequence.tokens`.
SampleRow DrawRow(const Sequence& sequence);
// Reports the prompt token at `position`.
SampleRow PromptLogprobRow(const Sequence& sequence, int64_t position);

}  // namespace serval
