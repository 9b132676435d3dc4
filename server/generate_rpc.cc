#include "server/generate_rpc.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/log.h"

namespace serval {
namespace {

// A message holds at most so many tokens or prompt positions: with 20 logprobs each it stays far
// below the 4 MiB that clients accept by default.
constexpr size_t kTokensPerMessage = 256;

std::string MakeRequestId() {
  thread_local std::mt19937_64 random{std::random_device()()};
  return absl::StrFormat("gen-%016x", random());
}

// A client's deadline in the clock of the engine; the farthest future when it has none.
std::chrono::steady_clock::time_point ToSteady(std::chrono::system_clock::time_point deadline) {
  using Steady = std::chrono::steady_clock;
  const auto left = deadline - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return Steady::time_point::max();
  return Steady::now() + std::chrono::duration_cast<Steady::duration>(left);
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateRpc::Start(
    ServerState* state, grpc::CallbackServerContext* context, const v1::GenerateRequest* message) {
  std::shared_ptr<GenerateRpc> rpc(new GenerateRpc(state, context));
  rpc->self_ = rpc;
  rpc->deadline_ = ToSteady(context->deadline());
  state->Enter(rpc.get());
  state->Read(message->ByteSizeLong(), [rpc, message] {
    if (const absl::Status status = rpc->Begin(*message); !status.ok()) rpc->Refuse(status);
  });
  return rpc.get();
}

absl::Status GenerateRpc::Begin(const v1::GenerateRequest& message) {
  {
    MutexLock lock(&mutex_);
    if (!abort_status_.ok()) return abort_status_;
    if (cancel_) return absl::CancelledError("the request was cancelled before it was read");
  }
  // What is no name is refused below, and kept out of the log.
  id_ = IsRequestId(message.request_id()) ? message.request_id() : MakeRequestId();
  const auto model = state_->Find(message.model());
  if (!model.ok()) return model.status();
  model_ = *model;
  auto parsed = ParseGenerate(message, *model_, state_->NextSeed());
  if (!parsed.ok()) {
    state_->admission().CountRejected("invalid");
    return parsed.status();
  }
  format_ = std::move(parsed->format);
  Request& request = parsed->request;
  request.id = id_;
  request.deadline = deadline_;
  for (int i = 0; i < request.sampling.n; ++i) choices_.emplace_back(i, &format_);

  v1::GenerateResponse& header = header_.emplace();
  header.set_request_id(id_);
  header.set_model(model_->name);
  if (format_.return_token_ids) {
    header.mutable_prompt_token_ids()->Add(request.prompt.begin(), request.prompt.end());
  }
  return Submit(std::move(request));
}

absl::Status GenerateRpc::Submit(Request request) {
  queue_ = std::make_shared<TokenQueue>([state = state_, weak = weak_from_this()] {
    if (auto rpc = weak.lock()) state->outbox().Post(std::move(rpc));
  });
  request.sink = queue_;
  const auto handle = model_->engine->Submit(std::move(request));
  if (!handle.ok()) {
    queue_.reset();
    return handle.status();
  }
  std::optional<FinishReason> cancel;
  {
    MutexLock lock(&mutex_);
    handle_ = *handle;
    cancel = cancel_;
  }
  if (cancel) model_->engine->Cancel(*handle, *cancel);
  // What came before the handle was known has been pumped in vain.
  state_->outbox().Post(shared_from_this());
  return absl::OkStatus();
}

void GenerateRpc::Refuse(const absl::Status& status) {
  if (absl::IsResourceExhausted(status) && model_ != nullptr) {
    const int64_t waiting = model_->engine->Stats().num_requests_waiting;
    const auto retry = state_->admission().RetryAfter(waiting);
    context_->AddTrailingMetadata("retry-after-ms", absl::StrCat(retry.count()));
  }
  Log(LogLevel::kInfo, absl::StrCat("refused: ", status.ToString()), id_);
  Finish(ToGrpc(status));
}

void GenerateRpc::CancelInEngine(FinishReason reason) {
  std::optional<RequestHandle> handle;
  {
    MutexLock lock(&mutex_);
    handle = handle_;
    if (!handle) cancel_ = reason;
  }
  if (handle) model_->engine->Cancel(*handle, reason);
}

void GenerateRpc::Abort(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (abort_status_.ok()) abort_status_ = status;
  }
  CancelInEngine(FinishReason::kCancelled);
}

void GenerateRpc::OnCancel() {
  {
    MutexLock lock(&mutex_);
    client_gone_ = true;
  }
  CancelInEngine(DeadlineHasPassed() ? FinishReason::kDeadline : FinishReason::kCancelled);
}

// gRPC cancels a call whose deadline has passed, too. The client is the first to see it: what it
// sends is rounded up, by one per cent at most.
bool GenerateRpc::DeadlineHasPassed() const {
  const auto left = deadline_ - std::chrono::steady_clock::now();
  return left <= std::chrono::milliseconds(10) + (deadline_ - started_) / 50;
}

void GenerateRpc::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) client_gone_ = true;
  }
  if (!ok) CancelInEngine(FinishReason::kCancelled);
  state_->outbox().Post(shared_from_this());
}

