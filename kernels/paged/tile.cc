#include "kernels/paged/tile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/paged/tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/exp-inl.h"
#include "kernels/paged/page-inl.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// One row against one page: scores of entries outside [low, high) become probability 0, the rest
// exp(score - max). Updates the row's max and den and returns the factor by which its acc must
// shrink.
HWY_INLINE float SoftmaxRow(float* scores, int64_t low, int64_t high, float* max, float* den) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  auto top = hn::Set(d, kMinusInf);
  for (int64_t j = 0; j < low; ++j) scores[j] = kMinusInf;
  for (int64_t j = high; j < kPageTokens; ++j) scores[j] = kMinusInf;
  for (int64_t j = 0; j < kPageTokens; j += n) top = hn::Max(hn::Load(d, scores + j), top);
  const float new_max = std::max(*max, hn::GetLane(hn::MaxOfLanes(d, top)));
  const float alpha = ExpScalar(*max - new_max);
  const auto shift = hn::Set(d, new_max);
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < kPageTokens; j += n) {
    const auto p = Exp(d, hn::Sub(hn::Load(d, scores + j), shift));
    hn::Store(p, d, scores + j);
    sum = hn::Add(sum, p);
  }
  *den = std::fma(*den, alpha, hn::GetLane(hn::SumOfLanes(d, sum)));
  *max = new_max;
  return alpha;
}

// Copies the tile's queries, scaled, so that its rows lie one after the other.
void PackQueries(const PagedAttention& op, const Tile& tile, float* packed) {
  const int64_t head_dim = op.q.dim(2);
  for (int64_t t = 0; t < tile.tokens; ++t) {
    const float* q = op.q.row<float>(tile.first_token + t);
    for (int64_t g = 0; g < tile.group; ++g, packed += head_dim) {
      const float* head = q + (tile.kv_head * tile.group + g) * op.q.stride[1];
      for (int64_t i = 0; i < head_dim; ++i) packed[i] = head[i] * op.scale;
    }
  }
}

// The tile's rows against one page. Rows of which no entry is visible keep their state: they are a
// prefix (tokens before the page) or a suffix (tokens whose window has passed it), so the others
// are consecutive.
template <class T>
void TilePage(const PagedAttention& op, const Tile& tile, int64_t page, const TileScratch& scratch,
              const Partial& out) {
  const int64_t head_dim = op.q.dim(2), dp = PaddedHeadDim(head_dim);
  const int64_t first = page * kPageTokens;
  const int64_t token_begin = std::max<int64_t>(0, first - tile.first_position);
  int64_t token_end = tile.tokens;
  if (op.window > 0) {
    token_end = std::min(token_end, first + kPageTokens - 1 + op.window - tile.first_position);
  }
  if (token_begin >= token_end) return;
  const int64_t row = token_begin * tile.group, rows = (token_end - token_begin) * tile.group;
  const int64_t count = std::min<int64_t>(kPageTokens, tile.first_position + token_end - first);

  const auto slot = [&](int64_t p) {
    return op.pool.as<T>() +
           (tile.pages[p] * op.kv_heads + tile.kv_head) * 2 * kPageTokens * head_dim;
  };
  const T* keys = slot(page);
  const T* values = keys + kPageTokens * head_dim;
  const T* next = first + kPageTokens >= tile.end() ? keys : slot(page + 1);
  const float* q = scratch.q + row * head_dim;
  const bool direct = rows <= kDirectRows && head_dim % 16 == 0;
  if (direct) {
    DirectScores<kDirectRows>(rows, q, head_dim, keys, next, scratch.scores);
  } else {
    TransposeKeys(keys, head_dim, next, scratch.keys);
    WidenValues(values, count, head_dim, dp, scratch.values);
    Product(rows, q, head_dim, head_dim, scratch.keys, kPageTokens, nullptr, scratch.scores);
  }
  float alpha[kTileRows];
  for (int64_t r = 0; r < rows; r += kTileRows) {
    const int64_t some = std::min<int64_t>(kTileRows, rows - r);
    for (int64_t i = 0; i < some; ++i) {
      const int64_t position = tile.first_position + token_begin + (r + i) / tile.group - first;
      const int64_t low = op.window > 0 ? std::max<int64_t>(0, position - op.window + 1) : 0;
      const int64_t high = std::min<int64_t>(kPageTokens, position + 1);
      alpha[i] = SoftmaxRow(scratch.scores + (r + i) * kPageTokens, low, high,
                            &out.max[row + r + i], &out.den[row + r + i]);
    }
    const float* p = scratch.scores + r * kPageTokens;
    float* acc = out.acc + (row + r) * dp;
    if (direct) {
      Product(some, p, kPageTokens, count, values, dp, alpha, acc);
    } else {
      Product(some, p, kPageTokens, count, scratch.values, dp, alpha, acc);
    }
  }
}

