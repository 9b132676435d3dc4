// Reading a slot as f32, and the product that both halves of attention are. Compiled once for every
// SIMD target. Thread rule: pure functions. Include it inside a foreach_target translation unit
// only.
#if defined(SERVAL_KERNELS_PAGED_PAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERVAL_KERNELS_PAGED_PAGE_INL_H_
#undef SERVAL_KERNELS_PAGED_PAGE_INL_H_
#else
#define SERVAL_KERNELS_PAGED_PAGE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/paged/paged.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline HWY_ATTR float ToFloat(float x) { return x; }
inline HWY_ATTR float ToFloat(hwy::float16_t x) { return F16ToF32(x.bits); }
inline HWY_ATTR float ToFloat(hwy::bfloat16_t x) { return BF16ToF32(x.bits); }

// Lanes(d) elements from p, as f32.
template <class D>
HWY_INLINE hn::Vec<D> LoadAsFloat(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadAsFloat(D d, const T* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, D>(), p));
}

// out[t] lane k = in[k] lane t, for square blocks as wide as a vector: 4 x 4 inside the 128-bit
// blocks, then the blocks.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void TransposeBlocks4(D d, V* v) {
  const hn::RepartitionToWide<D> dw;
  const V a = hn::InterleaveLower(d, v[0], v[1]), b = hn::InterleaveUpper(d, v[0], v[1]);
  const V c = hn::InterleaveLower(d, v[2], v[3]), e = hn::InterleaveUpper(d, v[2], v[3]);
  const auto wide = [&](V x) HWY_ATTR { return hn::BitCast(dw, x); };
  v[0] = hn::BitCast(d, hn::InterleaveLower(dw, wide(a), wide(c)));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(dw, wide(a), wide(c)));
  v[2] = hn::BitCast(d, hn::InterleaveLower(dw, wide(b), wide(e)));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(dw, wide(b), wide(e)));
}

// columns[t] lane k = in[k * stride + t], for an N x N block, N = Lanes(d).
template <class T, class V = hn::Vec<hn::ScalableTag<float>>>
HWY_INLINE void LoadColumns(const T* in, int64_t stride, V* columns) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = HWY_MAX_BYTES / 4;
  V v[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) v[k] = LoadAsFloat(d, in + k * stride);
  for (int64_t g = 0; g < kLanes; g += 4) TransposeBlocks4(d, v + g);
  for (int64_t t = 0; t < 4; ++t) {
#if HWY_MAX_BYTES == 64
    const V even0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[4 + t]), v[t]);
    const V odd0 = hn::OddEvenBlocks(v[4 + t], hn::SwapAdjacentBlocks(v[t]));
    const V even1 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[12 + t]), v[8 + t]);
    const V odd1 = hn::OddEvenBlocks(v[12 + t], hn::SwapAdjacentBlocks(v[8 + t]));
    columns[t] = hn::ConcatLowerLower(d, even1, even0);
    columns[4 + t] = hn::ConcatLowerLower(d, odd1, odd0);
    columns[8 + t] = hn::ConcatUpperUpper(d, even1, even0);
    columns[12 + t] = hn::ConcatUpperUpper(d, odd1, odd0);
#elif HWY_MAX_BYTES == 32
    columns[t] = hn::ConcatLowerLower(d, v[4 + t], v[t]);
    columns[4 + t] = hn::ConcatUpperUpper(d, v[4 + t], v[t]);
#else
    columns[t] = v[t];
#endif
  }
}

// Asks the second-level cache for the `bytes` at p, so that they arrive while something else is
// computed.
HWY_INLINE void PrefetchBytes(const void* p, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(static_cast<const char*>(p) + i, 0, 2);
  }
}

// keys[i][j] = k[j][i] for the 64 entries of a slot. Entries not yet written give any value; their
// scores are masked. Meanwhile fetches the whole slot at `ahead`.
template <class T>
void TransposeKeys(const T* k, int64_t head_dim, const T* ahead, float* keys) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = HWY_MAX_BYTES / 4;
  for (int64_t j = 0; j < kPageTokens; j += kLanes) {
    PrefetchBytes(ahead + 2 * j * head_dim, 2 * kLanes * head_dim * sizeof(T));
    const T* from = k + j * head_dim;
    int64_t i = 0;
    for (; i + kLanes <= head_dim; i += kLanes) {
      hn::Vec<decltype(d)> columns[kLanes];
      LoadColumns(from + i, head_dim, columns);
      for (int64_t t = 0; t < kLanes; ++t) {
        hn::Store(columns[t], d, keys + (i + t) * kPageTokens + j);
      }
    }
    for (; i < head_dim; ++i) {
      for (int64_t e = 0; e < kLanes; ++e) {
        keys[i * kPageTokens + j + e] = ToFloat(from[e * head_dim + i]);
      }
    }
  }
}

