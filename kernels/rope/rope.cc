#include "kernels/rope/rope.h"

#include <algorithm>

#include "kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kPairBlock = 128;  // pairs whose cosines and sines are kept at once

// cos and sin of angle in double: x = n pi/2 + r with pi/2 in two parts (the first has 33 bits, so
// n times it is exact up to n = 2^20), then Taylor series on |r| <= pi/4, truncated below 1e-12;
// the quadrant n mod 4 swaps and signs.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void CosSin(D d, V angle, V* cosine, V* sine) {
  const V n = hn::Round(hn::Mul(angle, hn::Set(d, 0.63661977236758134308)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.921fb544p+0), angle);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.0b4611a626331p-34), r);
  const V r2 = hn::Mul(r, r);
  V s = hn::Set(d, 1.0 / 6227020800);
  s = hn::MulAdd(s, r2, hn::Set(d, -1.0 / 39916800));
  s = hn::MulAdd(s, r2, hn::Set(d, 1.0 / 362880));
  s = hn::MulAdd(s, r2, hn::Set(d, -1.0 / 5040));
  s = hn::MulAdd(s, r2, hn::Set(d, 1.0 / 120));
  s = hn::MulAdd(s, r2, hn::Set(d, -1.0 / 6));
  s = hn::MulAdd(hn::Mul(s, r2), r, r);
  V c = hn::Set(d, 1.0 / 479001600);
  c = hn::MulAdd(c, r2, hn::Set(d, -1.0 / 3628800));
  c = hn::MulAdd(c, r2, hn::Set(d, 1.0 / 40320));
  c = hn::MulAdd(c, r2, hn::Set(d, -1.0 / 720));
  c = hn::MulAdd(c, r2, hn::Set(d, 1.0 / 24));
  c = hn::MulAdd(c, r2, hn::Set(d, -0.5));
  c = hn::MulAdd(c, r2, hn::Set(d, 1.0));
  const V quadrant = hn::NegMulAdd(hn::Floor(hn::Mul(n, hn::Set(d, 0.25))), hn::Set(d, 4.0), n);
  const auto first = hn::Eq(quadrant, hn::Set(d, 1.0));
  const auto second = hn::Eq(quadrant, hn::Set(d, 2.0));
  const auto third = hn::Eq(quadrant, hn::Set(d, 3.0));
  const auto swap = hn::Or(first, third);
  const V c0 = hn::IfThenElse(swap, s, c), s0 = hn::IfThenElse(swap, c, s);
  *cosine = hn::IfThenElse(hn::Or(first, second), hn::Neg(c0), c0);
  *sine = hn::IfThenElse(hn::Or(second, third), hn::Neg(s0), s0);
}

// Fills cos[p] and sin[p], times scale, for `pairs` <= kPairBlock frequencies.
void FillTables(int32_t position, const float* inv_freq, int64_t pairs, float scale, float* cos,
                float* sin) {
  const hn::ScalableTag<double> d;
  const int64_t n = hn::Lanes(d);
  for (int64_t p = 0; p < pairs; p += n) {
    HWY_ALIGN double angle[HWY_MAX_BYTES / 8] = {}, c[HWY_MAX_BYTES / 8], s[HWY_MAX_BYTES / 8];
    const int64_t count = std::min(n, pairs - p);
    for (int64_t i = 0; i < count; ++i) {
      angle[i] = static_cast<float>(position) * inv_freq[p + i];
    }
    auto cv = hn::Zero(d), sv = hn::Zero(d);
    CosSin(d, hn::Load(d, angle), &cv, &sv);
    hn::Store(cv, d, c);
    hn::Store(sv, d, s);
    for (int64_t i = 0; i < count; ++i) {
      cos[p + i] = static_cast<float>(c[i] * scale);
      sin[p + i] = static_cast<float>(s[i] * scale);
    }
  }
}

