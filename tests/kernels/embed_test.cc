#include "kernels/embed/embed.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/dispatch.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "tests/support/reference.h"

namespace serval {
namespace {

struct Bench {
  explicit Bench(int threads = 1) : pool(threads) {}
  ThreadPool pool;
  Workspace workspace{64};
  Ctx ctx{.pool = &pool, .workspace = &workspace};
};

TEST(Embed, RowsOfTheTableFromBothLayouts) {
  Bench bench;
  for (DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    constexpr int64_t kVocab = 37, kHidden = 64;
    const reference::TestWeight table = reference::RandomWeight(dtype, kVocab, kHidden, 1);
    for (int64_t tokens : {0, 1, 5, 400}) {  // the last in parallel
      std::vector<int32_t> ids(tokens);
      for (int64_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>(i * 17 % kVocab);
      for (const Weight& weight : {table.rows, table.packed}) {
        std::vector<float> y(tokens * kHidden);
        serval::Run(bench.ctx, Embed{.ids = TensorView(ids.data(), DType::kI32, {tokens}),
                                     .table = weight,
                                     .y = TensorView(y.data(), DType::kF32, {tokens, kHidden}),
                                     .scale = 2.0f});
        for (int64_t i = 0; i < tokens * kHidden; ++i) {
          ASSERT_NEAR(y[i], 2 * table.values[ids[i / kHidden] * kHidden + i % kHidden], 2e-7);
        }
      }
    }
  }
}

TEST(EmbedDeathTest, IdsOutsideTheTableAreOurBug) {
  Bench bench;
  const reference::TestWeight table = reference::RandomWeight(DType::kF32, 5, 8, 1);
  std::vector<float> y(8);
  for (int32_t id : {-1, 5}) {
    EXPECT_DEATH(serval::Run(bench.ctx, Embed{.ids = TensorView(&id, DType::kI32, {1}),
                                              .table = table.rows,
                                              .y = TensorView(y.data(), DType::kF32, {1, 8})}),
                 "check failed: row");
  }
}

TEST(GatherRows, CopiesRowsFromStridedInput) {
  Bench bench;
  constexpr int64_t kTokens = 9, kDim = 50, kStride = 64;
  std::vector<float> x = reference::Normal(kTokens * kStride, 2);
  for (int64_t count : {0, 1, 4, 700}) {
    std::vector<int32_t> rows(count);
    for (int64_t i = 0; i < count; ++i) rows[i] = static_cast<int32_t>((i * 5 + 3) % kTokens);
    std::vector<float> y(count * kDim);
    GatherRows op{.x = TensorView(x.data(), DType::kF32, {kTokens, kDim}),
                  .rows = TensorView(rows.data(), DType::kI32, {count}),
                  .y = TensorView(y.data(), DType::kF32, {count, kDim})};
    op.x.stride[0] = kStride;
    serval::Run(bench.ctx, op);
    for (int64_t i = 0; i < count * kDim; ++i) {
      ASSERT_EQ(y[i], x[rows[i / kDim] * kStride + i % kDim]);
    }
  }
}

TEST(GatherRowsDeathTest, RowsOutsideTheInputAreOurBug) {
  Bench bench;
  std::vector<float> x(6), y(3);
  for (int32_t row : {-1, 2}) {
    EXPECT_DEATH(serval::Run(bench.ctx, GatherRows{.x = TensorView(x.data(), DType::kF32, {2, 3}),
                                                   .rows = TensorView(&row, DType::kI32, {1}),
                                                   .y = TensorView(y.data(), DType::kF32, {1, 3})}),
                 "check failed: rows");
  }
}

}  // namespace
}  // namespace serval
