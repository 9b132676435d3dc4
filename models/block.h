// One transformer layer: x += attention(norm(x)); x += feed_forward(norm(x)). What it remembers is
// its LayerMemory's business. Source: Touvron et al., LLaMA (2023), section 2.2. Thread rule: the
// step's.
#pragma once

#include "engine/memory/bank.h"
#include "kernels/core.h"
#include "models/config.h"
#include "models/weights.h"

namespace serval {

// The buffers a step's layers share, as views of its `tokens` rows; f32 unless said otherwise.
struct Activations {
  TensorView positions;  // i32 [tokens]
  TensorView x;          // [tokens, hidden], the residual stream
  TensorView normed;     // [tokens, hidden]
  TensorView q;          // [tokens, q_heads * head_dim]
  TensorView k, v;       // [tokens, kv_heads * head_dim]
  TensorView mixed;      // [tokens, q_heads * head_dim]
  TensorView gate, up;   // [tokens, feed_forward]
};

void RunBlock(const Ctx& ctx, const ModelConfig& config, const LayerWeights& weights,
              const LayerMemory& memory, const Activations& a);

}  // namespace serval
