#include "kernels/gemm/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "tests/support/reference.h"

namespace serval {
namespace {

using reference::TestWeight;

// What a call runs in: a workspace of exactly the declared size.
struct Bench {
  Bench(int64_t tokens, int64_t in, int threads, bool exact)
      : pool(threads), workspace(MatMulWorkspaceBytes(tokens, in, threads)) {
    ctx.pool = &pool;
    ctx.workspace = &workspace;
    ctx.exact = exact;
  }
  ThreadPool pool;
  Workspace workspace;
  Ctx ctx;
};

std::vector<float> Multiply(const TestWeight& weight, std::vector<float> x, int64_t tokens,
                            bool exact = false, int threads = 2) {
  Bench bench(tokens, weight.rows.in, threads, exact);
  std::vector<float> y(tokens * weight.rows.out, -1.0f);
  MatMul op;
  op.x = TensorView(x.data(), DType::kF32, {tokens, weight.rows.in});
  op.parts[0] = {weight.packed, TensorView(y.data(), DType::kF32, {tokens, weight.rows.out})};
  serval::Run(bench.ctx, op);
  return y;
}

// y against float64 sums over `x`; the bound is relative to the sum of magnitudes, as rounding
// errors are.
void ExpectProduct(const TestWeight& weight, const std::vector<double>& x, const float* y,
                   int64_t row, double tolerance) {
  const int64_t in = weight.rows.in;
  for (int64_t o = 0; o < weight.rows.out; ++o) {
    double sum = 0, magnitude = 1e-30;
    for (int64_t i = 0; i < in; ++i) {
      const double product = weight.values[o * in + i] * x[i];
      sum += product;
      magnitude += std::fabs(product);
    }
    ASSERT_NEAR(y[o], sum, tolerance * magnitude) << "row " << row << ", output " << o;
  }
}

std::vector<double> InputSeen(DType dtype, bool exact, const float* x, int64_t in) {
  const bool quantised = dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ8_0;
  return quantised && !exact ? reference::RoundToInt8Blocks(x, in) : std::vector<double>(x, x + in);
}

struct Case {
  DType dtype;
  int64_t tokens, out, in;
};

class MatMulTest : public testing::TestWithParam<Case> {
 protected:
  void Check(bool exact) {
    const auto [dtype, tokens, out, in] = GetParam();
    const TestWeight weight = reference::RandomWeight(dtype, out, in, 7);
    const std::vector<float> x = reference::Normal(tokens * in, 8);
    reference::ForEachSimdTarget([&, tokens = tokens, in = in, out = out, dtype = dtype] {
      const std::vector<float> y = Multiply(weight, x, tokens, exact);
      for (int64_t row = 0; row < tokens; ++row) {
        ExpectProduct(weight, InputSeen(dtype, exact, &x[row * in], in), &y[row * out], row, 2e-6);
      }
    });
  }
};

TEST_P(MatMulTest, DefaultMatchesFloat64OfTheRoundedInput) { Check(false); }
TEST_P(MatMulTest, ExactMatchesFloat64) { Check(true); }

INSTANTIATE_TEST_SUITE_P(
    Shapes, MatMulTest,
    testing::Values(Case{DType::kQ4_1, 1, 16, 32}, Case{DType::kQ4_1, 1, 1, 32},
                    Case{DType::kQ4_1, 13, 37, 64}, Case{DType::kQ4_1, 8, 192, 576},
                    Case{DType::kQ4_1, 3, 50, 1536}, Case{DType::kQ4_0, 1, 17, 32},
                    Case{DType::kQ4_0, 11, 101, 576}, Case{DType::kQ4_0, 5, 16, 1536},
                    Case{DType::kQ8_0, 1, 31, 64}, Case{DType::kQ8_0, 7, 47, 576},
                    Case{DType::kQ8_0, 19, 33, 32}, Case{DType::kQ8_0, 2, 96, 1536},
                    Case{DType::kF32, 1, 1, 1}, Case{DType::kF32, 5, 37, 7},
                    Case{DType::kF32, 9, 16, 33}, Case{DType::kF16, 1, 19, 33},
                    Case{DType::kF16, 6, 64, 576}, Case{DType::kBF16, 4, 53, 7},
                    Case{DType::kBF16, 17, 48, 64}));

class MatMulTypeTest : public testing::TestWithParam<DType> {};

// A row gives the same bits alone, in any batch and at any place in it, on any number of threads:
// chunked or whole.
TEST_P(MatMulTypeTest, BatchInvariantToTheBit) {
  constexpr int64_t kTokens = 300, kOut = 100, kIn = 576;
  const TestWeight weight = reference::RandomWeight(GetParam(), kOut, kIn, 21);
  const std::vector<float> x = reference::Normal(kTokens * kIn, 22);
  for (bool exact : {false, true}) {
    reference::ForEachSimdTarget([&] {
      const std::vector<float> all = Multiply(weight, x, kTokens, exact, 3);
      for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 61}) {
        const int64_t begin = tokens == 1 ? 299 : 37 * (tokens % 5);
        const std::vector<float> some(x.begin() + begin * kIn, x.begin() + (begin + tokens) * kIn);
        const std::vector<float> y = Multiply(weight, some, tokens, exact, 1 + tokens % 2);
        ASSERT_EQ(std::memcmp(y.data(), &all[begin * kOut], y.size() * sizeof(float)), 0)
            << tokens << " tokens from " << begin;
      }
    });
  }
}

