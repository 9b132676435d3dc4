#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dispatch.h"
#include "tests/kernels/support.h"

namespace serval::testing {
namespace {

struct Case {
  int heads, head_dim, pairs;
  RopeLayout layout;
};

std::vector<float> Frequencies(int pairs) {
  std::vector<float> inv_freq(pairs);
  for (int p = 0; p < pairs; ++p) {
    inv_freq[p] = static_cast<float>(std::pow(100000.0, -static_cast<double>(p) / pairs));
  }
  return inv_freq;
}

std::vector<float> Turned(const Ctx& ctx, std::vector<float> x, std::vector<int32_t> positions,
                          Case c, float scale) {
  std::vector<float> inv_freq = Frequencies(c.pairs);
  const int64_t tokens = positions.size();
  Rope op;
  op.x = TensorView(x.data(), DType::kF32, {tokens, c.heads, c.head_dim});
  op.positions = TensorView(positions.data(), DType::kI32, {tokens});
  op.inv_freq = TensorView(inv_freq.data(), DType::kF32, {c.pairs});
  op.layout = c.layout;
  op.scale = scale;
  serval::Run(ctx, op);
  return x;
}

std::vector<double> Reference(const std::vector<float>& x, const std::vector<int32_t>& positions,
                              Case c, double scale) {
  const std::vector<float> inv_freq = Frequencies(c.pairs);
  std::vector<double> y(x.begin(), x.end());
  for (size_t t = 0; t < positions.size(); ++t) {
    for (int h = 0; h < c.heads; ++h) {
      const size_t base = (t * c.heads + h) * c.head_dim;
      for (int p = 0; p < c.pairs; ++p) {
        const bool halves = c.layout == RopeLayout::kHalves;
        const size_t i = base + (halves ? p : 2 * p);
        const size_t j = halves ? i + c.pairs : i + 1;
        const double angle = inv_freq[p] * static_cast<float>(positions[t]);
        y[i] = scale * (x[i] * std::cos(angle) - x[j] * std::sin(angle));
        y[j] = scale * (x[j] * std::cos(angle) + x[i] * std::sin(angle));
      }
    }
  }
  return y;
}

TEST(Rope, AgreesWithFloat64InBothLayoutsOnEveryTarget) {
  TestCtx test;
  const std::vector<int32_t> positions = {0, 1, 2, 77, 1000, 8191, 131071, 131072, 1000003};
  ForEachTarget([&](const char* target) {
    for (RopeLayout layout : {RopeLayout::kHalves, RopeLayout::kInterleaved}) {
      for (Case c : {Case{3, 64, 32, layout}, Case{5, 40, 20, layout}, Case{1, 80, 16, layout},
                     Case{2, 6, 1, layout}, Case{1, 600, 300, layout}, Case{2, 128, 0, layout}}) {
        const std::vector<float> x = Normals(positions.size() * c.heads * c.head_dim, 4);
        const std::vector<float> got = Turned(test.ctx, x, positions, c, 1.25f);
        const std::vector<double> want = Reference(x, positions, c, 1.25);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], 2e-6) << target << " head_dim " << c.head_dim << " at " << i;
        }
      }
    }
  });
}

TEST(Rope, LeavesTheRestOfAHeadUntouched) {
  TestCtx test;
  const Case c{2, 96, 16, RopeLayout::kHalves};
  const std::vector<float> x = Normals(2 * 96, 8);
  const std::vector<float> y = Turned(test.ctx, x, {12345}, c, 1.0f);
  for (int h = 0; h < 2; ++h) {
    for (int i = 32; i < 96; ++i) EXPECT_EQ(y[h * 96 + i], x[h * 96 + i]);
  }
}

TEST(Rope, ARowDoesNotDependOnItsBatch) {
  TestCtx many(3), one(1);
  const Case c{9, 64, 32, RopeLayout::kInterleaved};
  const int row = 9 * 64, tokens = 257;
  const std::vector<float> x = Normals(tokens * row, 9);
  std::vector<int32_t> positions(tokens);
  for (int t = 0; t < tokens; ++t) positions[t] = t * 31;
  const std::vector<float> all = Turned(many.ctx, x, positions, c, 1.0f);
  for (int t : {0, 1, 128, 256}) {
    const std::vector<float> mine(x.begin() + t * row, x.begin() + (t + 1) * row);
    const std::vector<float> alone = Turned(one.ctx, mine, {positions[t]}, c, 1.0f);
    for (int i = 0; i < row; ++i) ASSERT_EQ(alone[i], all[t * row + i]);
  }
}

TEST(RopeDeathTest, RefusesMorePairsThanTheHeadHolds) {
  std::vector<float> x(64);
  std::vector<int32_t> position = {0};
  Rope op;
  op.x = TensorView(x.data(), DType::kF32, {1, 1, 8});
  op.positions = TensorView(position.data(), DType::kI32, {1});
  op.inv_freq = TensorView(x.data(), DType::kF32, {5});
  EXPECT_DEATH(Validate(op), "10 vs 8");
}

}  // namespace
}  // namespace serval::testing
