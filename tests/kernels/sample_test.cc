// Sample against the naive definition (float64, full sort), the drawn distribution by chi-square,
// and batch invariance.
#include "kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "kernels/dispatch.h"
#include "kernels/philox.h"
#include "tests/kernels/support.h"

namespace serval::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<SampleResult> Sampled(const Ctx& ctx, std::vector<float> logits,
                                  const std::vector<SampleRow>& rows) {
  const int64_t count = rows.size(), vocab = logits.size() / count;
  std::vector<SampleResult> results(count);
  Sample op;
  op.logits = TensorView(logits.data(), DType::kF32, {count, vocab});
  op.rows = rows;
  op.results = results;
  serval::Run(ctx, op);
  return results;
}

struct Ranked {
  int id;
  double p;
};

// The definition: sort everything, cut by each filter in turn, renormalise.
std::vector<Ranked> Naive(const std::vector<float>& logits, const SampleRow& row) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (row.top_k > 0 && row.top_k < static_cast<int>(order.size())) order.resize(row.top_k);
  std::vector<Ranked> kept;
  double sum = 0;
  for (int id : order) {
    kept.push_back({id, std::exp((double{logits[id]} - logits[order[0]]) / row.temperature)});
    sum += kept.back().p;
  }
  if (row.top_p < 1) {
    double reached = 0;
    size_t count = 0;
    while (count < kept.size() && (count == 0 || reached < row.top_p * sum)) {
      reached += kept[count++].p;
    }
    kept.resize(count);
  }
  while (kept.size() > 1 && kept.back().p < row.min_p * kept[0].p) kept.pop_back();
  while (kept.back().p == 0) kept.pop_back();
  sum = 0;
  for (const Ranked& r : kept) sum += r.p;
  for (Ranked& r : kept) r.p /= sum;
  return kept;
}

// The token that the inverse distribution function gives for this row's uniform number; -1 within
// rounding of a step.
int NaiveDraw(const std::vector<Ranked>& kept, const SampleRow& row) {
  const double u = PhiloxUniform(row.seed, row.position);
  double below = 0;
  for (const Ranked& r : kept) {
    if (std::abs(u - below - r.p) < 1e-5) return -1;
    below += r.p;
    if (u < below) return r.id;
  }
  return kept.back().id;
}

TEST(Philox, GivesThePublishedKnownAnswers) {  // Random123, kat_vectors, philox4x32 10
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformsFillTheIntervalEvenly) {
  std::vector<int> bins(100);
  const int draws = 200000;
  for (int i = 0; i < draws; ++i) {
    const double u = PhiloxUniform(i % 7, i / 7);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<int>(u * 100)];
  }
  double chi2 = 0;
  for (int n : bins) chi2 += (n - draws / 100.0) * (n - draws / 100.0) / (draws / 100.0);
  EXPECT_LT(chi2, 149.4);  // 99 degrees of freedom, p = 0.0008
}

TEST(Sample, GreedyTakesTheLowestIdOfTies) {
  TestCtx test;
  ForEachTarget([&](const char* target) {
    for (int vocab : {1, 5, 17, 1000, 49152}) {
      std::vector<float> logits = Normals(vocab, vocab);
      logits[vocab / 2] = logits[vocab - 1] = 50.0f;
      SampleRow row;
      row.temperature = 0;
      EXPECT_EQ(Sampled(test.ctx, logits, {row})[0].chosen.token, vocab / 2) << target << vocab;
    }
  });
}

TEST(Sample, ReportsRowsThatAreNotFinite) {
  TestCtx test;
  const int vocab = 100;
  for (int bad : {0, 63, 64, 97, 99}) {
    std::vector<float> logits = Normals(4 * vocab, 1);
    logits[bad] = NAN;
    std::fill_n(logits.begin() + vocab, vocab, -kInf);
    logits[2 * vocab + bad] = kInf;
    std::fill_n(logits.begin() + 3 * vocab, vocab, -kInf);
    logits[3 * vocab + bad] = -5.0f;
    const auto results = Sampled(test.ctx, logits, std::vector<SampleRow>(4));
    EXPECT_FALSE(results[0].finite);
    EXPECT_FALSE(results[1].finite);
    EXPECT_FALSE(results[2].finite);
    EXPECT_TRUE(results[3].finite);
    EXPECT_EQ(results[3].chosen.token, bad);
  }
}

