#include "kernels/norm/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dispatch.h"
#include "tests/kernels/support.h"

namespace serval::testing {
namespace {

std::vector<float> Normalise(const Ctx& ctx, std::vector<float> x, std::vector<float> weight,
                             float eps) {
  const int64_t dim = weight.size(), tokens = x.size() / dim;
  RmsNorm op;
  op.x = TensorView(x.data(), DType::kF32, {tokens, dim});
  op.y = op.x;
  op.weight = TensorView(weight.data(), DType::kF32, {dim});
  op.eps = eps;
  serval::Run(ctx, op);
  return x;
}

TEST(RmsNorm, AgreesWithFloat64OnEveryTarget) {
  TestCtx test;
  ForEachTarget([&](const char* target) {
    for (int dim : {1, 7, 64, 576, 1031, 4096}) {
      const int tokens = 5;
      const std::vector<float> x = Normals(tokens * dim, dim, 3.0f), weight = Normals(dim, 99);
      const std::vector<float> y = Normalise(test.ctx, x, weight, 1e-5f);
      for (int t = 0; t < tokens; ++t) {
        double sum = 0;
        for (int i = 0; i < dim; ++i) sum += double{x[t * dim + i]} * x[t * dim + i];
        const double inverse = 1 / std::sqrt(sum / dim + 1e-5);
        for (int i = 0; i < dim; ++i) {
          const double want = x[t * dim + i] * inverse * weight[i];
          ASSERT_NEAR(y[t * dim + i], want, 1e-6 * std::abs(want) + 1e-30) << target << dim;
        }
      }
    }
  });
}

TEST(RmsNorm, ZeroRowStaysZero) {
  TestCtx test;
  for (float y : Normalise(test.ctx, std::vector<float>(100), Normals(100, 1), 1e-6f)) {
    EXPECT_EQ(y, 0.0f);
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsBatch) {
  TestCtx many(3), one(1);
  const int dim = 577, tokens = 301;
  const std::vector<float> x = Normals(tokens * dim, 5), weight = Normals(dim, 6);
  const std::vector<float> all = Normalise(many.ctx, x, weight, 1e-5f);
  for (int t : {0, 1, 150, 300}) {
    const std::vector<float> row(x.begin() + t * dim, x.begin() + (t + 1) * dim);
    const std::vector<float> alone = Normalise(one.ctx, row, weight, 1e-5f);
    for (int i = 0; i < dim; ++i) ASSERT_EQ(alone[i], all[t * dim + i]);
  }
}

TEST(RmsNorm, TakesNoTokens) {
  TestCtx test;
  EXPECT_TRUE(Normalise(test.ctx, {}, Normals(16, 1), 1e-5f).empty());
}

TEST(RmsNormDeathTest, NamesTheWrongField) {
  std::vector<float> x(12);
  RmsNorm op;
  op.x = op.y = TensorView(x.data(), DType::kF32, {3, 4});
  op.weight = TensorView(x.data(), DType::kF32, {3});
  EXPECT_DEATH(Validate(op), "RmsNorm.weight.*f32\\[3\\], must be f32\\[4\\]");
}

}  // namespace
}  // namespace serval::testing
