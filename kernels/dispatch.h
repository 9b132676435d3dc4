// The tree's only backend branch.
#pragma once

#include "kernels/core.h"

namespace serval {

template <class Op>
void Run(const Ctx& ctx, const Op& op) {
  Validate(op);
#ifdef SERVAL_WITH_CUDA
  if (ctx.device == Device::kCuda) return RunOnCuda(ctx, op);
#endif
  SERVAL_CHECK(ctx.device == Device::kCpu, "this build has no CUDA backend");
  RunOnCpu(ctx, op);
}

}  // namespace serval