// The error that 16-bit inputs bring: a property of the method, bounded here so that a loss of
// precision shows.
TEST_P(MatMulTypeTest, DefaultStaysCloseToExact) {
  constexpr int64_t kTokens = 16, kOut = 256, kIn = 576;
  const TestWeight weight = reference::RandomWeight(GetParam(), kOut, kIn, 31);
  const std::vector<float> x = reference::Normal(kTokens * kIn, 32);
  const std::vector<float> fast = Multiply(weight, x, kTokens, false);
  const std::vector<float> exact = Multiply(weight, x, kTokens, true);
  double error = 0, size = 0;
  for (size_t i = 0; i < fast.size(); ++i) {
    error += std::pow(fast[i] - exact[i], 2);
    size += std::pow(exact[i], 2);
  }
  EXPECT_GT(size, 0);
  EXPECT_LT(std::sqrt(error / size), 4e-5);
}

// A NaN or an infinity must not become a plausible number; neither may touch another row.
TEST_P(MatMulTypeTest, NotFiniteInputStaysInItsRow) {
  constexpr int64_t kOut = 20, kIn = 64;
  const TestWeight weight = reference::RandomWeight(GetParam(), kOut, kIn, 41);
  const std::vector<float> clean = reference::Normal(3 * kIn, 42);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = clean;
    x[kIn + 40] = bad;
    reference::ForEachSimdTarget([&] {
      const std::vector<float> want = Multiply(weight, clean, 3);
      const std::vector<float> y = Multiply(weight, x, 3);
      EXPECT_EQ(std::memcmp(y.data(), want.data(), kOut * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(&y[2 * kOut], &want[2 * kOut], kOut * sizeof(float)), 0);
      for (int64_t o = 0; o < kOut; ++o) EXPECT_FALSE(std::isfinite(y[kOut + o])) << o;
    });
  }
}

TEST_P(MatMulTypeTest, ZeroAndTinyInputs) {
  constexpr int64_t kOut = 20, kIn = 64;
  const TestWeight weight = reference::RandomWeight(GetParam(), kOut, kIn, 51);
  EXPECT_EQ(Multiply(weight, std::vector<float>(kIn, 0.0f), 1), std::vector<float>(kOut, 0.0f));
  for (float value : Multiply(weight, std::vector<float>(kIn, 1e-42f), 1)) {
    EXPECT_LE(std::fabs(value), 1e-40f);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatMulTypeTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0,
                                         DType::kQ4_1, DType::kQ8_0),
                         [](const auto& info) { return std::string(Name(info.param)); });

// Three parts of three types in one call, with strided x and y, added to what y holds.
TEST(MatMul, PartsStridesAndAccumulate) {
  constexpr int64_t kTokens = 11, kIn = 96, kXStride = 128, kYStride = 200;
  const int64_t outs[3] = {48, 17, 5};
  const DType types[3] = {DType::kQ4_1, DType::kQ8_0, DType::kF16};
  std::vector<TestWeight> weights;
  for (int i = 0; i < 3; ++i) {
    weights.push_back(reference::RandomWeight(types[i], outs[i], kIn, 60 + i));
  }
  std::vector<float> x = reference::Normal(kTokens * kXStride, 63);
  const std::vector<float> before = reference::Normal(kTokens * kYStride, 64);
  for (int count = 1; count <= 3; ++count) {
    for (bool accumulate : {false, true}) {
      std::vector<float> y = before;
      Bench bench(kTokens, kIn, 2, false);
      MatMul op;
      op.count = count;
      op.accumulate = accumulate;
      op.x = TensorView(x.data(), DType::kF32, {kTokens, kIn});
      op.x.stride[0] = kXStride;
      int64_t column = 0;
      for (int i = 0; i < count; ++i) {
        op.parts[i] = {weights[i].packed,
                       TensorView(y.data() + column, DType::kF32, {kTokens, outs[i]})};
        op.parts[i].y.stride[0] = kYStride;
        column += outs[i];
      }
      serval::Run(bench.ctx, op);
      for (int64_t row = 0; row < kTokens; ++row) {
        float* got = &y[row * kYStride];
        const float* old = &before[row * kYStride];
        for (int64_t i = column; i < kYStride; ++i) ASSERT_EQ(got[i], old[i]);  // untouched
        if (accumulate) {
          for (int64_t i = 0; i < column; ++i) got[i] -= old[i];
        }
        for (int i = 0; i < count; got += outs[i++]) {
          ExpectProduct(weights[i], InputSeen(types[i], false, &x[row * kXStride], kIn), got, row,
                        accumulate ? 1e-5 : 2e-6);
        }
      }
    }
  }
}

TEST(MatMul, NoTokensIsNothing) {
  const TestWeight weight = reference::RandomWeight(DType::kQ4_1, 16, 32, 70);
  EXPECT_TRUE(Multiply(weight, {}, 0).empty());
}

TEST(MatMulDeathTest, WrongShapesAreFatal) {
  const TestWeight weight = reference::RandomWeight(DType::kQ4_1, 16, 32, 71);
  std::vector<float> x(64), y(64);
  Bench bench(2, 32, 1, false);
  MatMul op;
  op.x = TensorView(x.data(), DType::kF32, {2, 32});
  op.parts[0] = {weight.packed, TensorView(y.data(), DType::kF32, {2, 17})};
  EXPECT_DEATH(serval::Run(bench.ctx, op), "MatMul.y.*f32.2,17..*f32.2,16.");
  op.parts[0] = {weight.rows, TensorView(y.data(), DType::kF32, {2, 16})};
  EXPECT_DEATH(serval::Run(bench.ctx, op), "packed");
  op.x = TensorView(x.data(), DType::kF32, {1, 64});
  EXPECT_DEATH(serval::Run(bench.ctx, op), "weight.in == in");
}

}  // namespace
}  // namespace serval
