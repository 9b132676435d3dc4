// Rotary position embedding in place: pair p of a head turns by position * inv_freq[p], a product
// rounded to fp32: that is how models are trained and how Hugging Face runs them, and at position
// 4,000 the rounding already moves an angle by 1e-4. Its cosine and sine are accurate.
#pragma once

#include "kernels/core.h"

namespace serval {

// kInterleaved: pairs (2p, 2p + 1), as llama GGUF files are laid out. kHalves: pairs (p, p +
// rotary/2), as Hugging Face does.
enum class RopeLayout : uint8_t { kInterleaved, kHalves };

struct Rope {
  TensorView x;          // f32 [tokens, heads, head_dim], in place; the first 2 * pairs turn
  TensorView positions;  // i32 [tokens]
  TensorView inv_freq;   // f32 [pairs]
  RopeLayout layout = RopeLayout::kHalves;
  float scale = 1.0f;  // of the rotated part (yarn's attention factor)
};

void Validate(const Rope& op);
void RunOnCpu(const Ctx& ctx, const Rope& op);

}  // namespace serval
