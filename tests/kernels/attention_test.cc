// PagedAttention against float64, and bit for bit against itself under every way of cutting the
// work.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/paged_cache.h"

namespace serval::testing {
namespace {

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance) << what << " at " << i;
  }
}

bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

TEST(PagedAttention, AgreesWithFloat64OverHeadShapes) {
  TestCtx test;
  for (Heads heads : {Heads{1, 1, 64}, Heads{9, 3, 64}, Heads{7, 1, 32}, Heads{5, 5, 8},
                      Heads{14, 2, 128}, Heads{3, 1, 40}, Heads{2, 1, 256}, Heads{3, 1, 20}}) {
    PagedCache cache(heads, {129});
    const std::vector<float> out = cache.Step(test.ctx, {{0, 0, 129}});
    ExpectNear(out, cache.Reference(0), 3e-6, "head_dim " + std::to_string(heads.dim));
  }
}

TEST(PagedAttention, AgreesAtPageAndSplitEdgesInEveryType) {
  TestCtx test;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int length : {1, 2, 63, 64, 65, 511, 512, 513}) {
      PagedCache cache({3, 1, 16}, {length}, dtype);
      const std::vector<float> out = cache.Step(test.ctx, {{0, 0, length}});
      ExpectNear(out, cache.Reference(0), 3e-6, Name(dtype) + std::to_string(length));
    }
  }
}

TEST(PagedAttention, AgreesUnderSlidingWindows) {
  TestCtx test;
  for (int window : {1, 2, 63, 64, 65, 200, 512, 5000}) {
    PagedCache cache({3, 1, 16}, {700});
    const std::vector<float> out = cache.Step(test.ctx, {{0, 0, 700}}, window);
    ExpectNear(out, cache.Reference(0, window), 3e-6, "window " + std::to_string(window));
  }
}

TEST(PagedAttention, EveryTargetAgrees) {
  TestCtx test;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ForEachTarget([&](const char* target) {
      PagedCache cache({6, 2, 72}, {200, 33}, dtype);
      const std::vector<float> first = cache.Step(test.ctx, {{0, 0, 200}});
      ExpectNear(first, cache.Reference(0), 3e-6, target);
      const std::vector<float> second = cache.Step(test.ctx, {{1, 0, 33}}, 10);
      ExpectNear(second, cache.Reference(1, 10), 3e-6, target);
    });
  }
}

// Large scores: the running maximum moves by hundreds, yet nothing overflows.
TEST(PagedAttention, SurvivesLargeScores) {
  TestCtx test;
  PagedCache cache({2, 1, 64}, {600});
  for (float& q : *cache.queries(0)) q *= 100.0f;
  const std::vector<float> out = cache.Step(test.ctx, {{0, 0, 600}});
  ExpectNear(out, cache.Reference(0), 2e-4, "scores x 100");
}

class Invariance : public ::testing::TestWithParam<std::tuple<DType, int>> {};

TEST_P(Invariance, ChunksBatchMatesAndThreadsDoNotShow) {
  const DType dtype = std::get<0>(GetParam());
  const int window = std::get<1>(GetParam());
  const Heads heads{9, 3, 64};
  const int row = heads.q * heads.dim;
  TestCtx two(2), one(1), four(4);
  ForEachTarget([&](const char* target) {
    PagedCache whole(heads, {1200, 70, 513}, dtype);
    const std::vector<float> all = whole.Step(two.ctx, {{0, 0, 1200}}, window);
    // Chunks of growing primes, each with batch-mates: a decode of sequence 1, a chunk of
    // sequence 2.
    PagedCache parts(heads, {1200, 70, 513}, dtype);
    int past = 0, mate = 0, other = 0, turn = 0;
    for (int count : {1, 2, 61, 3, 127, 1, 1, 317, 7, 600, 79, 1}) {
      std::vector<PagedCache::Part> step = {{0, past, count}};
      if (turn % 2 == 0) step.insert(step.begin(), {1, mate++, 1});
      if (turn % 3 == 0) step.push_back({2, other, 90}), other += 90;
      const Ctx& ctx = turn % 3 == 0 ? four.ctx : turn % 3 == 1 ? one.ctx : two.ctx;
      const std::vector<float> out = parts.Step(ctx, step, window);
      const float* mine = out.data() + (turn % 2 == 0 ? row : 0);
      ASSERT_TRUE(SameBits(mine, all.data() + int64_t{past} * row, int64_t{count} * row))
          << target << " past " << past << " count " << count;
      past += count;
      ++turn;
    }
    ASSERT_EQ(past, 1200);
  });
}

INSTANTIATE_TEST_SUITE_P(TypesAndWindows, Invariance,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kF16,
                                                              DType::kBF16),
                                            ::testing::Values(0, 100)));

TEST(PagedAttention, LongContextDecodeIsThePrefillRowBitForBit) {
  const Heads heads{4, 2, 32};
  TestCtx two(2), one(1);
  PagedCache cache(heads, {4099}, DType::kBF16);
  const std::vector<float> all = cache.Step(two.ctx, {{0, 0, 4099}});
  for (int p : {0, 511, 512, 2047, 4095, 4098}) {
    for (Ctx* ctx : {&one.ctx, &two.ctx}) {
      const std::vector<float> out = cache.Step(*ctx, {{0, p, 1}});
      EXPECT_TRUE(SameBits(out.data(), &all[int64_t{p} * 128], 128)) << p;
    }
  }
}

TEST(PagedAttention, TakesRaggedBatchesWithIdleSequences) {
  TestCtx test;
  PagedCache cache({3, 3, 24}, {5, 64, 1, 300});
  const std::vector<float> out =
      cache.Step(test.ctx, {{0, 0, 5}, {1, 0, 0}, {1, 0, 64}, {2, 0, 1}, {3, 0, 300}});
  std::vector<double> want;
  for (int s : {0, 1, 2, 3}) {
    const std::vector<double> reference = cache.Reference(s);
    want.insert(want.end(), reference.begin(), reference.end());
  }
  ExpectNear(out, want, 3e-6, "ragged");
}

TEST(PagedAttention, StaysWithinItsDeclaredWorkspace) {
  for (int threads : {1, 2, 5}) {
    for (Heads heads : {Heads{9, 3, 64}, Heads{7, 1, 40}, Heads{128, 1, 8}}) {
      for (int tokens : {1, 3, 70}) {
        TestCtx test(threads, PagedAttentionWorkspaceBytes(tokens, heads.q, heads.kv, heads.dim,
                                                           1500, threads));
        PagedCache cache(heads, {1500, 1500, 1500}, DType::kBF16);
        cache.Step(test.ctx, {{0, 1500 - tokens, tokens}});
        std::vector<PagedCache::Part> singles;
        for (int i = 0; i < tokens; ++i) singles.push_back({i % 3, 1499 - i / 3, 1});
        cache.Step(test.ctx, singles);
        EXPECT_LE(test.workspace.peak(), test.workspace.bytes());
      }
    }
  }
  EXPECT_LE(PagedAttentionWorkspaceBytes(512, 9, 3, 64, 32768, 2), 6 << 20);
}

TEST(PagedAttentionDeathTest, NamesTheWrongField) {
  PagedAttention op;
  std::vector<float> q(2 * 64);
  op.q = TensorView(q.data(), DType::kF32, {1, 2, 64});
  op.out = TensorView(q.data(), DType::kF32, {1, 1, 64});
  EXPECT_DEATH(Validate(op), "PagedAttention.out");
}

}  // namespace
}  // namespace serval::testing
