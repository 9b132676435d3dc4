// The decoder-only model: embedding, blocks, final norm and head. Any family of config.h, any
// memory a layer. Thread rule: as Model: Forward and Logits on the engine thread. Forward and
// Logits allocate nothing.
#pragma once

#include <vector>

#include "engine/model.h"
#include "kernels/mapping.h"
#include "models/block.h"
#include "models/config.h"
#include "models/weights.h"

namespace serval {

class Decoder : public Model {
 public:
  Decoder(ModelConfig config, ModelWeights weights, std::vector<int32_t> eos_tokens);

  const ModelInfo& info() const override { return info_; }
  void Bind(std::vector<LayerMemory> memories, const StepLimits& limits) override;
  int64_t WorkspaceBytes(const StepLimits& limits, int threads) const override;
  TensorView Forward(const Ctx& ctx, const StepBatch& batch) override;
  void Logits(const Ctx& ctx, TensorView hidden, TensorView rows, TensorView logits) override;

 private:
  void TakeBuffers();
  Activations ActivationsOf(const StepBatch& batch) const;

  ModelConfig config_;
  ModelWeights weights_;
  ModelInfo info_;
  std::vector<LayerMemory> memories_;
  StepLimits limits_;
  Mapping buffers_;
  Activations all_;      // views of limits_.max_tokens rows
  TensorView gathered_;  // f32 [max_logit_rows, hidden]
};

}  // namespace serval
