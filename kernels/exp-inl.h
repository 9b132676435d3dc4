// exp for vectors of f32, compiled once for every SIMD target: within 1 ulp on [-87.3, 88.0], 0
// below, NaN kept, exp(0) = 1 exactly. Thread rule: pure functions. Include it inside a
// foreach_target translation unit only. Source: x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) = 1 + r +
// r^2 q(r), q our own minimax fit of degree 4 (relative error 3e-9).
#if defined(SERVAL_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERVAL_KERNELS_EXP_INL_H_
#undef SERVAL_KERNELS_EXP_INL_H_
#else
#define SERVAL_KERNELS_EXP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kExpLowest = -87.3f;  // below, the result would be subnormal
inline constexpr float kExpHighest = 88.0f;  // above, it saturates

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Max and Min return their second operand when one is NaN, so NaN flows through to the
  // polynomial.
  const V clamped = hn::Min(hn::Set(d, kExpHighest), hn::Max(hn::Set(d, kExpLowest), x));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  // ln 2 in two parts: n times the first (10 significant bits) is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V q = hn::Set(d, 0x1.6a23cep-10f);
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.123a2p-7f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.5558f2p-5f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.555492p-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.fffffcp-2f));
  const V e = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
  const auto bits = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const V scaled = hn::Mul(e, hn::BitCast(d, bits));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kExpLowest)), scaled);
}

// The same function of one number, bit for bit.
HWY_INLINE float ExpScalar(float x) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(Exp(d, hn::Set(d, x)));
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
