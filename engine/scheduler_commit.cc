// The second half of a step: booking what was computed, handing tokens out, ending what has ended.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/memory/block_keys.h"
#include "engine/scheduler.h"
#include "kernels/check.h"

namespace serval {
namespace {

double Seconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

// What OnDone says of a request that ended early.
absl::Status StatusOf(const RequestState& request, FinishReason reason) {
  if (reason == FinishReason::kStop) return absl::OkStatus();
  if (reason != FinishReason::kDeadline) return absl::CancelledError("the request was cancelled");
  if (request.first_scheduled == TimePoint{}) {
    return absl::DeadlineExceededError("the deadline passed while waiting");
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "the deadline passed after ", request.usage.completion_tokens, " generated tokens"));
}

}  // namespace

void Scheduler::Commit(const Step& step, TimePoint now) {
  ++stats_.steps;
  stats_.iteration_tokens.Observe(static_cast<double>(step.tokens.size()));
  for (const Member& member : members_) CommitMember(member, step, now);
  members_.clear();
  ended_.clear();
}

void Scheduler::CommitMember(const Member& member, const Step& step, TimePoint now) {
  Sequence& sequence = *member.sequence;
  RequestState& request = *sequence.request;
  if (request.done()) return;  // failed with another of its choices in this step
  for (size_t b = 0; b < banks_.size(); ++b) {
    banks_[b]->Commit(sequence.holdings[b], member.count);
  }
  sequence.computed += member.count;
  CountHeld(sequence);
  if (!AllFinite(member, step, now)) return;
  Publish(sequence);
  const auto results = std::span<const SampleResult>(step.results)
                           .subspan(member.first_row, member.prompt_rows + member.draws);
  if (member.prompt_rows > 0) {
    const int64_t first = request.next_prompt_logprob;
    request.next_prompt_logprob += member.prompt_rows;
    request.request.sink->OnPromptLogprobs(first, results.first(member.prompt_rows));
  }
  if (member.draws == 0) return;
  if (request.forked) {
    TakeToken(sequence, results.back(), now);
    return;
  }
  Fork(sequence);
  const SampleResult* result = results.data() + member.prompt_rows;
  for (Sequence& choice : request.choices) {
    if (!choice.finished) TakeToken(choice, *result++, now);
  }
}

bool Scheduler::AllFinite(const Member& member, const Step& step, TimePoint now) {
  for (int64_t row = member.first_row; row < member.first_row + member.prompt_rows + member.draws;
       ++row) {
    if (step.results[row].finite) continue;
    EndRequest(*member.sequence->request, FinishReason::kError,
               absl::InternalError(absl::StrCat("the model's logits for position ",
                                                step.samples[row].position, " are not finite")),
               now);
    return false;
  }
  return true;
}

void Scheduler::Publish(Sequence& sequence) {
  const int64_t blocks = sequence.computed / kBlockTokens;
  if (!config_.prefix_caching || blocks <= sequence.published) return;
  ExtendBlockKeys(sequence.tokens, sequence.request->request.cache_salt, blocks, sequence.keys);
  const auto keys = std::span<const BlockKey>(sequence.keys).first(blocks);
  for (size_t b = 0; b < banks_.size(); ++b) banks_[b]->Publish(sequence.holdings[b], keys);
  sequence.published = blocks;
}

void Scheduler::CountHeld(Sequence& sequence) {
  int64_t bytes = 0;
  for (size_t b = 0; b < banks_.size(); ++b) {
    bytes += banks_[b]->Need(sequence.holdings[b].reserved).value -
             banks_[b]->Need(sequence.shared).value;
  }
  RequestState& request = *sequence.request;
  request.held_bytes += bytes - sequence.held_bytes;
  sequence.held_bytes = bytes;
  request.usage.kv_bytes = std::max(request.usage.kv_bytes, request.held_bytes);
}

void Scheduler::Fork(Sequence& carrier) {
  RequestState& request = *carrier.request;
  request.forked = true;
  for (Sequence& choice : request.choices) {
    if (&choice == &carrier || choice.finished) continue;
    choice.ReserveTokens();
    choice.tokens = carrier.tokens;
    bool room = true;
    for (size_t b = 0; b < banks_.size() && room; ++b) {
      Holding shared = banks_[b]->Share(carrier.holdings[b], carrier.computed);
      room = shared.reserved >= 0;
      if (room) choice.holdings[b] = std::move(shared);
    }
    if (!room) {  // it computes the prompt by itself, when there is room
      GiveBack(choice);
      Enqueue(choice);
      continue;
    }
    choice.computed = carrier.computed;
    choice.keys = carrier.keys;
    choice.published = carrier.published;
    choice.shared = carrier.computed / kBlockTokens * kBlockTokens;
    Start(choice);
    CountHeld(choice);
  }
  if (carrier.finished) Detach(carrier);
}

