// An Engine without a model: tokens by a script, one for every choice of every running request a
// step, so that the server is tested apart from models and memories. It keeps the promises of
// engine.h that the server leans on: queue bound, deadlines, cancellation, draining. Thread rule:
// as Engine.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "kernels/mutex.h"

namespace serval {

struct FakeEngineOptions {
  EngineOptions engine;
  std::chrono::microseconds step{200};  // time between two tokens of a request
  // The token that choice `choice` of `request` gets at place `index`; default: "abc…z" over and
  // over.
  std::function<int32_t(const Request& request, int choice, int64_t index)> script;
};

// A script that says `text` byte by byte and then ends.
std::function<int32_t(const Request&, int, int64_t)> Say(std::string text);

class FakeEngine : public Engine {
 public:
  explicit FakeEngine(FakeEngineOptions options);
  ~FakeEngine() override;

  absl::StatusOr<RequestHandle> Submit(Request request) override SERVAL_EXCLUDES(mutex_);
  void Cancel(RequestHandle handle, FinishReason reason, int choice) override
      SERVAL_EXCLUDES(mutex_);
  void Drain(std::function<void()> idle) override SERVAL_EXCLUDES(mutex_);
  EngineStats Stats() const override SERVAL_EXCLUDES(mutex_);
  const ModelInfo& model_info() const override { return info_; }
  const EngineOptions& options() const override { return options_.engine; }
  std::string PlanTable() const override { return "memory  bytes\npaged   1024"; }

  // Requests running or waiting.
  int64_t held() const SERVAL_EXCLUDES(mutex_);
  // While paused no token comes; deadlines and cancellation go on.
  void Pause(bool paused) SERVAL_EXCLUDES(mutex_);
  // The last request submitted, without its sink.
  Request last_request() const SERVAL_EXCLUDES(mutex_);

 private:
  struct Active {
    Request request;
    std::vector<bool> finished;
    int64_t generated = 0;  // per choice
    int64_t delivered = 0;  // all choices
    bool prompt_done = false;
  };
  struct Cancellation {
    RequestHandle handle;
    FinishReason reason;
    int choice;
  };
  using Requests = std::map<RequestHandle, Active>;

  absl::Status Check(const Request& request) const;
  void Run();
  void ApplyCancellations(const std::vector<Cancellation>& cancellations);
  void EndAll(RequestHandle handle, FinishReason reason, const absl::Status& status);
  void Step(Active& active);
  void DeliverPrompt(Active& active);
  void FinishChoice(Active& active, int choice, FinishReason reason);
  void Retire();
  void Publish() SERVAL_EXCLUDES(mutex_);

  const FakeEngineOptions options_;
  ModelInfo info_;
  Requests active_;  // engine thread; ordered by arrival: the first max_sequences run
  std::array<uint64_t, 5> finished_{};  // engine thread
  uint64_t tokens_ = 0;                 // engine thread

  mutable Mutex mutex_;
  CondVar changed_;
  Requests inbox_ SERVAL_GUARDED_BY(mutex_);
  std::vector<Cancellation> cancellations_ SERVAL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> idle_ SERVAL_GUARDED_BY(mutex_);
  EngineStats stats_ SERVAL_GUARDED_BY(mutex_);
  Request last_ SERVAL_GUARDED_BY(mutex_);
  RequestHandle next_ SERVAL_GUARDED_BY(mutex_) = 1;
  int64_t held_ SERVAL_GUARDED_BY(mutex_) = 0;
  bool paused_ SERVAL_GUARDED_BY(mutex_) = false;
  bool draining_ SERVAL_GUARDED_BY(mutex_) = false;
  bool stop_ SERVAL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace serval
