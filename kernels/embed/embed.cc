#include "kernels/embed/embed.h"

#include <cstring>

#include "kernels/rows.h"

namespace serval {

void Validate(const Embed& op) {
  SERVAL_CHECK_EQ(op.ids.rank, 1);
  const int64_t tokens = op.ids.dim(0);
  CheckShape("Embed.ids", op.ids, DType::kI32, {tokens});
  CheckShape("Embed.y", op.y, DType::kF32, {tokens, op.table.in});
  SERVAL_CHECK_EQ(op.ids.stride[0], 1);
  SERVAL_CHECK_EQ(op.y.stride[1], 1);
}

void RunOnCpu(const Ctx& ctx, const Embed& op) {
  const auto* ids = op.ids.as<int32_t>();
  constexpr int64_t kElementWork = 2;  // a conversion and a store
  ForRows(ctx, op.y.dim(0), op.table.in * kElementWork, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* y = op.y.row<float>(token);
      DequantiseRow(op.table, ids[token], y);  // checks the id
      if (op.scale == 1.0f) continue;
      for (int64_t i = 0; i < op.table.in; ++i) y[i] *= op.scale;
    }
  });
}

void Validate(const GatherRows& op) {
  SERVAL_CHECK_EQ(op.x.rank, 2);
  SERVAL_CHECK_EQ(op.rows.rank, 1);
  const int64_t dim = op.x.dim(1);
  const int64_t count = op.rows.dim(0);
  CheckShape("GatherRows.x", op.x, DType::kF32, {op.x.dim(0), dim});
  CheckShape("GatherRows.rows", op.rows, DType::kI32, {count});
  CheckShape("GatherRows.y", op.y, DType::kF32, {count, dim});
  SERVAL_CHECK_EQ(op.x.stride[1], 1);
  SERVAL_CHECK_EQ(op.rows.stride[0], 1);
  SERVAL_CHECK_EQ(op.y.stride[1], 1);
}

void RunOnCpu(const Ctx& ctx, const GatherRows& op) {
  const auto* rows = op.rows.as<int32_t>();
  ForRows(ctx, op.y.dim(0), op.y.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      SERVAL_CHECK_GE(rows[i], 0);
      SERVAL_CHECK_LT(rows[i], op.x.dim(0));
      std::memcpy(op.y.row<float>(i), op.x.row<float>(rows[i]), op.x.dim(1) * sizeof(float));
    }
  });
}

}  // namespace serval
