// y[t] = table[ids[t]] * scale; and Gather, the same over f32 rows.
#pragma once

#include "kernels/core.h"
#include "kernels/gemm/weight.h"

namespace serval {

struct Embed {
  TensorView ids;  // i32 [tokens], each in [0, vocab)
  Weight table;    // [vocab, hidden], either layout (a tied output head is packed)
  TensorView y;    // f32 [tokens, hidden], output
  float scale = 1.0f;
};

struct GatherRows {
  TensorView x;     // f32 [tokens, dim]
  TensorView rows;  // i32 [count], each in [0, tokens)
  TensorView y;     // f32 [count, dim], output
};

void Validate(const Embed& op);
void RunOnCpu(const Ctx& ctx, const Embed& op);
void Validate(const GatherRows& op);
void RunOnCpu(const Ctx& ctx, const GatherRows& op);

}  // namespace serval
