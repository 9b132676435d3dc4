#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/mlp/silu_gate.h"
#include "tests/kernels/support.h"

namespace serval::testing {
namespace {

std::vector<float> Gated(const Ctx& ctx, std::vector<float> gate, std::vector<float> up,
                         int64_t width) {
  const int64_t tokens = gate.size() / width;
  SiluGate op;
  op.gate = op.y = TensorView(gate.data(), DType::kF32, {tokens, width});
  op.up = TensorView(up.data(), DType::kF32, {tokens, width});
  serval::Run(ctx, op);
  return gate;
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

TEST(SiluGate, WithinAFewUlpOverTheWholeRangeOnEveryTarget) {
  TestCtx test;
  std::vector<float> x;
  for (double v = -86.0; v < 100.0; v += 0.00731) x.push_back(static_cast<float>(v));
  const std::vector<float> ones(x.size(), 1.0f);
  ForEachTarget([&](const char* target) {
    const std::vector<float> y = Gated(test.ctx, x, ones, x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = Silu(x[i]);
      // exp within 1 ulp, then an addition, a division and two products, half an ulp each.
      ASSERT_NEAR(y[i], want, 3.5 * std::abs(want) * std::numeric_limits<float>::epsilon())
          << target << " silu(" << x[i] << ")";
    }
  });
}

TEST(SiluGate, ExtremesAreFiniteAndNaNIsKept) {
  TestCtx test;
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> y =
      Gated(test.ctx, {-1e30f, -200.0f, 0.0f, 1e30f, inf, NAN}, std::vector<float>(6, 2.0f), 6);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 2e30f);
  EXPECT_EQ(y[4], inf);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(SiluGate, VectorBodyTailAndBatchGiveTheSameBits) {
  TestCtx many(3), one(1);
  const int width = 1537, tokens = 50;
  const std::vector<float> gate = Normals(width * tokens, 1, 4.0f), up = Normals(width * tokens, 2);
  ForEachTarget([&](const char* target) {
    const std::vector<float> all = Gated(many.ctx, gate, up, width);
    const std::vector<float> each = Gated(one.ctx, gate, up, 1);  // every element is a tail
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], each[i]) << target << " at " << i;
  });
}

TEST(SiluGateDeathTest, NamesTheWrongField) {
  std::vector<float> x(12);
  SiluGate op;
  op.gate = op.y = TensorView(x.data(), DType::kF32, {3, 4});
  op.up = TensorView(x.data(), DType::kF32, {4, 3});
  EXPECT_DEATH(Validate(op), "SiluGate.up");
}

}  // namespace
}  // namespace serval::testing
