// The scheduler and its memory: admission, pre-emption, prefixes found again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/harness.h"

namespace serval {
namespace {

using testing::ElementsAre;

std::vector<int32_t> Expected(int64_t prompt, int64_t count, uint64_t seed = 0) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(Rig::Drawn(prompt + i, seed));
  return tokens;
}

TEST(Preemption, TheLatestGivesWayAndGetsTheSameTokensLater) {
  Rig rig({.pages = 5, .prefix_caching = false});
  auto first = rig.Add(60, Tokens(100)), second = rig.Add(60, Tokens(100), 20);
  rig.RunDry();
  EXPECT_GE(rig.scheduler->stats().num_preemptions, 1u);
  EXPECT_EQ(first->tokens(), Expected(60, 100));
  EXPECT_EQ(second->tokens(), Expected(60, 100));
  EXPECT_TRUE(second->status().ok());
  EXPECT_EQ(second->record().usage.completion_tokens, 100);
}

TEST(Preemption, LowPriorityGoesFirst) {
  Rig rig({.pages = 3, .prefix_caching = false});
  Request low;
  low.prompt.assign(60, 1);
  low.sampling = Tokens(70);
  low.priority = 1;
  Request high = low;
  high.priority = 0;
  auto low_sink = rig.Add(low), high_sink = rig.Add(high);
  while (!high_sink->done()) ASSERT_TRUE(rig.StepOnce());
  EXPECT_FALSE(low_sink->done());
  EXPECT_GE(rig.scheduler->stats().num_preemptions, 1u);
  rig.RunDry();
  EXPECT_EQ(low_sink->tokens(), Expected(60, 70));
}

TEST(Preemption, ChoicesWithoutRoomToShareComputeThePromptThemselves) {
  Rig rig({.pages = 3, .prefix_caching = false});
  SamplingParams sampling = Tokens(40);
  sampling.n = 4;
  sampling.seed = 3;
  auto sink = rig.Add(100, sampling);
  rig.RunDry();
  for (int c = 0; c < 4; ++c) {
    EXPECT_EQ(sink->tokens(c), Expected(100, 40, ChoiceSeed(3, c))) << c;
  }
}

TEST(Preemption, PromptLogprobsAreNotReportedTwice) {
  Rig rig({.pages = 3});
  SamplingParams sampling = Tokens(60);
  sampling.prompt_logprobs = 0;
  auto first = rig.Add(40, Tokens(80)), second = rig.Add(60, sampling, 20);
  rig.RunDry();
  EXPECT_GE(rig.scheduler->stats().num_preemptions, 1u);
  const auto record = second->record();
  ASSERT_EQ(record.prompt.size(), 59u);
  for (int i = 0; i < 59; ++i) EXPECT_EQ(record.prompt[i].token, 21 + i);
  EXPECT_EQ(record.tokens[0], Expected(60, 60));
}

TEST(Admission, WaitsForTheWholePrompt) {
  Rig rig({.pages = 4, .prefix_caching = false});
  auto first = rig.Add(190, Tokens(2));
  auto second = rig.Add(120, Tokens(2), 20);
  auto small = rig.Add(4, Tokens(2), 30);
  rig.StepOnce();
  EXPECT_EQ(rig.scheduler->running(), 1);
  EXPECT_EQ(rig.scheduler->waiting(), 2);  // the small one does not pass: order holds
  rig.RunDry();
  EXPECT_TRUE(second->status().ok() && small->status().ok());
}

TEST(PrefixCache, IsFoundAgainButNeverWhole) {
  Rig rig;
  for (const auto& [prompt, cached] : {std::pair<int64_t, int64_t>{128, 0},
                                       {128, 64},
                                       {129, 128},
                                       {200, 128},
                                       {64, 0},
                                       {65, 64}}) {
    auto sink = rig.Add(prompt, Tokens(2));
    rig.RunDry();
    EXPECT_EQ(sink->record().usage.cached_tokens, cached) << prompt;
    EXPECT_EQ(sink->tokens(), Expected(prompt, 2));
  }
  EXPECT_EQ(rig.scheduler->stats().prefix_cache_queries, 714u);
  EXPECT_EQ(rig.scheduler->stats().prefix_cache_hits, 384u);
}

TEST(PrefixCache, GeneratedBlocksAreFoundToo) {
  Rig rig;
  auto first = rig.Add(10, Tokens(130));
  rig.RunDry();
  Request request;
  for (int i = 0; i < 10; ++i) request.prompt.push_back(i);
  for (const int32_t token : first->tokens()) request.prompt.push_back(token);
  request.sampling = Tokens(1);
  auto second = rig.Add(request);
  rig.RunDry();
  EXPECT_EQ(second->record().usage.cached_tokens, 128);
}

TEST(PrefixCache, IsSharedUnderEqualSaltsOnlyAndCanBeOff) {
  Request request;
  for (int i = 0; i < 100; ++i) request.prompt.push_back(i % 97);
  request.sampling = Tokens(1);
  request.cache_salt = 5;
  {
    Rig rig;
    rig.Add(request);
    rig.RunDry();
    auto same = rig.Add(request);
    request.cache_salt = 6;
    auto other = rig.Add(request);
    rig.RunDry();
    EXPECT_EQ(same->record().usage.cached_tokens, 64);
    EXPECT_EQ(other->record().usage.cached_tokens, 0);
  }
  Rig off({.prefix_caching = false});
  off.Add(request);
  off.RunDry();
  auto again = off.Add(request);
  off.RunDry();
  EXPECT_EQ(again->record().usage.cached_tokens, 0);
  EXPECT_EQ(off.scheduler->stats().prefix_cache_queries, 0u);
}

TEST(PrefixCache, GivesWayWhenRoomIsNeeded) {
  Rig rig({.pages = 4});
  rig.Add(130, Tokens(1));
  rig.RunDry();
  EXPECT_EQ(rig.bank().Free(), rig.bank().Capacity());
  auto again = rig.Add(130, Tokens(1));
  rig.RunDry();
  EXPECT_EQ(again->record().usage.cached_tokens, 128);
  rig.Add(250, Tokens(1), 40);  // needs all four pages
  rig.RunDry();
  auto gone = rig.Add(130, Tokens(1));
  rig.RunDry();
  EXPECT_EQ(gone->record().usage.cached_tokens, 0);
}

TEST(PrefixCache, RunningSequencesShareTheSamePages) {
  Rig rig;
  rig.Add(130, Tokens(50));
  for (int i = 0; i < 10; ++i) rig.StepOnce();
  const int64_t page = rig.bank().Need(1).value;
  EXPECT_EQ(rig.bank().Used().value, 3 * page);
  auto second = rig.Add(130, Tokens(5));
  rig.StepOnce();
  EXPECT_EQ(rig.bank().Used().value, 4 * page);
  rig.RunDry();
  EXPECT_EQ(second->tokens(), Expected(130, 5));
}

TEST(PrefixCache, PromptLogprobsComputeEverything) {
  Rig rig;
  rig.Add(130, Tokens(1));
  rig.RunDry();
  SamplingParams sampling = Tokens(1);
  sampling.prompt_logprobs = 0;
  auto sink = rig.Add(130, sampling);
  rig.RunDry();
  EXPECT_EQ(sink->record().usage.cached_tokens, 0);
  EXPECT_EQ(sink->record().prompt.size(), 129u);
}

TEST(Usage, CountsSharedPagesOnce) {
  Rig rig;
  SamplingParams sampling = Tokens(2);
  sampling.n = 3;
  auto sink = rig.Add(130, sampling);
  rig.RunDry();
  // Two full pages shared, and a last one for each choice.
  EXPECT_EQ(sink->record().usage.kv_bytes, rig.bank().Need(1).value * (2 + 3));
}

}  // namespace
}  // namespace serval
