// The flattened arrays of steps, sequence by sequence, as the executor will see them.
#include "engine/scheduler.h"

#include <gmock/gmock.h>

#include "tests/engine/harness.h"

namespace serval {
namespace {

using testing::ElementsAre;

void Answer(Step& step) {
  for (size_t row = 0; row < step.rows.size(); ++row) {
    step.results[row].finite = true;
    step.results[row].chosen.token = 50 + static_cast<int32_t>(row);
  }
}

TEST(Scheduler, FlattensPrefillAndDecode) {
  Rig rig;
  auto first = rig.Add(5, Tokens(3)), second = rig.Add(3, Tokens(3), 10);
  Step& step = rig.scheduler->Plan(rig.now());
  // The shortest remaining comes first in the step.
  EXPECT_THAT(step.tokens, ElementsAre(10, 11, 12, 0, 1, 2, 3, 4));
  EXPECT_THAT(step.positions, ElementsAre(0, 1, 2, 0, 1, 2, 3, 4));
  ASSERT_EQ(step.sequences.size(), 2u);
  EXPECT_EQ(step.sequences[0].token_begin, 0);
  EXPECT_EQ(step.sequences[0].token_count, 3);
  EXPECT_EQ(step.sequences[1].token_begin, 3);
  EXPECT_EQ(step.sequences[1].token_count, 5);
  EXPECT_EQ(step.sequences[1].past, 0);
  EXPECT_THAT(step.rows, ElementsAre(2, 7));
  EXPECT_EQ(step.samples[0].position, 3);
  EXPECT_EQ(step.samples[1].position, 5);
  Answer(step);
  rig.scheduler->Commit(step, rig.now());
  EXPECT_THAT(first->tokens(), ElementsAre(51));
  EXPECT_THAT(second->tokens(), ElementsAre(50));

  Step& next = rig.scheduler->Plan(rig.now());
  EXPECT_THAT(next.tokens, ElementsAre(51, 50));
  EXPECT_THAT(next.positions, ElementsAre(5, 3));
  EXPECT_THAT(next.rows, ElementsAre(0, 1));
  EXPECT_EQ(next.sequences[0].past, 5);
  EXPECT_EQ(next.sequences[1].past, 3);
  EXPECT_THAT(next.samples[0].output, ElementsAre(51));
  EXPECT_THAT(next.samples[0].prompt, ElementsAre(0, 1, 2, 3, 4));
  Answer(next);
  rig.scheduler->Commit(next, rig.now());
  rig.RunDry();
  EXPECT_EQ(first->record().usage.completion_tokens, 3);
  EXPECT_THAT(first->record().finished, ElementsAre(std::pair(0, FinishReason::kLength)));
}

TEST(Scheduler, PrefillIsChunkedAndOnlyTheLastRowHasLogits) {
  Rig rig;
  rig.Add(40, Tokens(1));
  for (const int64_t count : {16, 16}) {
    const Step& step = rig.scheduler->Plan(rig.now());
    EXPECT_EQ(static_cast<int64_t>(step.tokens.size()), count);
    EXPECT_TRUE(step.rows.empty());
    rig.scheduler->Commit(step, rig.now());
  }
  Step& last = rig.scheduler->Plan(rig.now());
  EXPECT_EQ(last.tokens.size(), 8u);
  EXPECT_EQ(last.sequences[0].past, 32);
  EXPECT_THAT(last.rows, ElementsAre(7));
  Answer(last);
  rig.scheduler->Commit(last, rig.now());
  rig.RunDry();
}

TEST(Scheduler, DecodesComeBeforePrefill) {
  Rig rig;
  rig.Add(2, Tokens(10));
  rig.StepOnce();
  rig.Add(100, Tokens(1), 20);
  rig.StepOnce();
  EXPECT_THAT(rig.counts, ElementsAre(1, 15));
  rig.StepOnce();
  EXPECT_THAT(rig.counts, ElementsAre(1, 15));
  rig.RunDry();
}

TEST(Scheduler, PromptLogprobRowsComeInOrderAndOnce) {
  Rig rig;
  SamplingParams sampling = Tokens(2);
  sampling.prompt_logprobs = 0;
  auto sink = rig.Add(40, sampling);
  const Step& step = rig.scheduler->Plan(rig.now());
  ASSERT_EQ(step.rows.size(), 16u);
  EXPECT_EQ(step.samples[0].given, 1);
  EXPECT_EQ(step.samples[0].position, 1);
  EXPECT_EQ(step.samples[15].given, 16);
  rig.scheduler->Commit(step, rig.now());
  rig.RunDry();
  const auto record = sink->record();
  EXPECT_THAT(record.slices,
              ElementsAre(std::pair<int64_t, int64_t>(1, 16), std::pair<int64_t, int64_t>(17, 16),
                          std::pair<int64_t, int64_t>(33, 7)));
  EXPECT_EQ(record.prompt.size(), 39u);
  EXPECT_EQ(record.total, 2);
}

TEST(Scheduler, ChoicesShareOnePrefill) {
  Rig rig;
  SamplingParams sampling = Tokens(3);
  sampling.n = 3;
  sampling.seed = 9;
  auto sink = rig.Add(10, sampling);
  Step& step = rig.scheduler->Plan(rig.now());
  EXPECT_EQ(step.sequences.size(), 1u);
  EXPECT_THAT(step.rows, ElementsAre(9, 9, 9));
  EXPECT_EQ(step.samples[0].seed, 9u);
  EXPECT_EQ(step.samples[1].seed, ChoiceSeed(9, 1));
  EXPECT_NE(step.samples[1].seed, step.samples[2].seed);
  Answer(step);
  rig.scheduler->Commit(step, rig.now());
  EXPECT_EQ(rig.scheduler->running(), 3);
  const Step& next = rig.scheduler->Plan(rig.now());
  EXPECT_THAT(next.tokens, ElementsAre(50, 51, 52));
  EXPECT_THAT(next.positions, ElementsAre(10, 10, 10));
  rig.scheduler->Commit(next, rig.now());
  rig.RunDry();
  EXPECT_EQ(sink->record().usage.completion_tokens, 9);
  EXPECT_EQ(sink->record().usage.prompt_tokens, 10);
}

TEST(Scheduler, ACarrierTakesThePlacesOfItsChoices) {
  Rig rig;  // 4 places
  SamplingParams three = Tokens(4);
  three.n = 3;
  rig.Add(3, three);
  auto two_wait = rig.Add(3, three);
  rig.StepOnce();
  EXPECT_EQ(rig.scheduler->running(), 3);
  EXPECT_EQ(rig.scheduler->waiting(), 1);
  rig.RunDry();
  EXPECT_EQ(two_wait->record().total, 12);
}

TEST(Scheduler, CancelledCarrierGoesOnForItsChoices) {
  Rig rig;
  SamplingParams sampling = Tokens(3);
  sampling.n = 2;
  auto sink = rig.Add(40, sampling);
  rig.StepOnce();
  rig.scheduler->Cancel(1, FinishReason::kCancelled, 0, rig.now());
  rig.RunDry();
  const auto record = sink->record();
  EXPECT_TRUE(record.tokens[0].empty());
  EXPECT_EQ(record.tokens[1].size(), 3u);
  EXPECT_TRUE(record.status.ok());

  auto all = rig.Add(40, sampling);
  rig.StepOnce();
  rig.scheduler->Cancel(2, FinishReason::kCancelled, 0, rig.now());
  rig.scheduler->Cancel(2, FinishReason::kCancelled, 1, rig.now());
  EXPECT_EQ(all->status(), absl::CancelledError("the request was cancelled"));
  EXPECT_EQ(rig.bank().Used().value, 0);
  rig.RunDry();
}

TEST(Scheduler, WaitingIsOrderedByPriorityThenArrival) {
  Rig rig(
      {.limits = {.max_tokens = 16, .max_sequences = 1, .max_logit_rows = 4, .max_context = 64}});
  std::vector<int> order;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const int priority : {0, 5, -1, 0}) {
    Request request;
    request.prompt = {1, 2};
    request.sampling = Tokens(1);
    request.priority = priority;
    sinks.push_back(rig.Add(std::move(request)));
  }
  for (int i = 0; i < 4; ++i) {
    rig.StepOnce();
    for (int s = 0; s < 4; ++s) {
      if (sinks[s]->done() && std::ranges::find(order, s) == order.end()) order.push_back(s);
    }
  }
  EXPECT_THAT(order, ElementsAre(2, 0, 3, 1));
}

TEST(Scheduler, StopsAndBans) {
  Rig rig({.eos_tokens = {7, 8}});
  SamplingParams sampling = Tokens(20);
  sampling.min_tokens = 1;
  sampling.stop_token_ids = {9};
  sampling.bad_words = {{30}, {50, 31}, {50, 50, 32}};
  auto sink = rig.Add(2, sampling);
  Step* step = &rig.scheduler->Plan(rig.now());
  EXPECT_THAT(step->samples[0].banned, ElementsAre(7, 8, 9, 30));
  Answer(*step);
  rig.scheduler->Commit(*step, rig.now());
  step = &rig.scheduler->Plan(rig.now());
  EXPECT_THAT(step->samples[0].banned, ElementsAre(30, 31));
  Answer(*step);
  rig.scheduler->Commit(*step, rig.now());
  step = &rig.scheduler->Plan(rig.now());
  EXPECT_THAT(step->samples[0].banned, ElementsAre(30, 31, 32));
  step->results[0].chosen.token = 9;
  rig.scheduler->Commit(*step, rig.now());
  EXPECT_THAT(sink->tokens(), ElementsAre(50, 50, 9));
  EXPECT_THAT(sink->record().finished, ElementsAre(std::pair(0, FinishReason::kStop)));
  EXPECT_TRUE(sink->status().ok());
}

TEST(Scheduler, EosEndsUnlessIgnored) {
  for (const bool ignore : {false, true}) {
    Rig rig({.eos_tokens = {50}});
    SamplingParams sampling = Tokens(2);
    sampling.ignore_eos = ignore;
    auto sink = rig.Add(2, sampling);
    for (int i = 0; i < (ignore ? 2 : 1); ++i) {
      Step& step = rig.scheduler->Plan(rig.now());
      Answer(step);
      rig.scheduler->Commit(step, rig.now());
    }
    EXPECT_TRUE(sink->done());
    EXPECT_EQ(sink->record().finished[0].second,
              ignore ? FinishReason::kLength : FinishReason::kStop);
  }
}

TEST(Scheduler, DeadlinesWaitingAndRunning) {
  Rig rig(
      {.limits = {.max_tokens = 16, .max_sequences = 1, .max_logit_rows = 4, .max_context = 64}});
  Request request;
  request.prompt = {1, 2};
  request.sampling = Tokens(30);
  request.deadline = rig.now() + std::chrono::seconds(5);
  auto running = rig.Add(request);
  request.deadline = rig.now() + std::chrono::seconds(3);
  auto waiting = rig.Add(request);
  for (int i = 0; i < 6; ++i) {
    rig.scheduler->Expire(rig.now());
    EXPECT_EQ(waiting->done(), rig.seconds >= 3);
    EXPECT_EQ(running->done(), rig.seconds >= 5);
    rig.StepOnce();
  }
  EXPECT_EQ(waiting->status(), absl::DeadlineExceededError("the deadline passed while waiting"));
  EXPECT_EQ(running->status(),
            absl::DeadlineExceededError("the deadline passed after 5 generated tokens"));
  EXPECT_THAT(running->record().finished, ElementsAre(std::pair(0, FinishReason::kDeadline)));
  rig.scheduler->CheckConservation();
}

TEST(Scheduler, ADeadlineThatTheServerSawFirstSaysSo) {
  Rig rig(
      {.limits = {.max_tokens = 16, .max_sequences = 1, .max_logit_rows = 4, .max_context = 64}});
  Request request;
  request.prompt = {1, 2};
  request.sampling = Tokens(30);
  auto running = rig.Add(request);
  auto waiting = rig.Add(request);
  for (int i = 0; i < 3; ++i) rig.StepOnce();
  for (const RequestHandle handle : {1, 2}) {
    rig.scheduler->Cancel(handle, FinishReason::kDeadline, -1, rig.now());
  }
  EXPECT_EQ(running->status(),
            absl::DeadlineExceededError("the deadline passed after 3 generated tokens"));
  EXPECT_EQ(waiting->status(), absl::DeadlineExceededError("the deadline passed while waiting"));
  rig.scheduler->CheckConservation();
}

TEST(Scheduler, NotFiniteFailsThatRequestAlone) {
  Rig rig;
  SamplingParams two = Tokens(3);
  two.n = 2;
  auto bad = rig.Add(4, two);
  auto good = rig.Add(4, Tokens(3), 20);
  rig.StepOnce();
  Step& step = rig.scheduler->Plan(rig.now());
  Answer(step);
  step.results[0].finite = false;
  rig.scheduler->Commit(step, rig.now());
  EXPECT_EQ(bad->status(), absl::InternalError("the model's logits for position 5 are not finite"));
  rig.RunDry();
  EXPECT_TRUE(good->status().ok());
  EXPECT_EQ(good->record().total, 3);
}

}  // namespace
}  // namespace serval
