// y_i = x W_i^T (+ y_i): up to three weights over one input (fused q, k, v; gate, up), which is
// quantised once. Default on the CPU: activations to 16-bit integers per block of 32 with an fp32
// scale, two int8 dot products (high and low bytes), fp32 accumulation over blocks in order.
// ctx.exact: fp32 activations times dequantised weights. Each output depends on its own row of x
// alone and is summed in one fixed order: batch invariant.
#pragma once

#include <array>

#include "kernels/core.h"
#include "kernels/gemm/weight.h"

namespace serval {

struct MatMul {
  struct Part {
    Weight weight;  // [out_i, in]
    TensorView y;   // f32 [tokens, out_i], output
  };
  TensorView x;  // f32 [tokens, in]; a row stride other than `in` is fine
  std::array<Part, 3> parts;
  int count = 1;            // parts in use
  bool accumulate = false;  // y += instead of y =: the residual add
};

void Validate(const MatMul& op);
void RunOnCpu(const Ctx& ctx, const MatMul& op);
// Worst case for `tokens` rows of width `in` with `threads` workers.
int64_t MatMulWorkspaceBytes(int64_t tokens, int64_t in, int threads);

}  // namespace serval
