// The inner part of PagedAttention: one tile of query rows of one kv head against one split of a
// sequence's entries. Thread rule: pure functions on the buffers they are given; any worker. Rows
// of a tile are (token, query head of the group), token-major; dp is head_dim padded to a multiple
// of 16.
#pragma once

#include <cstdint>

#include "kernels/paged/paged.h"

namespace serval {

inline constexpr int64_t PaddedHeadDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Rows a tile aims at: enough to hide the conversion of a page, few enough that its buffers stay in
// the second-level cache.
inline constexpr int64_t kTileRows = 96;

// Unfinished softmax rows: out = acc / den, both scaled by exp(-max). An empty row has max = -inf,
// den = 0, acc = 0.
struct Partial {
  float* acc = nullptr;  // [rows, dp]
  float* max = nullptr;  // [rows]
  float* den = nullptr;  // [rows]
};

// A worker's buffers, 64-byte aligned.
struct TileScratch {
  float* q = nullptr;       // [rows, head_dim], times scale
  float* scores = nullptr;  // [rows, 64]
  float* keys = nullptr;    // [head_dim, 64]: a page's K transposed
  float* values = nullptr;  // [64, dp]
  Partial split, total;
};

// `tokens` consecutive tokens of one sequence, and the query heads of one kv head.
struct Tile {
  int64_t first_token = 0;  // in the step
  int64_t tokens = 0;
  int64_t first_position = 0;  // in the sequence
  const int32_t* pages = nullptr;
  int64_t kv_head = 0;
  int64_t group = 1;

  int64_t rows() const { return tokens * group; }
  int64_t end() const { return first_position + tokens; }  // entries seen by the last token
  // First entry seen by any token.
  int64_t begin(int64_t window) const {
    return window > 0 && first_position >= window ? first_position - window + 1 : 0;
  }
};

// Overwrites `out` with the tile's rows over entries [split * kSplitEntries, (split + 1) *
// kSplitEntries).
void TileSplit(const PagedAttention& op, const Tile& tile, int64_t split,
               const TileScratch& scratch, const Partial& out);
// total <- total merged with next. The first merge into an empty total copies.
void MergePartial(int64_t rows, int64_t dp, const Partial& next, const Partial& total);
void ClearPartial(int64_t rows, int64_t dp, const Partial& total);
// Writes the tile's rows of op.out.
void FinishTile(const PagedAttention& op, const Tile& tile, const Partial& total);

}  // namespace serval
