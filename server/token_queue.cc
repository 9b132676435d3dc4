#include "server/token_queue.h"

namespace serval {

void TokenBatch::Clear() {
  prompt_begin = 0;
  prompt_rows.clear();
  events.clear();
  logprobs.clear();
  done = false;
  status = absl::OkStatus();
  usage = {};
}

void TokenQueue::OnPromptLogprobs(int64_t first, std::span<const SampleResult> rows) {
  {
    MutexLock lock(&mutex_);
    if (batch_.prompt_rows.empty()) batch_.prompt_begin = first;
    batch_.prompt_rows.insert(batch_.prompt_rows.end(), rows.begin(), rows.end());
  }
  Wake();
}

void TokenQueue::OnToken(const TokenOutput& output) {
  {
    MutexLock lock(&mutex_);
    TokenEvent event{.choice = output.choice, .token = output.token};
    if (output.has_logprob) {
      event.logprobs_begin = static_cast<int32_t>(batch_.logprobs.size());
      event.logprobs_count = static_cast<int32_t>(1 + output.top.size());
      batch_.logprobs.push_back(output.logprob);
      batch_.logprobs.insert(batch_.logprobs.end(), output.top.begin(), output.top.end());
    }
    batch_.events.push_back(event);
  }
  Wake();
}

void TokenQueue::OnFinish(int choice, FinishReason reason) {
  {
    MutexLock lock(&mutex_);
    batch_.events.push_back({.choice = choice, .finish = true, .reason = reason});
  }
  Wake();
}

void TokenQueue::OnDone(const absl::Status& status, const Usage& usage) {
  {
    MutexLock lock(&mutex_);
    batch_.done = true;
    batch_.status = status;
    batch_.usage = usage;
  }
  Wake();
}

void TokenQueue::Take(TokenBatch& batch) {
  batch.Clear();
  MutexLock lock(&mutex_);
  std::swap(batch, batch_);
  woken_ = false;
}

void TokenQueue::Wake() {
  {
    MutexLock lock(&mutex_);
    if (woken_) return;
    woken_ = true;
  }
  wake_();
}

}  // namespace serval
