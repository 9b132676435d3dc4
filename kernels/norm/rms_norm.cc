#include "kernels/norm/rms_norm.h"

#include <cmath>

#include "kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/rms_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four chains hide the latency of the multiply-add; the order of the sum depends on dim alone.
float SumOfSquares(const float* x, int64_t dim) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * n <= dim; i += 4 * n) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + n);
    const auto x2 = hn::LoadU(d, x + i + 2 * n), x3 = hn::LoadU(d, x + i + 3 * n);
    a = hn::MulAdd(x0, x0, a);
    b = hn::MulAdd(x1, x1, b);
    c = hn::MulAdd(x2, x2, c);
    e = hn::MulAdd(x3, x3, e);
  }
  for (; i + n <= dim; i += n) {
    const auto x0 = hn::LoadU(d, x + i);
    a = hn::MulAdd(x0, x0, a);
  }
  float tail = 0;
  for (; i < dim; ++i) tail += x[i] * x[i];
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e)))) + tail;
}

void NormRow(const float* x, const float* weight, int64_t dim, float eps, float* y) {
  const float inverse = 1.0f / std::sqrt(SumOfSquares(x, dim) / static_cast<float>(dim) + eps);
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  const auto scale = hn::Set(d, inverse);
  int64_t i = 0;
  for (; i + n <= dim; i += n) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), scale);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < dim; ++i) y[i] = x[i] * inverse * weight[i];
}

void NormRows(const RmsNorm& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    NormRow(op.x.row<float>(t), op.weight.as<float>(), op.x.dim(1), op.eps, op.y.row<float>(t));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(NormRows);

void Validate(const RmsNorm& op) {
  SERVAL_CHECK_EQ(op.x.rank, 2);
  const int64_t tokens = op.x.dim(0), dim = op.x.dim(1);
  CheckShape("RmsNorm.x", op.x, DType::kF32, {tokens, dim});
  CheckShape("RmsNorm.y", op.y, DType::kF32, {tokens, dim});
  CheckShape("RmsNorm.weight", op.weight, DType::kF32, {dim});
}

void RunOnCpu(const Ctx& ctx, const RmsNorm& op) {
  ForRows(ctx, op.x.dim(0), op.x.dim(1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormRows)(op, begin, end);
  });
}

}  // namespace serval
#endif  // HWY_ONCE
