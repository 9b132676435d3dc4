#include "tests/support/fake_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_tokenizer.h"

namespace serval {
namespace {

using Clock = std::chrono::steady_clock;

TokenLogprob LogprobOf(int32_t token, int rank) {
  return {.token = token, .logprob = -0.5f * static_cast<float>(rank), .rank = rank};
}

std::vector<TokenLogprob> TopOf(int count) {
  std::vector<TokenLogprob> top;
  for (int i = 0; i < count; ++i) top.push_back(LogprobOf('a' + i, i + 1));
  return top;
}

absl::Status StatusOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kCancelled:
      return absl::CancelledError("the request was cancelled");
    case FinishReason::kDeadline:
      return absl::DeadlineExceededError("the request's deadline has passed");
    default:
      return absl::OkStatus();
  }
}

}  // namespace

std::function<int32_t(const Request&, int, int64_t)> Say(std::string text) {
  return [text = std::move(text)](const Request&, int, int64_t index) -> int32_t {
    return index < std::ssize(text) ? static_cast<unsigned char>(text[index]) : FakeTokenizer::kEnd;
  };
}

FakeEngine::FakeEngine(FakeEngineOptions options) : options_(std::move(options)) {
  info_.architecture = "fake";
  info_.vocab = FakeTokenizer::kVocab;
  info_.context = options_.engine.limits.max_context;
  info_.parameters = 1000;
  info_.weight_bytes = 4000;
  info_.layers = {{.q_heads = 4, .kv_heads = 2, .head_dim = 8}};
  info_.eos_tokens = {FakeTokenizer::kEnd};
  Publish();
  thread_ = std::thread([this] { Run(); });
}

FakeEngine::~FakeEngine() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

absl::Status FakeEngine::Check(const Request& request) const {
  const int64_t wanted = std::ssize(request.prompt) + request.sampling.max_tokens;
  const int64_t context = options_.engine.limits.max_context;
  if (wanted <= context) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(request.prompt.size(), " prompt tokens and max_tokens ",
                                            request.sampling.max_tokens,
                                            " are over the context of ", context));
}

absl::StatusOr<RequestHandle> FakeEngine::Submit(Request request) {
  if (absl::Status status = Check(request); !status.ok()) return status;
  MutexLock lock(&mutex_);
  if (draining_) return absl::UnavailableError("the engine is draining");
  const EngineOptions& limits = options_.engine;
  if (held_ >= limits.limits.max_sequences + limits.max_queued) {
    ++stats_.rejected["queue_full"];
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full (", limits.max_queued, " requests wait)"));
  }
  ++held_;
  last_ = request;
  last_.sink.reset();
  const size_t choices = request.sampling.n;
  inbox_.emplace(next_,
                 Active{.request = std::move(request), .finished = std::vector(choices, false)});
  changed_.NotifyAll();
  return next_++;
}

void FakeEngine::Cancel(RequestHandle handle, FinishReason reason, int choice) {
  MutexLock lock(&mutex_);
  cancellations_.push_back({handle, reason, choice});
  changed_.NotifyAll();
}

void FakeEngine::Drain(std::function<void()> idle) {
  MutexLock lock(&mutex_);
  draining_ = true;
  idle_.push_back(std::move(idle));
  changed_.NotifyAll();
}

EngineStats FakeEngine::Stats() const {
  MutexLock lock(&mutex_);
  return stats_;
}

int64_t FakeEngine::held() const {
  MutexLock lock(&mutex_);
  return held_;
}

void FakeEngine::Pause(bool paused) {
  MutexLock lock(&mutex_);
  paused_ = paused;
  changed_.NotifyAll();
}

Request FakeEngine::last_request() const {
  MutexLock lock(&mutex_);
  return last_;
}

void FakeEngine::Run() {
  while (true) {
    std::vector<Cancellation> cancellations;
    bool paused = false, stop = false;
    {
      MutexLock lock(&mutex_);
      const bool nothing =
          active_.empty() && inbox_.empty() && cancellations_.empty() && idle_.empty() && !stop_;
      const auto pause = nothing ? std::chrono::microseconds(50000) : options_.step;
      if (cancellations_.empty()) changed_.WaitUntil(&mutex_, Clock::now() + pause);
      active_.merge(inbox_);
      cancellations.swap(cancellations_);
      paused = paused_;
      stop = stop_;
    }
    ApplyCancellations(cancellations);
    const auto now = Clock::now();
    int64_t running = 0;
    for (auto& [handle, active] : active_) {
      if (active.request.deadline <= now) {
        EndAll(handle, FinishReason::kDeadline, StatusOf(FinishReason::kDeadline));
      } else if (stop) {
        EndAll(handle, FinishReason::kCancelled, StatusOf(FinishReason::kCancelled));
      } else if (running++ < options_.engine.limits.max_sequences && !paused) {
        Step(active);
      }
    }
    Retire();
    if (stop && active_.empty()) return;
  }
}

