#include "kernels/gemm/weight.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/reference.h"

namespace serval {
namespace {

struct Case {
  DType dtype;
  int64_t out, in;
};

class WeightTest : public testing::TestWithParam<Case> {};

TEST_P(WeightTest, BothLayoutsDequantiseToTheFormatsValues) {
  const auto [dtype, out, in] = GetParam();
  const reference::TestWeight weight = reference::RandomWeight(dtype, out, in, 1);
  std::vector<float> from_rows(in), from_panels(in);
  for (int64_t row = 0; row < out; ++row) {
    DequantiseRow(weight.rows, row, from_rows.data());
    DequantiseRow(weight.packed, row, from_panels.data());
    ASSERT_EQ(from_rows, from_panels) << row;
    for (int64_t i = 0; i < in; ++i) {
      ASSERT_NEAR(from_rows[i], weight.values[row * in + i], 1e-7) << row << ", " << i;
    }
  }
}

TEST_P(WeightTest, PanelsArePaddedToSixteenRows) {
  const auto [dtype, out, in] = GetParam();
  const int64_t padded = (out + 15) / 16 * 16;
  EXPECT_EQ(WeightBytes(dtype, WeightLayout::kPanels, out, in),
            WeightBytes(dtype, WeightLayout::kRows, padded, in));
  reference::TestWeight weight = reference::RandomWeight(dtype, out, in, 2);
  Weight all = weight.packed;
  all.out = padded;
  std::vector<float> row(in);
  for (int64_t i = out; i < padded; ++i) {
    DequantiseRow(all, i, row.data());
    EXPECT_EQ(row, std::vector<float>(in, 0.0f));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, WeightTest,
                         testing::Values(Case{DType::kF32, 1, 1}, Case{DType::kF32, 37, 33},
                                         Case{DType::kF16, 17, 7}, Case{DType::kBF16, 31, 64},
                                         Case{DType::kQ4_0, 1, 32}, Case{DType::kQ4_0, 37, 96},
                                         Case{DType::kQ4_1, 16, 32}, Case{DType::kQ4_1, 23, 576},
                                         Case{DType::kQ8_0, 48, 64}, Case{DType::kQ8_0, 5, 160}));

TEST(WeightDeathTest, WrongUseIsFatal) {
  const reference::TestWeight weight = reference::RandomWeight(DType::kQ4_1, 4, 32, 3);
  std::vector<float> row(32);
  EXPECT_DEATH(DequantiseRow(weight.rows, 4, row.data()), "row < weight.out");
  EXPECT_DEATH(DequantiseRow(weight.rows, -1, row.data()), "row >= 0");
  Weight odd = weight.rows;
  odd.in = 48;
  EXPECT_DEATH(PackPanels(odd, weight.packed_bytes.get()), "weight.in % kBlock == 0");
  EXPECT_DEATH(PackPanels(weight.packed, weight.packed_bytes.get()), "kRows");
}

}  // namespace
}  // namespace serval
