// y = x W^T for up to three weights that read the same x, as one op: x is quantised once. Thread
// rule: as for any op.
#pragma once

#include <initializer_list>

#include "kernels/dispatch.h"
#include "kernels/gemm/matmul.h"

namespace serval {

enum class Store { kSet, kAdd };  // kAdd: y += x W^T, the residual

inline void Project(const Ctx& ctx, const TensorView& x, std::initializer_list<MatMul::Part> parts,
                    Store store = Store::kSet) {
  MatMul op;
  SERVAL_CHECK_LE(parts.size(), op.parts.size());
  op.x = x;
  op.count = 0;
  for (const MatMul::Part& part : parts) op.parts[op.count++] = part;
  op.accumulate = store == Store::kAdd;
  Run(ctx, op);
}

}  // namespace serval
