// A tiny deterministic model whose logits depend on everything its memory holds: two attention
// layers over pseudo-random embeddings, so a wrong, missing or foreign past changes what comes
// next. Thread rule: Model's.
#pragma once

#include <chrono>
#include <vector>

#include "engine/model.h"

namespace serval {

struct FakeModelOptions {
  int layers = 2;
  int kv_heads = 2;
  int q_heads = 6;
  int head_dim = 8;
  int64_t vocab = 97;
  int64_t context = 1024;
  std::vector<int32_t> eos_tokens = {};
  int32_t poison = -1;                 // after this token the logits are NaN
  std::chrono::microseconds delay{0};  // of each Forward
};

class FakeModel final : public Model {
 public:
  explicit FakeModel(FakeModelOptions options = {});
  const ModelInfo& info() const override { return info_; }
  void Bind(std::vector<LayerMemory> memories, const StepLimits& limits) override;
  int64_t WorkspaceBytes(const StepLimits&, int) const override { return 0; }
  TensorView Forward(const Ctx& ctx, const StepBatch& batch) override;
  void Logits(const Ctx& ctx, TensorView hidden, TensorView rows, TensorView logits) override;

 private:
  const FakeModelOptions options_;
  ModelInfo info_;
  std::vector<LayerMemory> memories_;
  std::vector<float> hidden_, k_, v_, out_;
};

}  // namespace serval
