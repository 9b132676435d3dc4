// serval-server: the composition root. Flags, log, ports; then the model; then serving until a
// signal says stop.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"
#include "models/load.h"
#include "server/flags.h"
#include "server/frontend.h"
#include "server/log.h"
#include "server/model_path.h"
#include "server/progress.h"

namespace serval {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// SIGTERM and SIGINT as a thing to wait for. The first one stops in order, or at once while nothing
// runs yet; the second one always at once. Thread rule: made before any other thread, which then
// inherit the blocked signals.
class StopSignal {
 public:
  StopSignal() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::thread([this] { Watch(); }).detach();  // lives as long as the process
  }

  // From now on the first signal stops in order.
  void BeginServing() { serving_ = true; }

  void Wait() {
    MutexLock lock(&mutex_);
    while (!come_) changed_.Wait(&mutex_);
  }

 private:
  void Watch() {
    int signal = 0;
    sigwait(&signals_, &signal);
    if (!serving_) {
      std::fprintf(stderr, "serval-server: stopped while loading\n");
      _exit(0);
    }
    {
      MutexLock lock(&mutex_);
      come_ = true;
    }
    changed_.NotifyAll();
    sigwait(&signals_, &signal);
    std::fprintf(stderr, "serval-server: second signal, stopping at once\n");
    _exit(128 + signal);
  }

  sigset_t signals_;
  std::atomic<bool> serving_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool come_ SERVAL_GUARDED_BY(mutex_) = false;
};

EngineOptions ToEngineOptions(const ServerOptions& options, const ModelInfo& info) {
  EngineOptions engine;
  engine.limits.max_tokens = options.max_num_batched_tokens;
  engine.limits.max_sequences = options.max_num_seqs;
  engine.limits.max_context = options.max_model_len == 0 ? info.context : options.max_model_len;
  engine.max_queued = options.max_num_queued_reqs;
  engine.kv_bytes = options.kv_bytes;
  engine.memory_plan = options.memory_plan;
  engine.kv_dtype = options.kv_dtype;
  engine.prefix_caching = options.prefix_caching;
  engine.threads = options.threads;
  engine.cpu_exact = options.cpu_exact;
  return engine;
}

absl::StatusOr<std::unique_ptr<const ServedModel>> Load(const ServerOptions& options) {
  const auto path = FindModelFile(options.model, ModelCacheDirectory());
  if (!path.ok()) return path.status();
  const std::string name = options.served_model_name.empty() ? DefaultServedName(options.model)
                                                             : options.served_model_name;
  ProgressBar bar(absl::StrCat("Loading ", name), stderr);
  auto loaded = LoadModel(
      {.path = *path, .threads = options.threads, .progress = [&bar](int64_t done, int64_t total) {
         bar.Update(done, total);
       }});
  if (!loaded.ok()) return loaded.status();
  bar.Done();
  const ModelInfo& info = loaded->model->info();
  if (options.max_model_len > info.context) {
    return absl::InvalidArgumentError(absl::StrCat("--max-model-len ", options.max_model_len,
                                                   ": the model's context is ", info.context,
                                                   "; allowed: 1 to ", info.context));
  }
  const EngineOptions engine_options = ToEngineOptions(options, info);
  auto engine = Engine::Create(std::move(loaded->model), engine_options);
  if (!engine.ok()) return engine.status();
  std::fprintf(stderr, "%s\n", (*engine)->PlanTable().c_str());
  return MakeServedModel(name, std::move(loaded->tokenizer), *std::move(engine),
                         std::move(loaded->chat_template));
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "serval-server: %s\n", std::string(status.message()).c_str());
  return code;
}

int Serve(const ServerOptions& options) {
  static StopSignal stop;  // its thread outlives this function
  StartLog(options.log_level, options.log_json);
  AdoptGrpcLog();
  auto frontend = Frontend::Start(options);
  if (!frontend.ok()) return Fail(frontend.status(), kFailed);
  auto model = Load(options);
  if (!model.ok()) return Fail(model.status(), kFailed);
  const std::string name = (*model)->name;
  stop.BeginServing();
  (*frontend)->Serve(*std::move(model));
  const int http_port = (*frontend)->http_port();
  std::fprintf(
      stderr, "ready: gRPC on %s, %s, model %s\n",
      HostPort(options.host, (*frontend)->grpc_port()).c_str(),
      http_port == 0 ? "HTTP off" : ("HTTP on " + HostPort(options.host, http_port)).c_str(),
      name.c_str());
  stop.Wait();
  Log(LogLevel::kInfo, absl::StrCat("shutting down; running requests have ",
                                    options.shutdown_timeout_s, " s to finish"));
  const bool finished = (*frontend)->Stop(std::chrono::seconds(options.shutdown_timeout_s));
  Log(LogLevel::kInfo,
      finished ? "stopped" : "stopped; requests that were still running were cancelled");
  return 0;
}

int Main(int argc, char** argv) {
  const std::vector<std::string_view> args(argv + 1, argv + argc);
  const auto options = ParseFlags(args, ProcessEnvironment());
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  if (options->version) {
    std::printf("serval-server %s\n", kServalVersion);
    return 0;
  }
  return Serve(*options);
}

}  // namespace
}  // namespace serval

int main(int argc, char** argv) { return serval::Main(argc, argv); }
