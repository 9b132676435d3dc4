#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/memory/block_keys.h"
#include "kernels/check.h"

namespace serval {

Scheduler::Scheduler(SchedulerConfig config, std::vector<MemoryBank*> banks)
    : config_(std::move(config)), banks_(std::move(banks)) {
  const StepLimits& limits = config_.limits;
  SERVAL_CHECK_GE(limits.max_tokens, limits.max_sequences);
  const int64_t rows = limits.max_tokens + limits.max_sequences;
  step_.tokens.reserve(limits.max_tokens);
  step_.positions.reserve(limits.max_tokens);
  step_.sequences.reserve(limits.max_sequences);
  step_.rows.reserve(rows);
  step_.samples.reserve(rows);
  step_.results.resize(rows);
  members_.reserve(limits.max_sequences);
  running_.reserve(limits.max_sequences);
  prefills_.reserve(limits.max_sequences);
  for (const MemoryBank* bank : banks_) {
    stats_.banks.push_back({std::string(bank->kind()), 0, 0, bank->Capacity().value});
  }
}

void Scheduler::Add(std::unique_ptr<RequestState> request) {
  RequestState& added = *request;
  next_deadline_ = std::min(next_deadline_, added.request.deadline);
  requests_.emplace(added.handle, std::move(request));
  Enqueue(added.choices[0]);
}

Step& Scheduler::Plan(TimePoint now) {
  ended_.clear();
  step_.Clear();
  members_.clear();
  preempted_ = false;
  PlanDecodes();
  // Who was just pre-empted would take the pages back at once, and lose them again.
  if (!preempted_) Admit(now);
  DealPrefill();
  SERVAL_CHECK(idle() || !step_.empty(), "requests are alive but none can be computed");
  return step_;
}

void Scheduler::PlanDecodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.remaining() != 1) continue;
    // Victims come from the end, so none of them is in the step yet.
    bool room = ReserveAll(sequence, 1);
    while (!room) {
      Sequence& victim = *running_.back();
      Preempt(victim);
      if (&victim == &sequence) break;
      room = ReserveAll(sequence, 1);
    }
    if (room) Append(sequence, 1);
  }
}

void Scheduler::Admit(TimePoint now) {
  int64_t places = 0;
  for (const Sequence* sequence : running_) places += PlacesOf(*sequence);
  while (!waiting_.empty()) {
    Sequence& sequence = **waiting_.begin();
    places += PlacesOf(sequence);
    if (places > config_.limits.max_sequences || !TakeRoom(sequence)) return;
    waiting_.erase(waiting_.begin());
    Start(sequence);
    RequestState& request = *sequence.request;
    sequence.ReserveTokens();
    if (request.first_scheduled != TimePoint{}) continue;  // came back from pre-emption
    request.first_scheduled = now;
    stats_.request_queue_time.Observe(std::chrono::duration<double>(now - request.arrival).count());
    request.usage.cached_tokens = sequence.computed;
    if (config_.prefix_caching && request.request.sampling.prompt_logprobs < 0) {
      stats_.prefix_cache_queries += sequence.prompt_size();
      stats_.prefix_cache_hits += sequence.computed;
    }
  }
}

bool Scheduler::TakeRoom(Sequence& sequence) {
  const int64_t cached = AdoptPrefix(sequence);
  if (!ReserveAll(sequence, sequence.size() - cached) || !KeepsSpare()) {
    GiveBack(sequence);
    return false;
  }
  sequence.computed = cached;
  sequence.published = cached / kBlockTokens;
  return true;
}

int64_t Scheduler::AdoptPrefix(Sequence& sequence) {
  // A found token has no logits, so prompt logprobs compute everything.
  if (!config_.prefix_caching || sequence.request->prompt_logprobs_pending()) return 0;
  const int64_t blocks = ReusableBlocks(sequence.size());
  ExtendBlockKeys(sequence.tokens, sequence.request->request.cache_salt, blocks, sequence.keys);
  const auto keys = std::span<const BlockKey>(sequence.keys).first(blocks);
  int64_t cached = blocks * kBlockTokens;
  for (const MemoryBank* bank : banks_) cached = std::min(cached, bank->Match(keys));
  if (cached == 0) return 0;
  for (size_t b = 0; b < banks_.size(); ++b) banks_[b]->Adopt(sequence.holdings[b], keys, cached);
  return cached;
}

bool Scheduler::KeepsSpare() const {
  for (const MemoryBank* bank : banks_) {
    if (bank->Free().value < bank->Need(1).value * running()) return false;
  }
  return true;
}

bool Scheduler::ReserveAll(Sequence& sequence, int64_t new_tokens) {
  for (size_t b = 0; b < banks_.size(); ++b) {
    if (!banks_[b]->Reserve(sequence.holdings[b], new_tokens)) return false;
  }
  return true;
}

