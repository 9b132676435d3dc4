// A weight matrix [out, in] in the type of the file it came from. Quantised weights stay quantised.
#pragma once

#include <cstdint>

#include "kernels/core.h"

namespace serval {

// kRows: as in the file, row after row (GGUF blocks along a row).
// kPanels: repacked once at load for the CPU: panels of 16 output rows, in each the 32-wide blocks
// of `in` one after another (rows padded to 16 with zeros), so that one 64-byte load holds 4
// consecutive inputs of 16 outputs.
enum class WeightLayout : uint8_t { kRows, kPanels };

struct Weight {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  WeightLayout layout = WeightLayout::kRows;
  int64_t out = 0;
  int64_t in = 0;
};

// Bytes of a weight in a layout.
int64_t WeightBytes(DType dtype, WeightLayout layout, int64_t out, int64_t in);

// Repacks kRows `from` into `to` (WeightBytes(kPanels) bytes, 64-byte aligned) and returns the view
// of it. Any thread. REQUIRES: from.in is a multiple of 32 for the Q types (any for F32, F16,
// BF16).
Weight PackPanels(const Weight& from, void* to);

// Row `out_index` as `in` floats, from either layout (tests, embedding).
void DequantiseRow(const Weight& weight, int64_t out_index, float* to);

}  // namespace serval
