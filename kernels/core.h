// What every op is made of: element types, strided views, and the context a step runs in.
// Thread rule: a Ctx belongs to the thread that runs the step; ops may use ctx.pool to fan out, and
// return when done.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/check.h"

namespace serval {

class ThreadPool;
class Workspace;

enum class Device : uint8_t { kCpu, kCuda };

// Element types. The Q types are GGUF blocks of 32 along a row; they occur in Weight only.
enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kQ4_0, kQ4_1, kQ8_0 };

const char* Name(DType type);
// Bytes of `elements` consecutive elements of one row (a multiple of 32 for the Q types).
int64_t RowBytes(DType type, int64_t elements);

// A strided view of at most four dimensions. Does not own; strides are in elements; the last
// dimension is contiguous.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> stride{};

  TensorView() = default;
  // A dense row-major view.
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape);

  int64_t dim(int i) const { return shape[i]; }
  int64_t elements() const;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // Row i along dimension 0, as T.
  template <class T>
  T* row(int64_t i) const {
    return static_cast<T*>(data) + i * stride[0];
  }
  // Rows [begin, begin + count) along dimension 0.
  TensorView Rows(int64_t begin, int64_t count) const;
  // The same data under another dense shape. REQUIRES: dense.
  TensorView Reshape(std::initializer_list<int64_t> shape) const;
  bool dense() const;
  std::string ToString() const;  // "f32[3,64]"
};

// Checks used by the Validate functions, which run in every step: nothing is allocated unless one
// fails. `field` names the op's field in the message; fields that several ops share come with `op`.
void CheckShape(const char* field, const TensorView& view, DType dtype,
                std::initializer_list<int64_t> shape);
void CheckShape(const char* op, const char* field, const TensorView& view, DType dtype,
                std::initializer_list<int64_t> shape);

// What an op runs in.
struct Ctx {
  Device device = Device::kCpu;
  ThreadPool* pool = nullptr;      // CPU: never null
  Workspace* workspace = nullptr;  // scratch, sized at start from the ops' WorkspaceBytes
  void* stream = nullptr;          // CUDA: cudaStream_t
  bool exact = false;              // CPU: fp32 activations against quantised weights (--cpu-exact)
};

// 16 <-> 32 bit conversions, round to nearest even.
float F16ToF32(uint16_t bits);
uint16_t F32ToF16(float value);
inline float BF16ToF32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}
uint16_t F32ToBF16(float value);

}  // namespace serval
