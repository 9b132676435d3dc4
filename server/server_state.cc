#include "server/server_state.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace serval {
namespace {

// splitmix64: neighbouring inputs give unrelated outputs. Source: Steele et al. 2014.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Of a name that a client made up: a status that does not fit gRPC's metadata would be lost.
constexpr size_t kMaxShownName = 256;

// Tokenizing so much takes milliseconds.
constexpr size_t kLongRequest = 64 << 10;

class Reading : public OutboxTask {
 public:
  explicit Reading(std::function<void()> work) : work_(std::move(work)) {}
  void Pump() override { work_(); }

 private:
  std::function<void()> work_;
};

uint64_t RandomSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kLoading:
      return "loading";
    case Phase::kServing:
      return "serving";
    case Phase::kDraining:
      return "draining";
  }
  return "unknown";
}

ServerState::ServerState(std::optional<uint64_t> seed) : seed_base_(seed ? *seed : RandomSeed()) {}

void ServerState::Serve(std::unique_ptr<const ServedModel> model) {
  SERVAL_CHECK(owned_model_ == nullptr, "a model is served already");
  owned_model_ = std::move(model);
  model_ = owned_model_.get();
  Phase expected = Phase::kLoading;
  phase_.compare_exchange_strong(expected, Phase::kServing);
}

void ServerState::Drain() { phase_ = Phase::kDraining; }

absl::StatusOr<const ServedModel*> ServerState::Find(const std::string& name) {
  const Phase phase = phase_;
  if (phase != Phase::kServing) {
    admission_.CountRejected(Name(phase));
    return absl::UnavailableError(phase == Phase::kLoading
                                      ? "the model is still loading; try again in a moment"
                                      : "the server is shutting down; ask another one");
  }
  const ServedModel* model = model_;
  if (!name.empty() && name != model->name) {
    admission_.CountRejected("unknown_model");
    return absl::NotFoundError(absl::StrCat("model '", name.substr(0, kMaxShownName),
                                            "' is not served here; this server serves '",
                                            model->name, "'"));
  }
  return model;
}

void ServerState::Read(size_t message_bytes, std::function<void()> work) {
  if (message_bytes <= kLongRequest) return work();
  long_requests_.Post(std::make_shared<Reading>(std::move(work)));
}

void ServerState::Enter(RunningCall* call) {
  MutexLock lock(&mutex_);
  calls_.insert(call);
}

void ServerState::Leave(RunningCall* call) {
  MutexLock lock(&mutex_);
  calls_.erase(call);
  left_.NotifyAll();
}

bool ServerState::WaitUntilIdle(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&mutex_);
  while (!calls_.empty()) {
    if (!left_.WaitUntil(&mutex_, deadline) && !calls_.empty()) return false;
  }
  return true;
}

void ServerState::AbortAll(const absl::Status& status) {
  MutexLock lock(&mutex_);
  for (RunningCall* call : calls_) call->Abort(status);
}

int64_t ServerState::running_calls() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(calls_.size());
}

uint64_t ServerState::NextSeed() { return Mix(seed_base_ + seeds_given_++); }

double ServerState::uptime_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

}  // namespace serval
