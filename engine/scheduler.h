// Decides what each step computes, from counts alone, and books what came of it.
//
// Waiting sequences stand in order of priority, then arrival. The first is admitted when a place is
// free and the memory holds all its tokens (found prefixes included) with a page to spare for every
// sequence running. A step has a budget of tokens: one for every running decode first; the rest is
// prefill, half of it for the longest admitted and the rest for the shortest remaining, so that
// neither a stream of long prompts nor one of short prompts starves anybody. When a decode finds no
// page, the last sequence in order gives everything back and waits; its tokens are kept and
// computed again. Thread rule: everything on the engine thread; sinks are called from Commit,
// Cancel, Expire and CancelAll.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/memory/bank.h"
#include "engine/metrics.h"
#include "engine/sequence.h"
#include "engine/step.h"

namespace serval {

struct SchedulerConfig {
  StepLimits limits;  // REQUIRES: max_tokens >= max_sequences
  bool prefix_caching = true;
  std::vector<int32_t> eos_tokens;
};

class Scheduler {
 public:
  Scheduler(SchedulerConfig config, std::vector<MemoryBank*> banks);

  void Add(std::unique_ptr<RequestState> request);
  // Ends a request, or one choice of it; nothing when it has ended already.
  void Cancel(RequestHandle handle, FinishReason reason, int choice, TimePoint now);
  void CancelAll(TimePoint now);
  // Ends every request whose deadline has passed.
  void Expire(TimePoint now);

  // The next step; empty only when nothing runs or waits. Valid until the next Plan. Commit must
  // follow before anything else.
  Step& Plan(TimePoint now);
  // The executor has filled step.results.
  void Commit(const Step& step, TimePoint now);

  bool idle() const { return requests_.empty(); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  // Fatal unless every bank has everything back. REQUIRES: idle().
  void CheckConservation() const;
  // Counters as they stand; the gauges are brought up to date by the call.
  const EngineStats& stats();

 private:
  // A sequence's part of the step being run.
  struct Member {
    Sequence* sequence;
    int64_t count;      // tokens
    int64_t first_row;  // in step.rows: prompt logprobs, then draws
    int64_t prompt_rows;
    int64_t draws;
  };

  // Plan
  void PlanDecodes();
  void Admit(TimePoint now);
  void DealPrefill();
  bool TakeRoom(Sequence& sequence);  // for all its tokens, cached ones included
  bool ReserveAll(Sequence& sequence, int64_t new_tokens);
  int64_t AdoptPrefix(Sequence& sequence);
  bool KeepsSpare() const;
  void Preempt(Sequence& sequence);
  void Append(Sequence& sequence, int64_t count);
  int64_t PlacesOf(const Sequence& sequence) const;

  // Commit
  void CommitMember(const Member& member, const Step& step, TimePoint now);
  void Publish(Sequence& sequence);
  void CountHeld(Sequence& sequence);
  bool AllFinite(const Member& member, const Step& step, TimePoint now);
  void Fork(Sequence& carrier);
  void TakeToken(Sequence& sequence, const SampleResult& result, TimePoint now);
  void BookTokenTimes(Sequence& sequence, TimePoint now);

  // Ends
  void EndRequest(RequestState& request, FinishReason reason, absl::Status status, TimePoint now);
  void EndChoice(Sequence& sequence, FinishReason reason, TimePoint now);
  void Done(RequestState& request, TimePoint now);

  // Places
  void Enqueue(Sequence& sequence);  // to the waiting
  void Start(Sequence& sequence);    // to the running
  void Detach(Sequence& sequence);   // from either, with nothing held
  void GiveBack(Sequence& sequence);

  const SchedulerConfig config_;
  const std::vector<MemoryBank*> banks_;
  std::unordered_map<RequestHandle, std::unique_ptr<RequestState>> requests_;
  std::set<Sequence*, RunsBeforeByPointer> waiting_;
  std::vector<Sequence*> running_;  // in order
  // Kept until the step that refers to them is over.
  std::vector<std::unique_ptr<RequestState>> ended_;
  TimePoint next_deadline_ = TimePoint::max();
  bool preempted_ = false;  // in the Plan under way

  Step step_;
  std::vector<Member> members_;
  std::vector<Sequence*> prefills_;
  EngineStats stats_;
};

}  // namespace serval
