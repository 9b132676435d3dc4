// What all calls share: the phase the server is in, the model once it is loaded, the calls that
// run, and the outbox. Thread rule: any thread. The model is set once and lives as long as the
// state; the state must outlive the calls.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mutex.h"
#include "server/admission.h"
#include "server/outbox.h"
#include "server/served_model.h"

namespace serval {

enum class Phase { kLoading, kServing, kDraining };
const char* Name(Phase phase);

// A call that runs, as far as shutting down needs to know it.
class RunningCall {
 public:
  virtual ~RunningCall() = default;
  virtual void Abort(
      const absl::Status& status) = 0;  // end it now, with this status; must not block
};

class ServerState {
 public:
  explicit ServerState(std::optional<uint64_t> seed);

  Phase phase() const { return phase_; }
  void Serve(std::unique_ptr<const ServedModel> model);  // kLoading -> kServing
  void Drain();                                          // -> kDraining

  // The model a request asks for by name (empty = the served one). Errors, which are counted:
  // UNAVAILABLE while loading or draining, NOT_FOUND for another name.
  absl::StatusOr<const ServedModel*> Find(const std::string& name);
  // nullptr while loading.
  const ServedModel* model() const { return model_.load(); }

  // Runs `work`, which reads a request of `message_bytes`: at once, or if it is long on a thread
  // where such requests wait for each other. On gRPC's few threads they would keep all others
  // waiting.
  void Read(size_t message_bytes, std::function<void()> work);

  void Enter(RunningCall* call) SERVAL_EXCLUDES(mutex_);
  void Leave(RunningCall* call) SERVAL_EXCLUDES(mutex_);
  // False when calls still run after `timeout`.
  bool WaitUntilIdle(std::chrono::milliseconds timeout) SERVAL_EXCLUDES(mutex_);
  void AbortAll(const absl::Status& status) SERVAL_EXCLUDES(mutex_);
  int64_t running_calls() const SERVAL_EXCLUDES(mutex_);

  // A seed for a request that gives none: random, or repeatable by --seed in the order of arrival.
  uint64_t NextSeed();
  Admission& admission() { return admission_; }
  Outbox& outbox() { return outbox_; }
  double uptime_seconds() const;

 private:
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::atomic<Phase> phase_ = Phase::kLoading;
  uint64_t seed_base_;
  std::atomic<uint64_t> seeds_given_ = 0;
  Admission admission_;
  mutable Mutex mutex_;
  CondVar left_;
  std::set<RunningCall*> calls_ SERVAL_GUARDED_BY(mutex_);
  Outbox outbox_;
  // After the outbox: the engine stops first, and its last words may still be posted.
  std::unique_ptr<const ServedModel> owned_model_;
  std::atomic<const ServedModel*> model_ = nullptr;
  Outbox long_requests_;  // last: its tasks use the model
};

}  // namespace serval
