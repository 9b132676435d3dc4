// The engine: one thread, three verbs (drain the inbox; Plan; Run; Commit), over one model and its
// memories. Thread rule: Submit, Cancel, Stats, Drain from any thread; TokenSinks are called on the
// engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/request.h"

namespace serval {

struct EngineOptions {
  StepLimits limits;
  int64_t max_queued = 1024;  // --max-num-queued-reqs: waiting requests beyond it are refused
  int64_t kv_bytes = 0;       // room for all memories; 0 = a share of the machine's free memory
  std::string memory_plan = "default=paged";
  DType kv_dtype = DType::kBF16;  // --kv-cache-dtype
  bool prefix_caching = true;
  int threads = 0;  // CPU workers, 0 = cores
  bool cpu_exact = false;
};

using RequestHandle = uint64_t;

class Engine {
 public:
  // Takes every byte it will ever use. Errors: INVALID_ARGUMENT (plan, sizes), RESOURCE_EXHAUSTED
  // (does not fit; says what would).
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::unique_ptr<Model> model,
                                                        EngineOptions options);
  virtual ~Engine() = default;  // stops the thread; requests still running end CANCELLED

  // Queues a request. Errors, with nothing queued: INVALID_ARGUMENT (sampling values, token ids out
  // of range, empty prompt), OUT_OF_RANGE (prompt + max_tokens over the context or over what the
  // memory can ever hold), RESOURCE_EXHAUSTED (queue full), UNAVAILABLE (draining).
  virtual absl::StatusOr<RequestHandle> Submit(Request request) = 0;
  // Ends a request, or one choice of it (choice >= 0), within one step; OnFinish and OnDone follow
  // unless it ended already. `reason` kStop: the server found a stop string; OnDone then is OK.
  virtual void Cancel(RequestHandle handle, FinishReason reason = FinishReason::kCancelled,
                      int choice = -1) = 0;
  // Refuses new requests from now on; calls `idle` (engine thread) once nothing runs or waits.
  virtual void Drain(std::function<void()> idle) = 0;

  virtual EngineStats Stats() const = 0;  // a consistent copy of the last step's
  virtual const ModelInfo& model_info() const = 0;
  virtual const EngineOptions& options() const = 0;
  virtual std::string PlanTable() const = 0;  // the bytes table printed at load
};

}  // namespace serval