struct Filter {
  float temperature;
  int top_k;
  float top_p, min_p;
};

SampleRow RowOf(const Filter& filter) {
  SampleRow row;
  row.temperature = filter.temperature;
  row.top_k = filter.top_k;
  row.top_p = filter.top_p;
  row.min_p = filter.min_p;
  return row;
}

class Filters : public ::testing::TestWithParam<Filter> {};

TEST_P(Filters, KeepAndDrawWhatTheDefinitionDoes) {
  TestCtx test;
  const int vocab = 3001, draws = 64;
  ForEachTarget([&](const char* target) {
    for (float spread : {0.3f, 2.0f, 6.0f}) {
      std::vector<float> one = Normals(vocab, 17, spread), logits;
      for (int i = 0; i < vocab; i += 3) one[i] = std::round(one[i] * 4) / 4;  // many ties
      one[5] = -kInf;
      std::vector<SampleRow> rows(draws);
      for (int i = 0; i < draws; ++i) {
        rows[i] = RowOf(GetParam());
        rows[i].seed = 77;
        rows[i].position = i;
        logits.insert(logits.end(), one.begin(), one.end());
      }
      std::vector<Ranked> kept = Naive(one, rows[0]);
      const Filter& f = GetParam();
      if (f.top_k == 0 && f.top_p == 1 && f.min_p == 0) {  // drawn in id order
        std::sort(kept.begin(), kept.end(), [](auto& a, auto& b) { return a.id < b.id; });
      }
      const auto results = Sampled(test.ctx, logits, rows);
      int compared = 0;
      for (int i = 0; i < draws; ++i) {
        const int want = NaiveDraw(kept, rows[i]);
        if (want < 0) continue;
        ++compared;
        ASSERT_EQ(results[i].chosen.token, want) << target << " spread " << spread << " draw " << i;
      }
      EXPECT_GT(compared, draws / 2);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    EachAndTogether, Filters,
    ::testing::Values(Filter{1, 0, 1, 0}, Filter{0.7f, 0, 1, 0}, Filter{1, 1, 1, 0},
                      Filter{1, 40, 1, 0}, Filter{3, 2999, 1, 0}, Filter{1, 0, 0.9f, 0},
                      Filter{0.6f, 0, 0.95f, 0}, Filter{1, 0, 0.0f, 0}, Filter{5, 0, 0.999f, 0},
                      Filter{1, 0, 1, 0.05f}, Filter{1, 0, 1, 1.0f}, Filter{1, 0, 1, 1e-4f},
                      Filter{0.8f, 50, 0.9f, 0.02f}, Filter{2, 0, 0.8f, 0.1f}));

TEST(Sample, DrawsTheDistribution) {
  TestCtx test;
  const int vocab = 40, draws = 40000;
  const std::vector<float> one = Normals(vocab, 3, 1.5f);
  for (Filter f : {Filter{0.9f, 0, 1, 0}, Filter{1.3f, 25, 0.97f, 0}}) {
    std::vector<float> logits;
    std::vector<SampleRow> rows(draws);
    for (int i = 0; i < draws; ++i) {
      rows[i] = RowOf(f);
      rows[i].seed = 1000 + i;
      rows[i].position = 12;
      logits.insert(logits.end(), one.begin(), one.end());
    }
    std::map<int, int> counts;
    for (const SampleResult& r : Sampled(test.ctx, logits, rows)) ++counts[r.chosen.token];
    const std::vector<Ranked> kept = Naive(one, rows[0]);
    double chi2 = 0;
    int seen = 0;
    for (const Ranked& r : kept) {
      const double expected = r.p * draws, got = counts[r.id];
      chi2 += (got - expected) * (got - expected) / expected;
      seen += counts[r.id];
    }
    EXPECT_EQ(seen, draws) << "a token outside the kept set was drawn";
    const double freedom = kept.size() - 1.0;
    EXPECT_LT(chi2, freedom + 4 * std::sqrt(2 * freedom));
  }
}

TEST(Sample, PenaltiesFollowTheirFormulas) {
  TestCtx test;
  const int vocab = 12;
  const std::vector<float> logits = {2, -2, 1, -1, 3, 0.5f, 0, 4, -3, 1.5f, 2.5f, -0.5f};
  const std::vector<int32_t> prompt = {0, 1, 0, 4}, output = {4, 4, 5, 1, 4}, banned = {7};
  const std::vector<std::pair<int32_t, float>> bias = {{2, 1.5f}, {1, -1.0f}, {2, 0.25f}};
  SampleRow row;
  row.repetition_penalty = 1.3f;
  row.presence_penalty = 0.4f;
  row.frequency_penalty = 0.2f;
  row.prompt = prompt;
  row.output = output;
  row.banned = banned;
  row.logit_bias = bias;
  row.top_logprobs = vocab;
  std::vector<double> want(logits.begin(), logits.end());
  for (auto [id, add] : bias) want[id] += add;
  want[7] = -INFINITY;
  for (int id : {0, 1, 4, 5}) want[id] = want[id] > 0 ? want[id] / 1.3 : want[id] * 1.3;
  want[4] -= 0.4 + 3 * 0.2;
  want[5] -= 0.4 + 0.2;
  want[1] -= 0.4 + 0.2;
  double sum = 0;
  for (double x : want) sum += std::exp(x);
  // Twice in a batch: the scratch must be clean for the second row.
  std::vector<float> twice = logits;
  twice.insert(twice.end(), logits.begin(), logits.end());
  for (const SampleResult& result : Sampled(test.ctx, twice, {row, row})) {
    ASSERT_EQ(result.top.size(), vocab - 1u);  // the banned one has no probability
    for (const TokenLogprob& t : result.top) {
      EXPECT_NEAR(t.logprob, want[t.token] - std::log(sum), 2e-6) << t.token;
    }
    EXPECT_NE(result.chosen.token, 7);
  }
}

TEST(Sample, TheSmallestRepetitionPenaltyStaysFinite) {
  TestCtx test;
  const std::vector<int32_t> prompt = {1, 2};
  SampleRow row;
  row.temperature = 0;
  row.repetition_penalty = std::numeric_limits<float>::denorm_min();
  row.prompt = prompt;
  const SampleResult result = Sampled(test.ctx, {3, 2, 1, -4}, {row}).front();
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(result.chosen.token, 1);
}

TEST(Sample, LogprobsRanksAndTopsAreExact) {
  TestCtx test;
  const int vocab = 49152;
  std::vector<float> one = Normals(vocab, 8, 3.0f);
  for (int i = 0; i < vocab; i += 2) one[i] = std::round(one[i] * 8) / 8;
  one[100] = -kInf;
  double sum = 0;
  for (float x : one) sum += std::exp(double{x});
  std::vector<int> order(vocab), rank(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return one[a] > one[b]; });
  for (int i = 0; i < vocab; ++i) rank[order[i]] = i + 1;
  std::vector<SampleRow> rows;
  std::vector<float> logits;
  for (int given : {-1, 0, 7, 31, 32, 100, 49151, order[0], order[1], order[20000]}) {
    SampleRow row;
    row.given = given;
    row.top_logprobs = given == 0 ? -1 : 20;
    row.temperature = 0.5f;  // must not show in the log-probabilities
    rows.push_back(row);
    logits.insert(logits.end(), one.begin(), one.end());
  }
  ForEachTarget([&](const char* target) {
    const auto results = Sampled(test.ctx, logits, rows);
    for (size_t r = 0; r < rows.size(); ++r) {
      const TokenLogprob& chosen = results[r].chosen;
      if (rows[r].given >= 0) {
        EXPECT_EQ(chosen.token, rows[r].given);
      }
      EXPECT_EQ(chosen.rank, rank[chosen.token]) << target;
      if (chosen.token == 100) {
        EXPECT_EQ(chosen.logprob, -kInf);
      } else {
        EXPECT_NEAR(chosen.logprob, one[chosen.token] - std::log(sum), 4e-6);
      }
      ASSERT_EQ(results[r].top.size(), rows[r].top_logprobs < 0 ? 0u : 20u);
      for (size_t i = 0; i < results[r].top.size(); ++i) {
        EXPECT_EQ(results[r].top[i].token, order[i]);
        EXPECT_EQ(results[r].top[i].rank, static_cast<int>(i) + 1);
        EXPECT_NEAR(results[r].top[i].logprob, one[order[i]] - std::log(sum), 4e-6);
      }
    }
  });
}

TEST(Sample, ARowDoesNotDependOnItsBatchOrThreads) {
  TestCtx one(1), three(3);
  const int vocab = 5000, count = 24;
  const std::vector<float> logits = Normals(vocab * count, 12, 2.0f);
  const std::vector<int32_t> output = {1, 2, 3, 2, 4000};
  std::vector<SampleRow> rows(count);
  for (int i = 0; i < count; ++i) {
    rows[i].temperature = i % 4 == 0 ? 0.0f : 0.5f + 0.1f * i;
    rows[i].top_k = i % 3 == 0 ? 30 + i : 0;
    rows[i].top_p = i % 2 == 0 ? 0.9f : 1.0f;
    rows[i].min_p = i % 5 == 0 ? 0.01f : 0.0f;
    rows[i].presence_penalty = i % 7 == 0 ? 1.0f : 0.0f;
    rows[i].output = output;
    rows[i].top_logprobs = i % 6 - 1;
    rows[i].seed = 5 + i;
    rows[i].position = 100 * i;
  }
  const auto batch = Sampled(three.ctx, logits, rows);
  for (int i = 0; i < count; ++i) {
    const std::vector<float> mine(logits.begin() + i * vocab, logits.begin() + (i + 1) * vocab);
    const auto alone = Sampled(one.ctx, mine, {rows[i]})[0];
    EXPECT_EQ(alone.chosen.token, batch[i].chosen.token);
    EXPECT_EQ(alone.chosen.logprob, batch[i].chosen.logprob);
    EXPECT_EQ(alone.chosen.rank, batch[i].chosen.rank);
    ASSERT_EQ(alone.top.size(), batch[i].top.size());
    for (size_t t = 0; t < alone.top.size(); ++t) {
      EXPECT_EQ(alone.top[t].token, batch[i].top[t].token);
      EXPECT_EQ(alone.top[t].logprob, batch[i].top[t].logprob);
    }
  }
}

TEST(Sample, SeedAndPositionMakeTheDraw) {
  TestCtx test;
  const int vocab = 1000, draws = 50;
  std::vector<SampleRow> rows(2 * draws);
  std::set<int> tokens;
  for (int i = 0; i < draws; ++i) rows[i].position = i, rows[draws + i].seed = uint64_t{1} << 40;
  for (int i = 0; i < draws; ++i) rows[draws + i].position = i;
  const std::vector<float> logits(2 * draws * vocab, 0.25f);  // flat
  const auto results = Sampled(test.ctx, logits, rows);
  for (const SampleResult& r : results) tokens.insert(r.chosen.token);
  EXPECT_GT(tokens.size(), 85u);
  for (const SampleResult& r : results) ASSERT_TRUE(r.chosen.token >= 0 && r.chosen.token < vocab);
}

TEST(Sample, StaysWithinItsDeclaredWorkspace) {
  for (int vocab : {1, 1024, 1025, 50257}) {
    TestCtx test(3, SampleWorkspaceBytes(vocab, 3));
    std::vector<SampleRow> rows(4);
    for (SampleRow& row : rows) row.top_p = 0.99f, row.frequency_penalty = 1, row.top_logprobs = 5;
    Sampled(test.ctx, Normals(4 * vocab, 1), rows);
    EXPECT_LE(test.workspace.peak(), test.workspace.bytes());
  }
}

TEST(SampleDeathTest, RefusesTokensOutsideTheVocabulary) {
  TestCtx test(1);
  const std::vector<int32_t> banned = {10};
  SampleRow row;
  row.banned = banned;
  EXPECT_DEATH(Sampled(test.ctx, Normals(10, 1), {row}), "10 vs 10");
}

}  // namespace
}  // namespace serval::testing
