// Helpers of the kernel tests: random data, weights made of random file bytes with their float64
// values, aligned memory, and a loop over the SIMD targets this processor can run. Thread rule: one
// thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/core.h"
#include "kernels/gemm/weight.h"

namespace serval::reference {

inline std::vector<float> Normal(int64_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct AlignedFree {
  void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedFree>;

inline AlignedBytes Allocate(size_t bytes) {
  return AlignedBytes(new (std::align_val_t{64}) std::byte[bytes]);
}

// A random weight as a file holds it, packed, and as numbers.
struct TestWeight {
  std::vector<std::byte> file;
  AlignedBytes packed_bytes;
  std::vector<double> values;  // [out, in], dequantised by the format's definition
  Weight rows, packed;
};

namespace internal {

// One GGUF block of 32 (layouts as in the GGUF specification) and its values.
inline void RandomBlock(DType dtype, std::mt19937& random, std::byte* to, double* values) {
  std::uniform_real_distribution<float> uniform(-0.02f, 0.02f);
  const int header = dtype == DType::kQ4_1 ? 4 : 2;
  const int bytes = dtype == DType::kQ8_0 ? 32 : 16;
  const uint16_t scale = F32ToF16(uniform(random));
  const uint16_t minimum = F32ToF16(8 * uniform(random));
  std::memcpy(to, &scale, 2);
  if (dtype == DType::kQ4_1) std::memcpy(to + 2, &minimum, 2);
  for (int i = 0; i < bytes; ++i) {
    const auto byte = static_cast<uint8_t>(random());
    to[header + i] = std::byte{byte};
    if (dtype == DType::kQ8_0) {
      values[i] = static_cast<double>(F16ToF32(scale)) * static_cast<int8_t>(byte);
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      const int quant = half == 0 ? byte & 15 : byte >> 4;
      values[i + 16 * half] =
          dtype == DType::kQ4_0 ? static_cast<double>(F16ToF32(scale)) * (quant - 8)
                                : static_cast<double>(F16ToF32(scale)) * quant + F16ToF32(minimum);
    }
  }
}

inline void RandomFloat(DType dtype, std::mt19937& random, std::byte* to, double* value) {
  std::normal_distribution<float> normal(0.0f, 0.1f);
  const float number = normal(random);
  if (dtype == DType::kF32) {
    std::memcpy(to, &number, 4);
    *value = number;
    return;
  }
  const uint16_t bits = dtype == DType::kF16 ? F32ToF16(number) : F32ToBF16(number);
  std::memcpy(to, &bits, 2);
  *value = dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

}  // namespace internal

inline TestWeight RandomWeight(DType dtype, int64_t out, int64_t in, uint32_t seed) {
  TestWeight weight;
  std::mt19937 random(seed);
  weight.file.resize(WeightBytes(dtype, WeightLayout::kRows, out, in));
  weight.values.resize(out * in);
  const bool floats = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  const int64_t unit = floats ? 1 : 32;
  for (int64_t i = 0; i < out * in / unit; ++i) {
    std::byte* to = weight.file.data() + i * RowBytes(dtype, unit);
    double* values = weight.values.data() + i * unit;
    if (floats) {
      internal::RandomFloat(dtype, random, to, values);
    } else {
      internal::RandomBlock(dtype, random, to, values);
    }
  }
  weight.rows = {weight.file.data(), dtype, WeightLayout::kRows, out, in};
  weight.packed_bytes = Allocate(WeightBytes(dtype, WeightLayout::kPanels, out, in));
  weight.packed = PackPanels(weight.rows, weight.packed_bytes.get());
  return weight;
}

// A row as MatMul's default path sees it: 16-bit integers per block of 32, scale = largest
// magnitude / 32512.
inline std::vector<double> RoundToInt8Blocks(const float* x, int64_t in) {
  std::vector<double> rounded(in);
  for (int64_t block = 0; block < in; block += 32) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[block + i]));
    const float inverse = largest > 0 ? 32512.0f / largest : 0.0f;
    for (int i = 0; i < 32; ++i) {
      rounded[block + i] =
          static_cast<double>(std::nearbyintf(x[block + i] * inverse)) * (largest / 32512.0f);
    }
  }
  return rounded;
}

// Runs body() once for each SIMD target that is compiled and that this processor has.
template <class Body>
void ForEachSimdTarget(Body body) {
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace serval::reference
