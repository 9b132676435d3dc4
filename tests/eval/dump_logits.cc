// Teacher-forces token ids through a model, without the engine's loop, and writes the logits of
// every position: raw f32 [tokens, vocab] in host order. What exactness.py compares with the
// reference.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/make_banks.h"
#include "engine/memory/memory_plan.h"
#include "engine/model.h"
#include "kernels/paged/paged.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "models/load.h"
#include "tests/bench/bench_flags.h"

namespace serval::bench {
namespace {

constexpr char kUsage[] =
    "dump_logits --model FILE.gguf --ids IDS.txt --out LOGITS.f32 [--chunk 512] [--exact]\n"
    "  [--kv-dtype f32|f16|bf16] [--memory-plan default=paged] [--threads N]\n"
    "IDS.txt holds token ids, apart by white space. LOGITS.f32: raw float32 [tokens, vocab].\n";

template <class T>
T OrFail(absl::StatusOr<T> value) {
  if (!value.ok()) Flags::Fail(value.status().ToString());
  return *std::move(value);
}

DType KvDtype(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  Flags::Fail("--kv-dtype wants f32, f16 or bf16, not '" + name + "'");
}

std::vector<int32_t> ReadIds(const std::string& path, int64_t vocab) {
  std::ifstream file(path);
  if (!file) Flags::Fail(path + ": cannot be read");
  std::vector<int32_t> ids;
  for (int32_t id; file >> id;) {
    if (id < 0 || id >= vocab) Flags::Fail(path + ": id " + std::to_string(id) + " is not a token");
    ids.push_back(id);
  }
  if (!file.eof()) Flags::Fail(path + ": wants token ids apart by white space");
  if (ids.empty()) Flags::Fail(path + ": holds no token id");
  return ids;
}

// The bytes one sequence of the whole context takes, with a page to spare for each layer's
// rounding.
int64_t MemoryBytes(const std::vector<BankPlan>& plan, int64_t context) {
  int64_t bytes = 0;
  for (const BankPlan& bank : plan) bytes += bank.kind->bytes_for(bank.config, context);
  return bytes + bytes / 8;
}

// One model, its memories and one sequence.
class Forcer {
 public:
  Forcer(const Flags& flags, Model& model, int64_t context, int64_t chunk)
      : model_(model), pool_(static_cast<int>(flags.Int("--threads"))) {
    limits_.max_tokens = chunk;
    limits_.max_sequences = 1;
    limits_.max_logit_rows = std::min<int64_t>(chunk, 64);
    limits_.max_context = context + kPageTokens;
    const int layers = static_cast<int>(model.info().layers.size());
    auto plan = OrFail(ParseMemoryPlan(flags.Text("--memory-plan"), layers));
    auto grouped = GroupLayers(plan, model.info(), limits_, KvDtype(flags.Text("--kv-dtype")));
    const int64_t bytes = MemoryBytes(grouped, limits_.max_context);
    banks_ = OrFail(MakeBanks(std::move(grouped), bytes));
    holdings_.resize(banks_.banks.size());
    model.Bind(banks_.layers, limits_);
    int64_t scratch = 0;
    for (const auto& bank : banks_.banks) {
      scratch = std::max(scratch, bank->WorkspaceBytes(pool_.threads()));
    }
    workspace_ =
        std::make_unique<Workspace>(model.WorkspaceBytes(limits_, pool_.threads()) + scratch);
    ctx_.pool = &pool_;
    ctx_.workspace = workspace_.get();
    ctx_.exact = flags.On("--exact");
    logits_.resize(limits_.max_logit_rows * model.info().vocab);
  }

  // Runs the next tokens of the sequence and appends their logits to `out`.
  void Step(std::span<const int32_t> tokens, std::FILE* out) {
    const int64_t count = static_cast<int64_t>(tokens.size()), past = holdings_[0].tokens;
    for (size_t i = 0; i < holdings_.size(); ++i) {
      if (!banks_.banks[i]->Reserve(holdings_[i], count)) Flags::Fail("the memory is too small");
    }
    std::vector<int32_t> positions(count), rows(count);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(past));
    std::iota(rows.begin(), rows.end(), 0);
    const StepSequence sequence{holdings_, 0, static_cast<int32_t>(count), past};
    const StepBatch batch{tokens, positions, std::span(&sequence, 1)};
    for (const auto& bank : banks_.banks) bank->Begin(ctx_, batch);
    const TensorView hidden = model_.Forward(ctx_, batch);
    for (int64_t begin = 0; begin < count; begin += limits_.max_logit_rows) {
      WriteLogits(hidden,
                  std::span(rows).subspan(begin, std::min(limits_.max_logit_rows, count - begin)),
                  out);
    }
    for (size_t i = 0; i < holdings_.size(); ++i) {
      banks_.banks[i]->End(ctx_, batch);
      banks_.banks[i]->Commit(holdings_[i], count);
    }
  }

 private:
  void WriteLogits(TensorView hidden, std::span<int32_t> rows, std::FILE* out) {
    const int64_t count = static_cast<int64_t>(rows.size()), vocab = model_.info().vocab;
    const TensorView view(logits_.data(), DType::kF32, {count, vocab});
    model_.Logits(ctx_, hidden, TensorView(rows.data(), DType::kI32, {count}), view);
    const size_t wanted = count * vocab;
    if (std::fwrite(logits_.data(), sizeof(float), wanted, out) != wanted) {
      Flags::Fail("the logits could not be written: is the disk full?");
    }
  }

  Model& model_;
  ThreadPool pool_;
  std::unique_ptr<Workspace> workspace_;
  StepLimits limits_;
  Banks banks_;
  std::vector<Holding> holdings_;
  Ctx ctx_;
  std::vector<float> logits_;
};

int Main(int argc, char** argv) {
  const Flags flags(argc, argv,
                    {{"--model", ""},
                     {"--ids", ""},
                     {"--out", ""},
                     {"--chunk", "512"},
                     {"--exact", "false"},
                     {"--kv-dtype", "bf16"},
                     {"--threads", "0"},
                     {"--memory-plan", "default=paged"}},
                    kUsage);
  LoadOptions load;
  load.path = flags.Text("--model");
  load.threads = static_cast<int>(flags.Int("--threads"));
  const LoadedModel loaded = OrFail(LoadModel(load));
  const std::vector<int32_t> ids = ReadIds(flags.Text("--ids"), loaded.model->info().vocab);
  const int64_t count = static_cast<int64_t>(ids.size()),
                chunk = std::min<int64_t>(flags.Int("--chunk"), count);
  if (chunk < 1) Flags::Fail("--chunk wants at least 1 token");
  std::FILE* out = std::fopen(flags.Text("--out").c_str(), "wb");
  if (out == nullptr) Flags::Fail(flags.Text("--out") + ": cannot be written");
  Forcer forcer(flags, *loaded.model, count, chunk);
  for (int64_t begin = 0; begin < count; begin += chunk) {
    forcer.Step(std::span(ids).subspan(begin, std::min(chunk, count - begin)), out);
  }
  if (std::fclose(out) != 0) Flags::Fail("the logits could not be written: is the disk full?");
  return 0;
}

}  // namespace
}  // namespace serval::bench

int main(int argc, char** argv) { return serval::bench::Main(argc, argv); }
