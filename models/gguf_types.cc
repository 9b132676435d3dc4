#include "models/gguf_types.h"

namespace serval {
namespace {

// Types that are not supported are listed so that their tensors can be told apart from nonsense.
constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, true, DType::kF32},          {1, "F16", 1, 2, true, DType::kF16},
    {30, "BF16", 1, 2, true, DType::kBF16},       {2, "Q4_0", 32, 18, true, DType::kQ4_0},
    {3, "Q4_1", 32, 20, true, DType::kQ4_1},      {8, "Q8_0", 32, 34, true, DType::kQ8_0},
    {6, "Q5_0", 32, 22, false, DType::kF32},      {7, "Q5_1", 32, 24, false, DType::kF32},
    {9, "Q8_1", 32, 40, false, DType::kF32},      {10, "Q2_K", 256, 84, false, DType::kF32},
    {11, "Q3_K", 256, 110, false, DType::kF32},   {12, "Q4_K", 256, 144, false, DType::kF32},
    {13, "Q5_K", 256, 176, false, DType::kF32},   {14, "Q6_K", 256, 210, false, DType::kF32},
    {15, "Q8_K", 256, 292, false, DType::kF32},   {16, "IQ2_XXS", 256, 66, false, DType::kF32},
    {17, "IQ2_XS", 256, 74, false, DType::kF32},  {18, "IQ3_XXS", 256, 98, false, DType::kF32},
    {19, "IQ1_S", 256, 50, false, DType::kF32},   {20, "IQ4_NL", 32, 18, false, DType::kF32},
    {21, "IQ3_S", 256, 110, false, DType::kF32},  {22, "IQ2_S", 256, 82, false, DType::kF32},
    {23, "IQ4_XS", 256, 136, false, DType::kF32}, {24, "I8", 1, 1, false, DType::kF32},
    {25, "I16", 1, 2, false, DType::kF32},        {26, "I32", 1, 4, false, DType::kF32},
    {27, "I64", 1, 8, false, DType::kF32},        {28, "F64", 1, 8, false, DType::kF32},
    {29, "IQ1_M", 256, 56, false, DType::kF32},   {34, "TQ1_0", 256, 54, false, DType::kF32},
    {35, "TQ2_0", 256, 66, false, DType::kF32},   {39, "MXFP4", 32, 17, false, DType::kF32},
    {40, "NVFP4", 64, 36, false, DType::kF32},    {41, "Q1_0", 128, 18, false, DType::kF32},
};

}  // namespace

const GgmlType* FindGgmlType(uint32_t number) {
  for (const GgmlType& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

std::string SupportedGgmlTypes() {
  std::string names;
  for (const GgmlType& type : kTypes) {
    if (type.supported) names.append(names.empty() ? "" : ", ").append(type.name);
  }
  return names;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    }
  }
  return out + (text.size() > kShown ? "…\"" : "\"");
}

}  // namespace serval
