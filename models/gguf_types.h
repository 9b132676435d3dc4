// The element types a GGUF file may name, as data. Source: ggml.h, enum ggml_type. Thread rule:
// constant.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/core.h"

namespace serval {

struct GgmlType {
  uint32_t number;
  std::string_view name;
  int64_t block_elements;
  int64_t block_bytes;
  bool supported;  // Serval computes with it, as `dtype`
  DType dtype;
};

// nullptr for a number that no type has.
const GgmlType* FindGgmlType(uint32_t number);
// "F32, F16, Q4_0, …": the types Serval computes with.
std::string SupportedGgmlTypes();

// A name from a file, fit for one line of a message: in quotes, at most 80 bytes, what is not
// printable as \xNN.
std::string Quoted(std::string_view text);

}  // namespace serval
