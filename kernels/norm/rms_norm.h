// y = x / sqrt(mean(x^2) + eps) * weight, per row.
#pragma once

#include "kernels/core.h"

namespace serval {

struct RmsNorm {
  TensorView x;       // f32 [tokens, dim]
  TensorView weight;  // f32 [dim]
  TensorView y;       // f32 [tokens, dim], output; may be x
  float eps = 1e-5f;
};

void Validate(const RmsNorm& op);
void RunOnCpu(const Ctx& ctx, const RmsNorm& op);

}  // namespace serval
