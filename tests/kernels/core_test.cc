#include "kernels/core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/workspace.h"

namespace serval {
namespace {

TEST(TensorView, DenseStridesRowsReshape) {
  std::vector<float> data(2 * 3 * 4);
  const TensorView view(data.data(), DType::kF32, {2, 3, 4});
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.stride[0], 12);
  EXPECT_EQ(view.stride[1], 4);
  EXPECT_EQ(view.stride[2], 1);
  EXPECT_EQ(view.elements(), 24);
  EXPECT_TRUE(view.dense());
  EXPECT_EQ(view.ToString(), "f32[2,3,4]");
  EXPECT_EQ(view.row<float>(1), data.data() + 12);

  const TensorView flat = view.Reshape({6, 4});
  const TensorView rows = flat.Rows(2, 3);
  EXPECT_EQ(rows.data, data.data() + 8);
  EXPECT_EQ(rows.dim(0), 3);
  EXPECT_EQ(rows.ToString(), "f32[3,4]");
}

TEST(TensorView, StridedIsNotDense) {
  TensorView view(nullptr, DType::kF32, {2, 4});
  view.stride[0] = 8;
  EXPECT_FALSE(view.dense());
  view.shape[0] = 1;  // one row has no stride to respect
  EXPECT_TRUE(view.dense());
}

TEST(TensorViewDeathTest, WrongShapesAreFatalAndNamed) {
  const TensorView view(nullptr, DType::kF32, {2, 4});
  EXPECT_DEATH(CheckShape("MatMul.x", view, DType::kF32, {2, 5}), "MatMul.x.*f32.2,4..*f32.2,5.");
  EXPECT_DEATH(view.Rows(1, 2), "check failed");
  EXPECT_DEATH(view.Reshape({3, 3}), "check failed");
}

TEST(RowBytes, OfEveryType) {
  EXPECT_EQ(RowBytes(DType::kF32, 64), 256);
  EXPECT_EQ(RowBytes(DType::kI32, 64), 256);
  EXPECT_EQ(RowBytes(DType::kF16, 64), 128);
  EXPECT_EQ(RowBytes(DType::kBF16, 64), 128);
  EXPECT_EQ(RowBytes(DType::kQ4_0, 64), 36);
  EXPECT_EQ(RowBytes(DType::kQ4_1, 64), 40);
  EXPECT_EQ(RowBytes(DType::kQ8_0, 64), 68);
}

TEST(HalfFloats, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
    } else {
      EXPECT_EQ(F32ToF16(value), bits);
    }
  }
}

TEST(HalfFloats, EveryBF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = BF16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(value))));
    } else {
      EXPECT_EQ(F32ToBF16(value), bits);
    }
  }
}

TEST(HalfFloats, RoundToNearestEven) {
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f), F32ToF16(1.0f));                // a tie goes to the even one
  EXPECT_EQ(F32ToF16(1.0f + 3 * 0x1p-11f), F32ToF16(1.0f + 0x1p-9f));  // also upwards
  EXPECT_EQ(F32ToF16(65519.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(-0x1p-25f), 0x8000);
  EXPECT_EQ(F32ToF16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(F32ToBF16(1.0f + 0x1p-8f), F32ToBF16(1.0f));
  EXPECT_EQ(F32ToBF16(1.0f + 3 * 0x1p-8f), F32ToBF16(1.0f + 0x1p-6f));
}

TEST(Workspace, TakesAlignedAndGivesBackByScope) {
  Workspace workspace(1000);
  EXPECT_EQ(workspace.bytes() % 64, 0u);
  float* outer = workspace.Take<float>(3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(outer) % 64, 0u);
  void* first = nullptr;
  {
    WorkspaceScope scope(&workspace);
    first = workspace.Take<uint8_t>(65);
    EXPECT_EQ(static_cast<std::byte*>(first) - reinterpret_cast<std::byte*>(outer), 64);
  }
  EXPECT_EQ(workspace.peak(), 64u + 128u);
  EXPECT_EQ(workspace.Take<uint8_t>(1), first);
}

TEST(WorkspaceDeathTest, TooSmallIsOurBug) {
  Workspace workspace(128);
  workspace.Take<uint8_t>(64);
  EXPECT_DEATH(workspace.Take<uint8_t>(65), "size <= bytes.. - used_");
}

}  // namespace
}  // namespace serval
