#include "kernels/mlp/silu_gate.h"

#include "kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mlp/silu_gate.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {

// x * sigmoid(x) * up through exp(-|x|), which never overflows: sigmoid = 1 / (1 + e) for x >= 0, e
// / (1 + e) below.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SiluTimes(D d, V x, V up) {
  const V one = hn::Set(d, 1.0f);
  const V e = Exp(d, hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Mul(hn::Mul(x, hn::Div(numerator, hn::Add(one, e))), up);
}

void SiluRows(const SiluGate& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;  // the tail runs the same instructions, one lane at a time
  const int64_t n = hn::Lanes(d), width = op.y.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const float* gate = op.gate.row<float>(t);
    const float* up = op.up.row<float>(t);
    float* y = op.y.row<float>(t);
    int64_t i = 0;
    for (; i + n <= width; i += n) {
      hn::StoreU(SiluTimes(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, y + i);
    }
    for (; i < width; ++i) {
      hn::StoreU(SiluTimes(d1, hn::LoadU(d1, gate + i), hn::LoadU(d1, up + i)), d1, y + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(SiluRows);

void Validate(const SiluGate& op) {
  SERVAL_CHECK_EQ(op.y.rank, 2);
  const int64_t tokens = op.y.dim(0), width = op.y.dim(1);
  CheckShape("SiluGate.gate", op.gate, DType::kF32, {tokens, width});
  CheckShape("SiluGate.up", op.up, DType::kF32, {tokens, width});
  CheckShape("SiluGate.y", op.y, DType::kF32, {tokens, width});
}

void RunOnCpu(const Ctx& ctx, const SiluGate& op) {
  constexpr int64_t kElementWork = 8;  // an exponential and a division against a multiply-add
  ForRows(ctx, op.y.dim(0), op.y.dim(1) * kElementWork, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SiluRows)(op, begin, end);
  });
}

}  // namespace serval
#endif  // HWY_ONCE