// values[j][i] = v[j][i] for entries [0, count); columns beyond head_dim become 0.
template <class T>
void WidenValues(const T* v, int64_t count, int64_t head_dim, int64_t dp, float* values) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  for (int64_t j = 0; j < count; ++j, v += head_dim, values += dp) {
    int64_t i = 0;
    for (; i + n <= head_dim; i += n) hn::Store(LoadAsFloat(d, v + i), d, values + i);
    for (; i < head_dim; ++i) values[i] = ToFloat(v[i]);
    for (; i < dp; ++i) values[i] = 0.0f;
  }
}

// C[r][0 .. V lanes) <- start + sum over k in order of A[r][k] B[k][...]: a chain of multiply-adds
// a lane, so that neither the rows nor the columns computed together show in the result. With
// alpha, start = alpha[r] C[r], else 0.
template <int R, int V, class T>
HWY_INLINE void ProductBlock(const float* HWY_RESTRICT a, int64_t a_stride, int64_t depth,
                             const T* HWY_RESTRICT b, int64_t b_stride,
                             const float* HWY_RESTRICT alpha, float* HWY_RESTRICT c,
                             int64_t c_stride) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  hn::Vec<decltype(d)> sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      sum[r][v] = alpha == nullptr
                      ? hn::Zero(d)
                      : hn::Mul(hn::Set(d, alpha[r]), hn::Load(d, c + r * c_stride + v * n));
    }
  }
  for (int64_t k = 0; k < depth; ++k, b += b_stride) {
    hn::Vec<decltype(d)> row[V];
    for (int v = 0; v < V; ++v) row[v] = LoadAsFloat(d, b + v * n);
    for (int r = 0; r < R; ++r) {
      const auto x = hn::Set(d, a[r * a_stride + k]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, row[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) hn::Store(sum[r][v], d, c + r * c_stride + v * n);
  }
}

// The same for any number of rows and a width that is a multiple of 16.
template <int V, class T>
HWY_INLINE void ProductColumns(int64_t rows, const float* a, int64_t a_stride, int64_t depth,
                               const T* b, int64_t b_stride, const float* alpha, float* c,
                               int64_t c_stride) {
  int64_t r = 0;
  const auto block = [&](auto count) HWY_ATTR {
    ProductBlock<decltype(count)::value, V>(a + r * a_stride, a_stride, depth, b, b_stride,
                                            alpha == nullptr ? nullptr : alpha + r,
                                            c + r * c_stride, c_stride);
  };
  for (; r + 6 <= rows; r += 6) block(std::integral_constant<int, 6>());
  for (; r + 3 <= rows; r += 3) block(std::integral_constant<int, 3>());
  for (; r < rows; ++r) block(std::integral_constant<int, 1>());
}

template <class T>
HWY_INLINE void Product(int64_t rows, const float* a, int64_t a_stride, int64_t depth, const T* b,
                        int64_t width, const float* alpha, float* c) {
  constexpr int kWide = HWY_MAX_BYTES == 64 ? 4 : 2;  // 6 x kWide accumulators fit the registers
  constexpr int64_t kLanes = HWY_MAX_BYTES / 4;
  int64_t i = 0;
  for (; i + kWide * kLanes <= width; i += kWide * kLanes) {
    ProductColumns<kWide>(rows, a, a_stride, depth, b + i, width, alpha, c + i, width);
  }
  for (; i < width; i += kLanes) {
    ProductColumns<1>(rows, a, a_stride, depth, b + i, width, alpha, c + i, width);
  }
}

// Up to this many rows it pays to use each element of a page as it is read, instead of writing the
// page out as f32 first.
constexpr int64_t kDirectRows = 8;

// scores[r][j] = sum over i in order of q[r][i] k[j][i], as Product computes them on transposed
// keys, for rows <= R. REQUIRES: head_dim a multiple of 16. Meanwhile fetches the slot at `ahead`.
template <int R, class T>
void DirectScores(int64_t rows, const float* HWY_RESTRICT q, int64_t head_dim,
                  const T* HWY_RESTRICT k, const T* ahead, float* HWY_RESTRICT scores) {
  if constexpr (R > 1) {
    if (rows < R) return DirectScores<R - 1>(rows, q, head_dim, k, ahead, scores);
  }
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = HWY_MAX_BYTES / 4;
  for (int64_t j = 0; j < kPageTokens; j += kLanes) {
    PrefetchBytes(ahead + 2 * j * head_dim, 2 * kLanes * head_dim * sizeof(T));
    hn::Vec<decltype(d)> sum[R];
    for (int r = 0; r < R; ++r) sum[r] = hn::Zero(d);
    for (int64_t i = 0; i < head_dim; i += kLanes) {
      hn::Vec<decltype(d)> columns[kLanes];
      LoadColumns(k + j * head_dim + i, head_dim, columns);
      for (int64_t t = 0; t < kLanes; ++t) {
        for (int r = 0; r < R; ++r) {
          sum[r] = hn::MulAdd(hn::Set(d, q[r * head_dim + i + t]), columns[t], sum[r]);
        }
      }
    }
    for (int r = 0; r < R; ++r) hn::Store(sum[r], d, scores + r * kPageTokens + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