void ClearPartial(int64_t rows, int64_t dp, const Partial& total) {
  std::fill_n(total.acc, rows * dp, 0.0f);
  std::fill_n(total.max, rows, kMinusInf);
  std::fill_n(total.den, rows, 0.0f);
}

template <class T>
void TileSplitAs(const PagedAttention& op, const Tile& tile, int64_t split,
                 const TileScratch& scratch, const Partial& out) {
  constexpr int64_t kSplitPages = kSplitEntries / kPageTokens;
  HWY_NAMESPACE::ClearPartial(tile.rows(), PaddedHeadDim(op.q.dim(2)), out);
  PackQueries(op, tile, scratch.q);
  const int64_t begin = std::max(split * kSplitPages, tile.begin(op.window) / kPageTokens);
  const int64_t end = std::min((split + 1) * kSplitPages, (tile.end() - 1) / kPageTokens + 1);
  for (int64_t page = begin; page < end; ++page) TilePage<T>(op, tile, page, scratch, out);
}

void TileSplit(const PagedAttention& op, const Tile& tile, int64_t split,
               const TileScratch& scratch, const Partial& out) {
  switch (op.pool.dtype) {
    case DType::kF32:
      return TileSplitAs<float>(op, tile, split, scratch, out);
    case DType::kF16:
      return TileSplitAs<hwy::float16_t>(op, tile, split, scratch, out);
    default:
      return TileSplitAs<hwy::bfloat16_t>(op, tile, split, scratch, out);
  }
}

void MergePartial(int64_t rows, int64_t dp, const Partial& next, const Partial& total) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  for (int64_t r = 0; r < rows; ++r) {
    if (next.max[r] == kMinusInf) continue;  // saw nothing: must not even round
    const float* from = next.acc + r * dp;
    float* acc = total.acc + r * dp;
    if (total.max[r] == kMinusInf) {
      std::copy_n(from, dp, acc);
      total.max[r] = next.max[r];
      total.den[r] = next.den[r];
      continue;
    }
    const float max = std::max(total.max[r], next.max[r]);
    const float ours = ExpScalar(total.max[r] - max), theirs = ExpScalar(next.max[r] - max);
    for (int64_t i = 0; i < dp; i += n) {
      const auto added = hn::Mul(hn::Load(d, from + i), hn::Set(d, theirs));
      hn::Store(hn::MulAdd(hn::Load(d, acc + i), hn::Set(d, ours), added), d, acc + i);
    }
    total.den[r] = std::fma(total.den[r], ours, next.den[r] * theirs);
    total.max[r] = max;
  }
}

void FinishTile(const PagedAttention& op, const Tile& tile, const Partial& total) {
  const int64_t head_dim = op.q.dim(2), dp = PaddedHeadDim(head_dim);
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const int64_t head = tile.kv_head * tile.group + r % tile.group;
    float* out = op.out.row<float>(tile.first_token + r / tile.group) + head * op.out.stride[1];
    const float inverse = 1.0f / total.den[r];
    for (int64_t i = 0; i < head_dim; ++i) out[i] = total.acc[r * dp + i] * inverse;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(TileSplit);
HWY_EXPORT(ClearPartial);
HWY_EXPORT(MergePartial);
HWY_EXPORT(FinishTile);

void TileSplit(const PagedAttention& op, const Tile& tile, int64_t split,
               const TileScratch& scratch, const Partial& out) {
  HWY_DYNAMIC_DISPATCH(TileSplit)(op, tile, split, scratch, out);
}
void ClearPartial(int64_t rows, int64_t dp, const Partial& total) {
  HWY_DYNAMIC_DISPATCH(ClearPartial)(rows, dp, total);
}
void MergePartial(int64_t rows, int64_t dp, const Partial& next, const Partial& total) {
  HWY_DYNAMIC_DISPATCH(MergePartial)(rows, dp, next, total);
}
void FinishTile(const PagedAttention& op, const Tile& tile, const Partial& total) {
  HWY_DYNAMIC_DISPATCH(FinishTile)(op, tile, total);
}

}  // namespace serval
#endif  // HWY_ONCE