void GenerateRpc::OnDone() {
  if (!summary_.empty()) Log(LogLevel::kInfo, summary_, id_);
  state_->Leave(this);
  self_.reset();  // may delete this
}

bool GenerateRpc::MayWrite() {
  MutexLock lock(&mutex_);
  return handle_.has_value() && !writing_;
}

void GenerateRpc::Pump() {
  if (over_ || !MayWrite()) return;
  if (!final_status_) Collect();
  Send();
}

void GenerateRpc::Collect() {
  RequestHandle handle = 0;
  bool client_gone = false;
  {
    MutexLock lock(&mutex_);
    handle = *handle_;
    client_gone = client_gone_;
  }
  queue_->Take(batch_);
  if (!client_gone) {
    CollectPromptLogprobs();
    CollectEvents(handle);
  }
  if (batch_.done) Close();
}

void GenerateRpc::CollectPromptLogprobs() {
  std::vector<TokenLogprob> entries;
  for (size_t i = 0; i < batch_.prompt_rows.size(); ++i) {
    if (i % kTokensPerMessage == 0) {
      ready_.emplace_back().set_prompt_logprobs_begin(
          static_cast<int32_t>(batch_.prompt_begin + static_cast<int64_t>(i)));
    }
    const SampleResult& row = batch_.prompt_rows[i];
    entries.assign(1, row.chosen);
    entries.insert(entries.end(), row.top.begin(), row.top.end());
    FillLogprobs(*model_->tokenizer, entries, *ready_.back().add_prompt_logprobs());
  }
}

void GenerateRpc::CollectEvents(RequestHandle handle) {
  size_t in_message = 0;
  for (const TokenEvent& event : batch_.events) {
    ChoiceStream& choice = choices_.at(event.choice);
    if (event.finish) {
      choice.Finish(event.reason);
      continue;
    }
    std::span<const TokenLogprob> logprobs;
    if (event.logprobs_begin >= 0) {
      logprobs = std::span<const TokenLogprob>(batch_.logprobs)
                     .subspan(event.logprobs_begin, event.logprobs_count);
    }
    if (choice.Push(event.token, logprobs)) {
      model_->engine->Cancel(handle, FinishReason::kStop, event.choice);
    }
    if (++in_message % kTokensPerMessage == 0) AddDeltas();
  }
  AddDeltas();
}

void GenerateRpc::AddDeltas() {
  for (ChoiceStream& choice : choices_) {
    if (auto delta = choice.Take()) *ready_.emplace_back().mutable_choice() = *std::move(delta);
  }
}

// The engine is done: the last message, or the error.
void GenerateRpc::Close() {
  state_->admission().CountFinished();
  int64_t tokens = 0;
  for (const ChoiceStream& choice : choices_) tokens += choice.tokens();
  absl::Status status = batch_.status;
  if (!status.ok()) {
    MutexLock lock(&mutex_);
    if (!abort_status_.ok()) status = abort_status_;
  }
  final_status_ = ToGrpc(status);
  if (status.ok()) {
    v1::Usage& usage = *ready_.emplace_back().mutable_usage();
    usage.set_prompt_tokens(static_cast<int32_t>(batch_.usage.prompt_tokens));
    usage.set_completion_tokens(static_cast<int32_t>(tokens));
    usage.set_cached_tokens(static_cast<int32_t>(batch_.usage.cached_tokens));
    usage.set_kv_bytes(batch_.usage.kv_bytes);
  }
  const auto taken = std::chrono::steady_clock::now() - started_;
  summary_ = absl::StrFormat("%s: %d prompt tokens (%d cached), %d generated, %.3f s",
                             status.ok() ? "done" : status.ToString(), batch_.usage.prompt_tokens,
                             batch_.usage.cached_tokens, tokens,
                             std::chrono::duration<double>(taken).count());
}

void GenerateRpc::Send() {
  if (ready_.empty()) {
    if (!final_status_) return;
    over_ = true;
    Finish(*final_status_);
    return;
  }
  writing_message_ = std::move(ready_.front());
  ready_.pop_front();
  if (header_) writing_message_.MergeFrom(*std::exchange(header_, std::nullopt));
  if (ready_.empty() && final_status_ && final_status_->ok()) {
    over_ = true;
    StartWriteAndFinish(&writing_message_, grpc::WriteOptions(), *final_status_);
    return;
  }
  {
    MutexLock lock(&mutex_);
    writing_ = true;
  }
  StartWrite(&writing_message_);
}

}  // namespace serval
