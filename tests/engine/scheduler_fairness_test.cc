// Long prompts and short ones, steady streams of either: nobody starves.
#include <gtest/gtest.h>

#include "tests/engine/harness.h"

namespace serval {
namespace {

RigOptions Wide() {
  return {
      .limits = {.max_tokens = 32, .max_sequences = 16, .max_logit_rows = 4, .max_context = 512},
      .pages = 200,
      .prefix_caching = false};
}

TEST(Fairness, AShortPromptPassesLongOnes) {
  Rig rig(Wide());
  for (int i = 0; i < 5; ++i) rig.Add(500, Tokens(1), i);
  rig.StepOnce();
  auto small = rig.Add(8, Tokens(1));
  rig.StepOnce();
  EXPECT_TRUE(small->done());
}

TEST(Fairness, ALongPromptProgressesUnderAStreamOfShortOnes) {
  Rig rig(Wide());
  auto large = rig.Add(480, Tokens(1));
  int steps = 0;
  for (; !large->done() && steps < 100; ++steps) {
    for (int i = 0; i < 4; ++i) rig.Add(16, Tokens(1), steps + i);  // twice the budget
    rig.StepOnce();
  }
  EXPECT_LE(steps, 480 / 16 + 2);  // half of the budget is its own
}

TEST(Fairness, ShortPromptsProgressUnderAStreamOfLongOnes) {
  Rig rig(Wide());
  std::vector<std::shared_ptr<RecordingSink>> small;
  std::vector<int> asked;
  for (int step = 0; step < 400; ++step) {
    if (step % 15 == 0) rig.Add(400, Tokens(2), step);  // a little under the capacity
    if (step % 10 == 5) {
      small.push_back(rig.Add(10, Tokens(1), step));
      asked.push_back(step);
    }
    rig.StepOnce();
    for (size_t i = 0; i < small.size(); ++i) {
      if (step >= asked[i] + 4) {
        EXPECT_TRUE(small[i]->done()) << i;
      }
    }
  }
}

TEST(Fairness, EveryRequestOfAMixEndsInBoundedTime) {
  Rig rig(Wide());
  std::vector<std::shared_ptr<RecordingSink>> all;
  for (int i = 0; i < 60; ++i) {
    all.push_back(rig.Add(i % 3 == 0 ? 400 : 1 + i % 20, Tokens(1 + i % 7), i));
  }
  int64_t work = 0;
  for (int i = 0; i < 60; ++i) work += (i % 3 == 0 ? 400 : 1 + i % 20) + 1 + i % 7;
  int steps = 0;
  while (rig.StepOnce()) ++steps;
  EXPECT_LE(steps, work / 32 * 3 / 2);
  for (const auto& sink : all) EXPECT_TRUE(sink->status().ok());
  rig.scheduler->CheckConservation();
}

TEST(Fairness, RunningDecodesGetATokenEveryStep) {
  Rig rig(Wide());
  auto decode = rig.Add(4, Tokens(50));
  rig.StepOnce();
  for (int i = 0; i < 49; ++i) {
    rig.Add(300, Tokens(1), i);
    const int64_t before = decode->record().total;
    rig.StepOnce();
    EXPECT_EQ(decode->record().total, before + 1);
  }
}

}  // namespace
}  // namespace serval