// (a, b) <- (a cos - b sin, b cos + a sin)
template <class V>
HWY_INLINE void Turn(V* a, V* b, V cos, V sin) {
  const V turned = hn::NegMulAdd(*b, sin, hn::Mul(*a, cos));
  *b = hn::MulAdd(*a, sin, hn::Mul(*b, cos));
  *a = turned;
}

// Pairs (low[p], high[p]). One lane at a time at the end: the same instructions, so the same bits.
void TurnHalves(float* low, float* high, const float* cos, const float* sin, int64_t pairs) {
  const auto step = [&](auto d, int64_t p) HWY_ATTR {
    auto a = hn::LoadU(d, low + p), b = hn::LoadU(d, high + p);
    Turn(&a, &b, hn::LoadU(d, cos + p), hn::LoadU(d, sin + p));
    hn::StoreU(a, d, low + p);
    hn::StoreU(b, d, high + p);
  };
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  int64_t p = 0;
  for (; p + n <= pairs; p += n) step(d, p);
  for (; p < pairs; ++p) step(hn::CappedTag<float, 1>(), p);
}

// Pairs (x[2p], x[2p + 1]).
void TurnInterleaved(float* x, const float* cos, const float* sin, int64_t pairs) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t n = hn::Lanes(d);
  int64_t p = 0;
  for (; p + n <= pairs; p += n) {
    auto a = hn::Zero(d), b = hn::Zero(d);
    hn::LoadInterleaved2(d, x + 2 * p, a, b);
    Turn(&a, &b, hn::LoadU(d, cos + p), hn::LoadU(d, sin + p));
    hn::StoreInterleaved2(a, b, d, x + 2 * p);
  }
  for (; p < pairs; ++p) {
    auto a = hn::LoadU(d1, x + 2 * p), b = hn::LoadU(d1, x + 2 * p + 1);
    Turn(&a, &b, hn::LoadU(d1, cos + p), hn::LoadU(d1, sin + p));
    hn::StoreU(a, d1, x + 2 * p);
    hn::StoreU(b, d1, x + 2 * p + 1);
  }
}

void RopeRows(const Rope& op, int64_t begin, int64_t end) {
  const int64_t all_pairs = op.inv_freq.dim(0);
  HWY_ALIGN float cos[kPairBlock], sin[kPairBlock];
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t p = 0; p < all_pairs; p += kPairBlock) {
      const int64_t pairs = std::min(kPairBlock, all_pairs - p);
      FillTables(op.positions.as<int32_t>()[t], op.inv_freq.as<float>() + p, pairs, op.scale, cos,
                 sin);
      for (int64_t h = 0; h < op.x.dim(1); ++h) {
        float* x = op.x.row<float>(t) + h * op.x.stride[1];
        if (op.layout == RopeLayout::kHalves) {
          TurnHalves(x + p, x + all_pairs + p, cos, sin, pairs);
        } else {
          TurnInterleaved(x + 2 * p, cos, sin, pairs);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(RopeRows);

void Validate(const Rope& op) {
  SERVAL_CHECK_EQ(op.x.rank, 3);
  SERVAL_CHECK_EQ(op.inv_freq.rank, 1);
  const int64_t tokens = op.x.dim(0), heads = op.x.dim(1), head_dim = op.x.dim(2);
  CheckShape("Rope.x", op.x, DType::kF32, {tokens, heads, head_dim});
  CheckShape("Rope.positions", op.positions, DType::kI32, {tokens});
  CheckShape("Rope.inv_freq", op.inv_freq, DType::kF32, {op.inv_freq.dim(0)});
  SERVAL_CHECK_LE(2 * op.inv_freq.dim(0), head_dim);
}

void RunOnCpu(const Ctx& ctx, const Rope& op) {
  const int64_t row_work = op.x.dim(1) * op.inv_freq.dim(0) * 2 + op.inv_freq.dim(0) * 8;
  ForRows(ctx, op.x.dim(0), row_work, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeRows)(op, begin, end);
  });
}

}  // namespace serval
#endif  // HWY_ONCE
