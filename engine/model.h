// What the engine knows of a model: its shapes, and two functions. Implemented in models/ out of
// engine memories and kernels. Thread rule: Forward and Logits run on the engine thread, one call
// at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/memory/bank.h"
#include "engine/step.h"
#include "kernels/core.h"

namespace serval {

// One layer's attention, as its memory needs to know it.
struct AttentionShape {
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;  // sliding window, 0 = none
};

struct ModelInfo {
  std::string architecture;  // "llama"
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t context = 0;  // trained context length, tokens
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // as held in memory
  std::vector<AttentionShape> layers;
  std::vector<int32_t> eos_tokens;  // any of them ends a generation
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  // Once, before the first Forward: the memory of each layer, and room for steps up to `limits`.
  virtual void Bind(std::vector<LayerMemory> memories, const StepLimits& limits) = 0;
  // Workspace the ops of one step take at most, bytes.
  virtual int64_t WorkspaceBytes(const StepLimits& limits, int threads) const = 0;
  // Runs all layers; returns the last hidden states f32 [tokens, hidden], before the final norm,
  // valid until the next call.
  virtual TensorView Forward(const Ctx& ctx, const StepBatch& batch) = 0;
  // Final norm and output head of some rows of the last Forward. rows i32 [count] -> logits f32
  // [count, vocab].
  virtual void Logits(const Ctx& ctx, TensorView hidden, TensorView rows, TensorView logits) = 0;
};

}  // namespace serval
