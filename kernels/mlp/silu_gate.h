// y = silu(gate) * up, elementwise.
#pragma once

#include "kernels/core.h"

namespace serval {

struct SiluGate {
  TensorView gate;  // f32 [tokens, width]
  TensorView up;    // f32 [tokens, width]
  TensorView y;     // f32 [tokens, width], output; may be gate
};

void Validate(const SiluGate& op);
void RunOnCpu(const Ctx& ctx, const SiluGate& op);

}  // namespace serval