void Scheduler::TakeToken(Sequence& sequence, const SampleResult& result, TimePoint now) {
  RequestState& request = *sequence.request;
  sequence.tokens.push_back(result.chosen.token);
  ++request.usage.completion_tokens;
  ++stats_.generation_tokens;
  BookTokenTimes(sequence, now);
  TokenOutput output;
  output.choice = sequence.choice;
  output.token = result.chosen.token;
  if (request.request.sampling.logprobs >= 0) {
    output.has_logprob = true;
    output.logprob = result.chosen;
    output.top = result.top;
  }
  request.request.sink->OnToken(output);
  FinishReason reason;
  if (EndsWithLastToken(sequence, config_.eos_tokens, reason)) EndChoice(sequence, reason, now);
}

void Scheduler::BookTokenTimes(Sequence& sequence, TimePoint now) {
  RequestState& request = *sequence.request;
  if (request.first_token == TimePoint{}) {
    request.first_token = now;
    stats_.prompt_tokens += sequence.prompt_size();
    stats_.time_to_first_token.Observe(Seconds(request.arrival, now));
    stats_.request_prefill_time.Observe(Seconds(request.first_scheduled, now));
  }
  if (sequence.output().size() > 1) {
    stats_.inter_token_latency.Observe(Seconds(sequence.last_token, now));
  }
  sequence.last_token = now;
}

void Scheduler::Cancel(RequestHandle handle, FinishReason reason, int choice, TimePoint now) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;
  RequestState& request = *found->second;
  if (choice < 0) {
    EndRequest(request, reason, StatusOf(request, reason), now);
  } else if (choice < static_cast<int>(request.choices.size()) &&
             !request.choices[choice].finished) {
    EndChoice(request.choices[choice], reason, now);
  }
}

void Scheduler::CancelAll(TimePoint now) {
  while (!requests_.empty()) {
    EndRequest(*requests_.begin()->second, FinishReason::kCancelled,
               absl::CancelledError("the engine is shutting down"), now);
  }
}

void Scheduler::Expire(TimePoint now) {
  if (now < next_deadline_) return;
  std::vector<RequestState*> late;
  next_deadline_ = TimePoint::max();
  for (const auto& [handle, request] : requests_) {
    if (request->request.deadline <= now) {
      late.push_back(request.get());
    } else {
      next_deadline_ = std::min(next_deadline_, request->request.deadline);
    }
  }
  for (RequestState* request : late) {
    EndRequest(*request, FinishReason::kDeadline, StatusOf(*request, FinishReason::kDeadline), now);
  }
}

void Scheduler::EndRequest(RequestState& request, FinishReason reason, absl::Status status,
                           TimePoint now) {
  request.status = std::move(status);
  for (Sequence& choice : request.choices) {
    if (!choice.finished) EndChoice(choice, reason, now);
  }
}

void Scheduler::EndChoice(Sequence& sequence, FinishReason reason, TimePoint now) {
  RequestState& request = *sequence.request;
  sequence.finished = true;
  --request.live;
  request.cancelled += reason == FinishReason::kCancelled;
  ++stats_.finished[static_cast<size_t>(reason)];
  request.request.sink->OnFinish(sequence.choice, reason);
  // A carrier goes on for the choices that have not left it yet.
  if (request.forked || request.done()) Detach(sequence);
  if (request.done()) Done(request, now);
}

void Scheduler::Done(RequestState& request, TimePoint now) {
  Detach(request.choices[0]);  // a carrier whose own choice ended earlier
  if (request.status.ok() && request.cancelled == static_cast<int>(request.choices.size())) {
    request.status = absl::CancelledError("the request was cancelled");
  }
  stats_.e2e_request_latency.Observe(Seconds(request.arrival, now));
  if (request.first_token != TimePoint{}) {
    stats_.request_decode_time.Observe(Seconds(request.first_token, now));
  }
  request.request.sink->OnDone(request.status, request.usage);
  request.request.sink.reset();
  const auto found = requests_.find(request.handle);
  ended_.push_back(std::move(found->second));
  requests_.erase(found);
}

void Scheduler::Detach(Sequence& sequence) {
  switch (sequence.place) {
    case Sequence::Place::kNowhere:
      return;
    case Sequence::Place::kWaiting:
      waiting_.erase(&sequence);
      break;
    case Sequence::Place::kRunning:
      running_.erase(
          std::lower_bound(running_.begin(), running_.end(), &sequence, RunsBeforeByPointer()));
      break;
  }
  sequence.place = Sequence::Place::kNowhere;
  GiveBack(sequence);
}

}  // namespace serval
