// One Generate call: checks the request, hands it to the engine, streams what comes back, one
// message at a time. While a message is on its way, tokens gather in the queue and leave together,
// so a slow client gets fewer, larger messages. Thread rule: gRPC calls Start, OnWriteDone,
// OnCancel and OnDone from its threads; Pump is the outbox's; Abort from any thread. Lifetime: gRPC
// holds the call (self_) until OnDone; a Pump that is still posted holds it, too.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/mutex.h"
#include "serval/v1/generation.grpc.pb.h"
#include "server/choice_stream.h"
#include "server/convert.h"
#include "server/server_state.h"
#include "server/token_queue.h"

namespace serval {

class GenerateRpc : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                    public OutboxTask,
                    public RunningCall,
                    public std::enable_shared_from_this<GenerateRpc> {
 public:
  static grpc::ServerWriteReactor<v1::GenerateResponse>* Start(ServerState* state,
                                                               grpc::CallbackServerContext* context,
                                                               const v1::GenerateRequest* message);

  void OnWriteDone(bool ok) override SERVAL_EXCLUDES(mutex_);
  void OnCancel() override;
  void OnDone() override;
  void Pump() override SERVAL_EXCLUDES(mutex_);
  void Abort(const absl::Status& status) override SERVAL_EXCLUDES(mutex_);

 private:
  GenerateRpc(ServerState* state, grpc::CallbackServerContext* context)
      : state_(state), context_(context) {}

  absl::Status Begin(const v1::GenerateRequest& message) SERVAL_EXCLUDES(mutex_);
  void Refuse(const absl::Status& status);
  absl::Status Submit(Request request) SERVAL_EXCLUDES(mutex_);
  bool DeadlineHasPassed() const;
  void CancelInEngine(FinishReason reason) SERVAL_EXCLUDES(mutex_);

  // The outbox's half: from the queue to messages.
  void Collect() SERVAL_EXCLUDES(mutex_);
  void CollectPromptLogprobs();
  void CollectEvents(RequestHandle handle);
  void AddDeltas();
  void Close() SERVAL_EXCLUDES(mutex_);
  void Send();
  bool MayWrite() SERVAL_EXCLUDES(mutex_);

  ServerState* const state_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<GenerateRpc> self_;
  const ServedModel* model_ = nullptr;
  OutputFormat format_;
  std::string id_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();

  // Outbox only, once submitted.
  std::shared_ptr<TokenQueue> queue_;
  TokenBatch batch_;
  std::vector<ChoiceStream> choices_;
  // What identifies the call: goes with the first message.
  std::optional<v1::GenerateResponse> header_;
  std::deque<v1::GenerateResponse> ready_;
  v1::GenerateResponse writing_message_;
  std::optional<grpc::Status> final_status_;
  std::string summary_;  // for the log
  bool over_ = false;    // the last word was given to gRPC

  Mutex mutex_;
  bool writing_ SERVAL_GUARDED_BY(mutex_) = false;
  bool client_gone_ SERVAL_GUARDED_BY(mutex_) = false;
  std::optional<RequestHandle> handle_ SERVAL_GUARDED_BY(mutex_);
  std::optional<FinishReason> cancel_
      SERVAL_GUARDED_BY(mutex_);  // asked for before there was a handle
  absl::Status abort_status_ SERVAL_GUARDED_BY(mutex_);
};

}  // namespace serval
