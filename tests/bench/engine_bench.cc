// The engine's speed without gRPC, in the terms of llama-bench and llama-batched-bench. Prints one
// JSON object.
//   prefill: tokens/s of one prompt of N random ids, submit to first token.
//   decode:  tokens/s of M tokens from a context of one token, one sequence.
//   batched: generated tokens/s while S sequences with prompts of P ids decode together.
//   mixed:   requests of mixed length, W at a time: output tokens/s over the whole run.
//   bandwidth: read bandwidth of this machine with the same threads: the ceiling of decode.
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "models/load.h"
#include "tests/bench/bandwidth.h"
#include "tests/bench/bench_flags.h"
#include "tests/bench/engine_client.h"
#include "tests/bench/workload.h"

namespace serval::bench {
namespace {

constexpr char kUsage[] =
    "engine_bench --model FILE.gguf [--threads N] [--tests prefill,decode,batched,mixed,bandwidth] "
    "[--reps R]\n"
    "  [--prefill 512] [--decode 128] [--streams 8] [--stream-prompt 128] [--stream-output 128]\n"
    "  [--width 64] [--requests 192] [--exact] [--step-tokens 512]\n"
    "Prints one JSON object: for every test a list of tokens per second, one a repetition.\n";

class Bench {
 public:
  Bench(const Flags& flags, Engine& engine)
      : flags_(flags), engine_(engine), vocab_(engine.model_info().vocab) {}

  double Prefill() {
    const std::vector<Job> jobs = Make(1, flags_.Int("--prefill"), 1);
    const RunResult run = Run(jobs, 1);
    const std::chrono::duration<double> took = run.jobs[0].tokens.front() - run.jobs[0].submitted;
    return static_cast<double>(jobs[0].prompt.size()) / took.count();
  }

  double Decode() {
    const std::vector<Job> jobs = Make(1, 1, flags_.Int("--decode"));
    const RunResult run = Run(jobs, 1);
    return static_cast<double>(run.tokens()) / run.seconds;
  }

  double Batched() {
    const int streams = static_cast<int>(flags_.Int("--streams"));
    // One token more than asked: the first of each stream belongs to its prefill.
    const std::vector<Job> jobs =
        Make(streams, flags_.Int("--stream-prompt"), flags_.Int("--stream-output") + 1);
    return Run(jobs, streams).SteadyTokensPerSecond();
  }

  double Mixed() {
    const std::vector<Job> jobs = MixedJobs(static_cast<int>(flags_.Int("--requests")), vocab_);
    const RunResult run = Run(jobs, static_cast<int>(flags_.Int("--width")));
    return static_cast<double>(run.tokens()) / run.seconds;
  }

 private:
  std::vector<Job> Make(int count, int64_t prompt, int64_t output) {
    std::vector<Job> jobs(count);
    for (Job& job : jobs) job = {RandomIds(prompt, vocab_, random_), output};
    return jobs;
  }

  RunResult Run(const std::vector<Job>& jobs, int width) {
    RunResult run = RunJobs(engine_, jobs, width);
    for (const JobResult& job : run.jobs) {
      if (!job.status.ok()) Flags::Fail("a request failed: " + job.status.ToString());
    }
    return run;
  }

  const Flags& flags_;
  Engine& engine_;
  const int64_t vocab_;
  std::mt19937_64 random_{1};
};

// Resident bytes of this process.
int64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

std::unique_ptr<Engine> Start(const Flags& flags) {
  LoadOptions load;
  load.path = flags.Text("--model");
  load.threads = static_cast<int>(flags.Int("--threads"));
  absl::StatusOr<LoadedModel> loaded = LoadModel(load);
  if (!loaded.ok()) Flags::Fail(loaded.status().ToString());
  EngineOptions options;
  options.threads = load.threads;
  options.cpu_exact = flags.On("--exact");
  options.limits.max_tokens = flags.Int("--step-tokens");
  options.prefix_caching = false;  // every prompt is computed
  auto engine = Engine::Create(std::move(loaded->model), options);
  if (!engine.ok()) Flags::Fail(engine.status().ToString());
  return *std::move(engine);
}

int Main(int argc, char** argv) {
  const Flags flags(argc, argv,
                    {{"--model", ""},
                     {"--threads", "0"},
                     {"--reps", "1"},
                     {"--tests", "prefill,decode,batched,mixed,bandwidth"},
                     {"--prefill", "512"},
                     {"--decode", "128"},
                     {"--streams", "8"},
                     {"--stream-prompt", "128"},
                     {"--stream-output", "128"},
                     {"--width", "64"},
                     {"--requests", "192"},
                     {"--exact", "false"},
                     {"--step-tokens", "512"}},
                    kUsage);
  if (flags.Text("--model").empty()) Flags::Fail("--model FILE.gguf is missing");
  const std::string tests = "," + flags.Text("--tests") + ",";
  const auto wanted = [&](const std::string& name) {
    return tests.find("," + name + ",") != std::string::npos;
  };
  const std::unique_ptr<Engine> engine = Start(flags);
  Bench bench(flags, *engine);
  nlohmann::json out;
  out["weight_bytes"] = engine->model_info().weight_bytes;
  out["threads"] = flags.Int("--threads");
  const std::pair<const char*, double (Bench::*)()> table[] = {{"prefill", &Bench::Prefill},
                                                               {"decode", &Bench::Decode},
                                                               {"batched", &Bench::Batched},
                                                               {"mixed", &Bench::Mixed}};
  for (const auto& [name, run] : table) {
    if (!wanted(name)) continue;
    if (name != std::string("mixed")) (bench.*run)();  // warm-up, as llama-bench does
    for (long i = 0; i < flags.Int("--reps"); ++i) out[name].push_back((bench.*run)());
  }
  out["resident_bytes"] = ResidentBytes();
  if (wanted("bandwidth")) {
    const long threads = flags.Int("--threads");
    out["bandwidth"] =
        MeasureReadBandwidth(threads > 0 ? static_cast<int>(threads)
                                         : static_cast<int>(std::thread::hardware_concurrency()));
  }
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace serval::bench

int main(int argc, char** argv) { return serval::bench::Main(argc, argv); }