void Scheduler::DealPrefill() {
  int64_t budget = config_.limits.max_tokens - static_cast<int64_t>(step_.tokens.size());
  prefills_.clear();
  size_t next = 0;  // members_ holds the decodes, in the order of running_
  for (Sequence* sequence : running_) {
    if (next < members_.size() && members_[next].sequence == sequence) {
      ++next;
    } else {
      sequence->chunk = 0;
      prefills_.push_back(sequence);
    }
  }
  if (prefills_.empty()) return;
  const auto deal = [&](Sequence* sequence, int64_t most) {
    const int64_t count = std::min({sequence->remaining() - sequence->chunk, most, budget});
    sequence->chunk += count;
    budget -= count;
  };
  Sequence* oldest = prefills_.front();
  deal(oldest, (budget + 1) / 2);
  std::sort(prefills_.begin(), prefills_.end(), [](const Sequence* a, const Sequence* b) {
    return std::pair(a->remaining(), a->request->handle) <
           std::pair(b->remaining(), b->request->handle);
  });
  for (Sequence* sequence : prefills_) deal(sequence, budget);
  for (Sequence* sequence : prefills_) {
    if (sequence->chunk > 0) Append(*sequence, sequence->chunk);
  }
}

void Scheduler::Preempt(Sequence& sequence) {
  preempted_ = true;
  ++stats_.num_preemptions;
  Detach(sequence);
  Enqueue(sequence);
}

void Scheduler::Append(Sequence& sequence, int64_t count) {
  const int64_t begin = static_cast<int64_t>(step_.tokens.size());
  const int64_t first = sequence.computed;
  step_.sequences.push_back(
      {sequence.holdings, static_cast<int32_t>(begin), static_cast<int32_t>(count), first});
  for (int64_t p = first; p < first + count; ++p) {
    step_.tokens.push_back(sequence.tokens[p]);
    step_.positions.push_back(static_cast<int32_t>(p));
  }
  RequestState& request = *sequence.request;
  Member member{&sequence, count, static_cast<int64_t>(step_.rows.size()), 0, 0};
  if (request.prompt_logprobs_pending()) {
    const int64_t end = std::min(first + count, sequence.prompt_size() - 1);
    for (int64_t p = std::max(first, request.next_prompt_logprob - 1); p < end; ++p) {
      step_.rows.push_back(static_cast<int32_t>(begin + p - first));
      step_.samples.push_back(PromptLogprobRow(sequence, p + 1));
      ++member.prompt_rows;
    }
  }
  if (first + count == sequence.size()) {
    UpdateBanned(sequence, config_.eos_tokens);
    for (const Sequence& choice : request.choices) {
      if (choice.finished || (request.forked && &choice != &sequence)) continue;
      SampleRow row = DrawRow(sequence);
      row.seed = choice.seed;
      step_.rows.push_back(static_cast<int32_t>(begin + count - 1));
      step_.samples.push_back(row);
      ++member.draws;
    }
  }
  members_.push_back(member);
}

// A carrier stands for every choice that will leave it.
int64_t Scheduler::PlacesOf(const Sequence& sequence) const {
  return sequence.request->forked ? 1 : sequence.request->live;
}

void Scheduler::Enqueue(Sequence& sequence) {
  SERVAL_CHECK(sequence.place == Sequence::Place::kNowhere);
  sequence.place = Sequence::Place::kWaiting;
  waiting_.insert(&sequence);
}

void Scheduler::Start(Sequence& sequence) {
  sequence.place = Sequence::Place::kRunning;
  const auto at =
      std::lower_bound(running_.begin(), running_.end(), &sequence, RunsBeforeByPointer());
  running_.insert(at, &sequence);
}

void Scheduler::GiveBack(Sequence& sequence) {
  for (size_t b = 0; b < banks_.size(); ++b) banks_[b]->Release(sequence.holdings[b]);
  sequence.computed = sequence.published = sequence.shared = 0;
  sequence.request->held_bytes -= sequence.held_bytes;
  sequence.held_bytes = 0;
}

void Scheduler::CheckConservation() const {
  SERVAL_CHECK(idle() && waiting_.empty() && running_.empty());
  for (const MemoryBank* bank : banks_) bank->CheckConservation(true);
}

const EngineStats& Scheduler::stats() {
  stats_.num_requests_running = running();
  stats_.num_requests_waiting = waiting();
  int64_t used = 0, capacity = 0;
  for (size_t b = 0; b < banks_.size(); ++b) {
    BankStats& bank = stats_.banks[b];
    bank.used_bytes = banks_[b]->Used().value;
    bank.free_bytes = banks_[b]->Free().value;
    used += bank.used_bytes;
    capacity += bank.capacity_bytes;
  }
  stats_.kv_cache_usage_perc =
      capacity == 0 ? 0 : static_cast<double>(used) / static_cast<double>(capacity);
  return stats_;
}

}  // namespace serval
