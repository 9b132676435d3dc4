#include "kernels/gemm/weight.h"

#include <algorithm>
#include <cstring>

#include "kernels/gemm/panel.h"

namespace serval {
namespace {

template <class T>
T LoadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

void CheckWeight(const Weight& weight) {
  SERVAL_CHECK(weight.data != nullptr);
  SERVAL_CHECK(weight.dtype != DType::kI32);
  SERVAL_CHECK_GT(weight.out, 0);
  SERVAL_CHECK_GT(weight.in, 0);
  if (IsQuantised(weight.dtype)) SERVAL_CHECK_EQ(weight.in % kBlock, 0);
}

// One block of one output row: its scale, its minimum, its quants by words of four inputs (8 bits)
// or eight (4 bits).
template <QuantFormat kFormat>
void PackBlock(const std::byte* from, int row, std::byte* to) {
  constexpr int kHeader = kFormat.has_min ? 4 : 2;
  constexpr int kVectors = kFormat.quant_bytes() / 64;
  constexpr uint32_t kToUnsigned = kFormat.bits == 8 ? 0x80808080u : 0;
  std::memcpy(to + 2 * row, from, 2);
  if (kFormat.has_min) std::memcpy(to + 2 * (kPanelRows + row), from + 2, 2);
  std::byte* quants = to + kFormat.scale_bytes() + 4 * row;
  for (int g = 0; g < kVectors; ++g) {
    const uint32_t word = LoadAs<uint32_t>(from + kHeader + 4 * g) ^ kToUnsigned;
    std::memcpy(quants + 64 * g, &word, 4);
  }
}

template <QuantFormat kFormat>
void PackQuantised(const Weight& from, std::byte* to) {
  const int64_t blocks = from.in / kBlock;
  const auto* rows = static_cast<const std::byte*>(from.data);
  for (int64_t panel = 0; panel < Panels(from.out); ++panel) {
    const int count =
        static_cast<int>(std::min<int64_t>(kPanelRows, from.out - panel * kPanelRows));
    const std::byte* panel_rows = rows + panel * kPanelRows * blocks * kFormat.row_bytes;
    for (int64_t block = 0; block < blocks; ++block, to += kFormat.block_bytes()) {
      // Missing rows: scale and minimum zero, so whatever their quants are, they weigh nothing.
      if (count < kPanelRows) std::memset(to, 0, kFormat.block_bytes());
      for (int row = 0; row < count; ++row) {
        PackBlock<kFormat>(panel_rows + (row * blocks + block) * kFormat.row_bytes, row, to);
      }
    }
  }
}

template <class T>
void PackFloats(const Weight& from, T* to) {
  const T* rows = static_cast<const T*>(from.data);
  for (int64_t panel = 0; panel < Panels(from.out); ++panel) {
    for (int64_t i = 0; i < from.in; ++i) {
      for (int64_t row = panel * kPanelRows; row < (panel + 1) * kPanelRows; ++row) {
        *to++ = row < from.out ? rows[row * from.in + i] : T{};
      }
    }
  }
}

// Where the parts of one block of one row lie, in either layout.
struct BlockPlace {
  const std::byte* scale;
  const std::byte* minimum;
  const std::byte* quants;
  int vector_stride;  // bytes from one word of four quant bytes to the next
  int flip;           // 0x80 where 8-bit quants are stored signed
};

BlockPlace PlaceOf(const Weight& weight, const QuantFormat& format, int64_t row, int64_t block) {
  const auto* data = static_cast<const std::byte*>(weight.data);
  const int64_t blocks = weight.in / kBlock;
  if (weight.layout == WeightLayout::kRows) {
    const std::byte* from = data + (row * blocks + block) * format.row_bytes;
    return {from, from + 2, from + (format.has_min ? 4 : 2), 4, format.bits == 8 ? 0x80 : 0};
  }
  const int64_t lane = row % kPanelRows;
  const std::byte* from = data + (row / kPanelRows * blocks + block) * format.block_bytes();
  return {from + 2 * lane, from + 2 * (kPanelRows + lane), from + format.scale_bytes() + 4 * lane,
          64, 0};
}

void DequantiseBlock(const BlockPlace& place, const QuantFormat& format, float* to) {
  const float scale = F16ToF32(LoadAs<uint16_t>(place.scale));
  const float minimum = format.has_min ? F16ToF32(LoadAs<uint16_t>(place.minimum)) : 0.0f;
  const int zero = format.has_min ? 0 : 1 << format.zero_log2;
  const auto value = [&](int q) { return scale * static_cast<float>(q - zero) + minimum; };
  const int bytes = kBlock * format.bits / 8;
  for (int i = 0; i < bytes; ++i) {
    const int byte = LoadAs<uint8_t>(place.quants + i / 4 * place.vector_stride + i % 4);
    if (format.bits == 8) {
      to[i] = value(byte ^ place.flip);
    } else {
      to[i] = value(byte & 15);
      to[i + kBlock / 2] = value(byte >> 4);
    }
  }
}

template <class T, class Convert>
void ConvertRow(const Weight& weight, int64_t row, Convert convert, float* to) {
  const T* data = static_cast<const T*>(weight.data);
  const bool panels = weight.layout == WeightLayout::kPanels;
  const T* from = panels ? data + row / kPanelRows * kPanelRows * weight.in + row % kPanelRows
                         : data + row * weight.in;
  const int64_t step = panels ? kPanelRows : 1;
  for (int64_t i = 0; i < weight.in; ++i) to[i] = convert(from[i * step]);
}

}  // namespace

int64_t WeightBytes(DType dtype, WeightLayout layout, int64_t out, int64_t in) {
  return layout == WeightLayout::kRows ? RowBytes(dtype, in) * out
                                       : PanelBytes(dtype, in) * Panels(out);
}

Weight PackPanels(const Weight& from, void* to) {
  CheckWeight(from);
  SERVAL_CHECK(from.layout == WeightLayout::kRows);
  SERVAL_CHECK_EQ(reinterpret_cast<uintptr_t>(to) % 64, 0u);
  auto* bytes = static_cast<std::byte*>(to);
  switch (from.dtype) {
    case DType::kF32:
      PackFloats(from, static_cast<uint32_t*>(to));
      break;
    case DType::kF16:
    case DType::kBF16:
      PackFloats(from, static_cast<uint16_t*>(to));
      break;
    case DType::kQ4_0:
      PackQuantised<kQ4_0Format>(from, bytes);
      break;
    case DType::kQ4_1:
      PackQuantised<kQ4_1Format>(from, bytes);
      break;
    case DType::kQ8_0:
      PackQuantised<kQ8_0Format>(from, bytes);
      break;
    case DType::kI32:
      SERVAL_CHECK(false, "weights are never i32");
  }
  return {to, from.dtype, WeightLayout::kPanels, from.out, from.in};
}

void DequantiseRow(const Weight& weight, int64_t row, float* to) {
  CheckWeight(weight);
  SERVAL_CHECK_GE(row, 0);
  SERVAL_CHECK_LT(row, weight.out);
  if (IsQuantised(weight.dtype)) {
    const QuantFormat format = FormatOf(weight.dtype);
    for (int64_t block = 0; block < weight.in / kBlock; ++block) {
      DequantiseBlock(PlaceOf(weight, format, row, block), format, to + block * kBlock);
    }
  } else if (weight.dtype == DType::kF32) {
    ConvertRow<float>(
        weight, row, [](float value) { return value; }, to);
  } else if (weight.dtype == DType::kF16) {
    ConvertRow<uint16_t>(weight, row, F16ToF32, to);
  } else {
    ConvertRow<uint16_t>(weight, row, BF16ToF32, to);
  }
}

void DequantisePanel(DType dtype, const std::byte* panel, int64_t in, float* to) {
  const QuantFormat format = FormatOf(dtype);
  const Weight weight{panel, dtype, WeightLayout::kPanels, kPanelRows, in};
  float values[kBlock];
  for (int64_t block = 0; block < in / kBlock; ++block, to += kBlock * kPanelRows) {
    for (int row = 0; row < kPanelRows; ++row) {
      DequantiseBlock(PlaceOf(weight, format, row, block), format, values);
      for (int i = 0; i < kBlock; ++i) to[i * kPanelRows + row] = values[i];
    }
  }
}

}  // namespace serval
