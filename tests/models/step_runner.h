// Steps through a model over plain memory, without an engine: some new tokens of each sequence,
// logits after every one. Thread rule: one owner.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/model.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "tests/models/plain_memory.h"

namespace serval {

class StepRunner {
 public:
  using Tokens = std::vector<int32_t>;
  using Rows = std::vector<std::vector<float>>;

  StepRunner(std::unique_ptr<Model> model, bool exact, int threads)
      : pool_(threads),
        model_(std::move(model)),
        workspace_(model_->WorkspaceBytes(kLimits, threads)) {
    ctx_.pool = &pool_;
    ctx_.workspace = &workspace_;
    ctx_.exact = exact;
    Forget();
  }

  const ModelInfo& info() const { return model_->info(); }

  // All sequences begin anew.
  void Forget() {
    const auto layers = static_cast<int>(info().layers.size());
    bank_ = std::make_unique<PlainMemory>(layers);
    pasts_.assign(kLimits.max_sequences, 0);
    std::vector<LayerMemory> memories;
    for (int i = 0; i < layers; ++i) memories.push_back({bank_.get(), i});
    model_->Bind(memories, kLimits);
  }

  // sequences[s] are the next tokens of sequence s; a row of logits for each, in order.
  Rows Step(const std::vector<Tokens>& sequences) {
    Tokens tokens, positions, rows;
    std::vector<StepSequence> parts;
    for (size_t s = 0; s < sequences.size(); ++s) {
      StepSequence part;
      part.token_begin = static_cast<int32_t>(tokens.size());
      part.token_count = static_cast<int32_t>(sequences[s].size());
      part.past = pasts_[s];
      parts.push_back(part);
      for (const int32_t token : sequences[s]) {
        rows.push_back(static_cast<int32_t>(tokens.size()));
        tokens.push_back(token);
        positions.push_back(pasts_[s]++);
      }
    }
    const StepBatch batch{tokens, positions, parts};
    bank_->Begin(ctx_, batch);
    const TensorView hidden = model_->Forward(ctx_, batch);
    bank_->End(ctx_, batch);
    const auto count = static_cast<int64_t>(tokens.size()), vocab = info().vocab;
    std::vector<float> logits(count * vocab);
    model_->Logits(ctx_, hidden, TensorView(rows.data(), DType::kI32, {count}),
                   TensorView(logits.data(), DType::kF32, {count, vocab}));
    Rows out;
    for (int64_t i = 0; i < count; ++i) {
      out.emplace_back(logits.begin() + i * vocab, logits.begin() + (i + 1) * vocab);
    }
    return out;
  }

 private:
  static constexpr StepLimits kLimits{.max_tokens = 48, .max_sequences = 4, .max_logit_rows = 48};

  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  Workspace workspace_;
  std::unique_ptr<PlainMemory> bank_;
  std::vector<int32_t> pasts_;
  Ctx ctx_;
};

}  // namespace serval
