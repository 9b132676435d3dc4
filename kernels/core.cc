#include "kernels/core.h"

#include <bit>
#include <cstring>

namespace serval {

const char* Name(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kQ4_0:
      return "q4_0";
    case DType::kQ4_1:
      return "q4_1";
    case DType::kQ8_0:
      return "q8_0";
  }
  return "?";
}

int64_t RowBytes(DType type, int64_t elements) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return elements * 4;
    case DType::kF16:
    case DType::kBF16:
      return elements * 2;
    case DType::kQ4_0:
      return elements / 32 * 18;
    case DType::kQ4_1:
      return elements / 32 * 20;
    case DType::kQ8_0:
      return elements / 32 * 34;
  }
  return 0;
}

TensorView::TensorView(void* data, DType dtype, std::initializer_list<int64_t> dims)
    : data(data), dtype(dtype), rank(static_cast<int>(dims.size())) {
  SERVAL_CHECK_LE(dims.size(), shape.size());
  int i = 0;
  for (int64_t dim : dims) shape[i++] = dim;
  int64_t step = 1;
  for (i = rank - 1; i >= 0; --i) {
    stride[i] = step;
    step *= shape[i];
  }
}

int64_t TensorView::elements() const {
  int64_t product = 1;
  for (int i = 0; i < rank; ++i) product *= shape[i];
  return product;
}

TensorView TensorView::Rows(int64_t begin, int64_t count) const {
  SERVAL_CHECK_GE(begin, 0);
  SERVAL_CHECK_LE(begin + count, shape[0]);
  TensorView view = *this;
  view.data = static_cast<std::byte*>(data) + RowBytes(dtype, begin * stride[0]);
  view.shape[0] = count;
  return view;
}

TensorView TensorView::Reshape(std::initializer_list<int64_t> dims) const {
  SERVAL_CHECK(dense());
  TensorView view(data, dtype, dims);
  SERVAL_CHECK_EQ(view.elements(), elements());
  return view;
}

bool TensorView::dense() const {
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && stride[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

std::string TensorView::ToString() const {
  std::string text = std::string(Name(dtype)) + "[";
  for (int i = 0; i < rank; ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

void CheckShape(const char* field, const TensorView& view, DType dtype,
                std::initializer_list<int64_t> shape) {
  CheckShape("", field, view, dtype, shape);
}

void CheckShape(const char* op, const char* field, const TensorView& view, DType dtype,
                std::initializer_list<int64_t> shape) {
  const TensorView want(nullptr, dtype, shape);
  if (view.dtype == dtype && view.rank == want.rank && view.shape == want.shape) [[likely]]
    return;
  const std::string name = std::string(op) + (*op == '\0' ? "" : ".") + field;
  internal::CheckFailed(name.c_str(), 0,
                        "shape is " + view.ToString() + ", must be " + want.ToString());
}

float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t wide =
      exponent == 31 ? 0x7F800000u | (mantissa << 13) : ((exponent + 112) << 23) | (mantissa << 13);
  return std::bit_cast<float>(sign | wide);
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;   // NaN
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal: add so that the hardware rounds
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) - 0x3F000000u);
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return sign | static_cast<uint16_t>((magnitude - (112u << 23) + 0xFFFu + odd) >> 13);
}

uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace serval
