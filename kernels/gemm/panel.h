// How the bytes of a packed panel lie (WeightLayout::kPanels): what weight.cc writes and the GEMM
// tiles read. Thread rule: constants and pure functions.
//
// A panel is 16 output rows. Floats: for each input, the 16 weights that meet it, in their own
// type. Quantised: for each block of 32 inputs
//     16 scales f16 | 16 minimums f16 (q4_1 only) | quants
// where the quants are 64-byte vectors of 16 outputs x 4 inputs, unsigned bytes:
//     q8_0: 8 vectors; vector g holds inputs 4g .. 4g+3 with 128 added, so that the weight is the
//     unsigned side of vpdpbusd.
//
//     q4_x: 4 vectors; vector g holds inputs 4g .. 4g+3 in the low nibbles and 16+4g .. 16+4g+3 in
//     the high ones: GGUF's own nibble order, so that packing only moves words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core.h"

namespace serval {

inline constexpr int kPanelRows = 16;
inline constexpr int kBlock = 32;

struct QuantFormat {
  int bits;       // 4 or 8
  bool has_min;   // w = d * q + m; otherwise w = d * (q - zero)
  int zero_log2;  // zero = 1 << zero_log2
  int row_bytes;  // of one GGUF block
  constexpr int scale_bytes() const { return kPanelRows * 2 * (has_min ? 2 : 1); }
  constexpr int quant_bytes() const { return kPanelRows * kBlock * bits / 8; }
  constexpr int block_bytes() const { return scale_bytes() + quant_bytes(); }
};

inline constexpr QuantFormat kQ4_0Format{4, false, 3, 18};
inline constexpr QuantFormat kQ4_1Format{4, true, 0, 20};
inline constexpr QuantFormat kQ8_0Format{8, false, 7, 34};

inline bool IsQuantised(DType dtype) {
  return dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ8_0;
}

// REQUIRES: IsQuantised(dtype).
inline QuantFormat FormatOf(DType dtype) {
  SERVAL_CHECK(IsQuantised(dtype));
  if (dtype == DType::kQ4_0) return kQ4_0Format;
  return dtype == DType::kQ4_1 ? kQ4_1Format : kQ8_0Format;
}

inline int64_t Panels(int64_t out) { return (out + kPanelRows - 1) / kPanelRows; }

inline int64_t PanelBytes(DType dtype, int64_t in) {
  return IsQuantised(dtype) ? in / kBlock * FormatOf(dtype).block_bytes()
                            : RowBytes(dtype, in) * kPanelRows;
}

// One packed panel of a quantised type as floats, laid out as a float panel: to[in][kPanelRows].
void DequantisePanel(DType dtype, const std::byte* panel, int64_t in, float* to);

}  // namespace serval