void FakeEngine::ApplyCancellations(const std::vector<Cancellation>& cancellations) {
  for (const Cancellation& cancel : cancellations) {
    const auto found = active_.find(cancel.handle);
    if (found == active_.end()) continue;
    if (cancel.choice < 0) {
      EndAll(cancel.handle, cancel.reason, StatusOf(cancel.reason));
    } else {
      FinishChoice(found->second, cancel.choice, cancel.reason);
    }
  }
}

void FakeEngine::EndAll(RequestHandle handle, FinishReason reason, const absl::Status& status) {
  Active& active = active_.at(handle);
  for (int i = 0; i < std::ssize(active.finished); ++i) FinishChoice(active, i, reason);
  if (active.request.sink == nullptr) return;
  active.request.sink->OnDone(status, {.prompt_tokens = std::ssize(active.request.prompt)});
  active.request.sink.reset();
}

void FakeEngine::FinishChoice(Active& active, int choice, FinishReason reason) {
  if (active.finished[choice]) return;
  active.finished[choice] = true;
  ++finished_[static_cast<size_t>(reason)];
  active.request.sink->OnFinish(choice, reason);
}

void FakeEngine::DeliverPrompt(Active& active) {
  const int wanted = active.request.sampling.prompt_logprobs;
  if (wanted < 0 || std::exchange(active.prompt_done, true)) return;
  const std::vector<int32_t>& prompt = active.request.prompt;
  constexpr int64_t kSlice = 4;
  for (int64_t first = 1; first < std::ssize(prompt); first += kSlice) {
    std::vector<SampleResult> rows;
    for (int64_t i = first; i < std::min(first + kSlice, std::ssize(prompt)); ++i) {
      rows.push_back({.chosen = LogprobOf(prompt[i], 1), .top = TopOf(wanted)});
    }
    active.request.sink->OnPromptLogprobs(first, rows);
  }
}

void FakeEngine::Step(Active& active) {
  const SamplingParams& sampling = active.request.sampling;
  DeliverPrompt(active);
  const int64_t index = active.generated++;
  for (int choice = 0; choice < sampling.n; ++choice) {
    if (active.finished[choice]) continue;
    const int32_t token = options_.script ? options_.script(active.request, choice, index)
                                          : static_cast<int32_t>('a' + index % 26);
    const std::vector<TokenLogprob> top = TopOf(std::max(0, sampling.logprobs));
    active.request.sink->OnToken({.choice = choice,
                                  .token = token,
                                  .has_logprob = sampling.logprobs >= 0,
                                  .logprob = LogprobOf(token, 1),
                                  .top = top});
    ++active.delivered;
    ++tokens_;
    const auto& stops = sampling.stop_token_ids;
    const bool stopped = (token == FakeTokenizer::kEnd && !sampling.ignore_eos) ||
                         std::find(stops.begin(), stops.end(), token) != stops.end();
    if (stopped) {
      FinishChoice(active, choice, FinishReason::kStop);
    } else if (active.generated >= sampling.max_tokens) {
      FinishChoice(active, choice, FinishReason::kLength);
    }
  }
}

void FakeEngine::Retire() {
  for (auto it = active_.begin(); it != active_.end();) {
    Active& active = it->second;
    const bool over = std::all_of(active.finished.begin(), active.finished.end(), std::identity());
    if (over && active.request.sink != nullptr) {
      active.request.sink->OnDone(absl::OkStatus(),
                                  {.prompt_tokens = std::ssize(active.request.prompt),
                                   .completion_tokens = active.delivered,
                                   .cached_tokens = 0,
                                   .kv_bytes = 64});
    }
    it = over ? active_.erase(it) : std::next(it);
  }
  Publish();
}

void FakeEngine::Publish() {
  std::vector<std::function<void()>> idle;
  {
    MutexLock lock(&mutex_);
    held_ = std::ssize(active_) + std::ssize(inbox_);
    const int64_t most = options_.engine.limits.max_sequences;
    stats_.num_requests_running = std::min<int64_t>(most, std::ssize(active_));
    stats_.num_requests_waiting = held_ - stats_.num_requests_running;
    stats_.finished = finished_;
    stats_.generation_tokens = tokens_;
    stats_.banks = {{.kind = "paged",
                     .used_bytes = 64 * std::ssize(active_),
                     .free_bytes = 1024 - 64 * std::ssize(active_),
                     .capacity_bytes = 1024}};
    ++stats_.steps;
    if (held_ == 0) idle.swap(idle_);
  }
  for (const auto& call : idle) call();
}

}  // namespace serval
