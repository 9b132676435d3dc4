// The SIMD innermost loops of MatMul, one table of functions per instruction set: a tile is a few
// rows of x times one panel. The panel's bytes are unpacked into registers once for all rows of the
// tile; the sums stay in registers over the whole of `in`. A row's result does not depend on the
// tile it is in: the same operations in the same order for any number of rows. Thread rule: pure
// functions; tables are constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/gemm/panel.h"

namespace serval {

inline constexpr int kMaxTileRows = 8;

// How far ahead of its loads a tile fetches its panel: the hardware's prefetchers stop at page
// ends, a panel does not.
inline constexpr int kPrefetchBytes = 2048;

// Where a tile's results go: y[row * stride + column], for column in [0, columns), columns <=
// kPanelRows.
struct TileOut {
  float* y = nullptr;
  int64_t stride = 0;
  int columns = 0;
  bool accumulate = false;
};

// A tile of quantised x is, for each block of 32 inputs: int8 q[rows][2][32] (high and low bytes of
// 16-bit integers: two int8 dot products; with high bytes alone the default model's mean KL against
// fp32 was 2.7e-3), f32 scale[rows], f32 scale * sum(q) [rows] (for the weights' minimums), i32
// -sum(q) [rows] (for their zero points). All addresses of the inner loop are one pointer + a
// constant.
inline constexpr int kTileRowBlockBytes = 2 * kBlock + 3 * 4;

struct QuantTiles {
  using Quantise = void (*)(const float* x, int64_t x_stride, int rows, int64_t in,
                            std::byte* tile);
  using Multiply = void (*)(const std::byte* tile, const std::byte* panel, int64_t blocks,
                            const TileOut& out);
  using ByRows = std::array<Multiply, kMaxTileRows>;  // [rows - 1]

  int max_rows = 0;  // 1 .. max_rows are there
  Quantise quantise = nullptr;
  ByRows q4_0{}, q4_1{}, q8_0{};
};

struct FloatTiles {
  using Multiply = void (*)(const float* x, int64_t x_stride, const std::byte* panel, int64_t in,
                            const TileOut& out);
  using ByRows = std::array<Multiply, kMaxTileRows>;

  int max_rows = 0;
  ByRows f32{}, f16{}, bf16{};
};

// The tables of the best instruction set this processor has.
const QuantTiles& BestQuantTiles();
const FloatTiles& BestFloatTiles();

}  // namespace serval
