// The whole engine over the fake model: what is asked for comes out, and the same whatever else
// goes on.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/engine/harness.h"
#include "tests/support/fake_model.h"

namespace serval {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

EngineOptions SmallOptions() {
  EngineOptions options;
  options.limits = {.max_tokens = 64, .max_sequences = 8, .max_logit_rows = 5, .max_context = 512};
  options.kv_bytes = 8 << 20;
  options.threads = 2;
  return options;
}

std::unique_ptr<Engine> Make(EngineOptions options = SmallOptions(), FakeModelOptions model = {}) {
  auto engine = Engine::Create(std::make_unique<FakeModel>(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

Request MakeRequest(int64_t prompt, SamplingParams sampling, int seed = 0) {
  Request request;
  for (int64_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<int32_t>((i * 13 + seed * 29 + i * i) % 97));
  }
  request.sampling = std::move(sampling);
  return request;
}

std::pair<std::shared_ptr<RecordingSink>, RequestHandle> Submit(Engine& engine, Request request) {
  auto sink = std::make_shared<RecordingSink>();
  request.sink = sink;
  const auto handle = engine.Submit(std::move(request));
  EXPECT_TRUE(handle.ok()) << handle.status();
  return {sink, handle.ok() ? *handle : 0};
}

RecordingSink::Record Generate(Engine& engine, Request request) {
  const auto [sink, handle] = Submit(engine, std::move(request));
  sink->Wait();
  return sink->record();
}

SamplingParams Greedy(int64_t max_tokens) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = max_tokens;
  return sampling;
}

SamplingParams Mixed(int i) {
  SamplingParams sampling = Greedy(20 + i * 7 % 80);
  if (i % 2 == 0) return sampling;
  sampling.temperature = 0.9f;
  sampling.top_p = 0.95f;
  sampling.seed = i;
  sampling.repetition_penalty = i % 3 == 0 ? 1.2f : 1.0f;
  return sampling;
}

// What each request gives alone in a large engine with prefill in one piece.
std::vector<std::vector<int32_t>> ReferenceTokens(int count) {
  EngineOptions options = SmallOptions();
  options.limits.max_tokens = 512;
  options.prefix_caching = false;
  auto engine = Make(options);
  std::vector<std::vector<int32_t>> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(Generate(*engine, MakeRequest(1 + i * 37 % 300, Mixed(i), i)).tokens[0]);
  }
  return tokens;
}

TEST(Engine, SameTokensAloneBatchedAndChunked) {
  const int count = 24;
  const auto expected = ReferenceTokens(count);
  EngineOptions batched = SmallOptions();
  EngineOptions chunked = SmallOptions();
  chunked.limits.max_tokens = 9;
  EngineOptions tiny = SmallOptions();
  tiny.kv_bytes = 2 * 2 * 2 * 8 * 2 * 512;  // one full context and nothing more
  EngineOptions single_thread = SmallOptions();
  single_thread.threads = 1;
  for (const EngineOptions& options : {batched, chunked, tiny, single_thread}) {
    auto engine = Make(options);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < count; ++i) {
      sinks.push_back(Submit(*engine, MakeRequest(1 + i * 37 % 300, Mixed(i), i)).first);
    }
    for (int i = 0; i < count; ++i) {
      sinks[i]->Wait();
      EXPECT_TRUE(sinks[i]->status().ok()) << sinks[i]->status();
      EXPECT_EQ(sinks[i]->tokens(), expected[i]) << i;
    }
  }
}

TEST(Engine, SameTokensAfterPreemption) {
  EngineOptions tiny = SmallOptions();
  tiny.kv_bytes = 2 * 2 * 2 * 8 * 2 * 512;  // 8 pages; the 4 requests want 5 each
  for (const bool caching : {false, true}) {
    tiny.prefix_caching = caching;
    auto small = Make(tiny), large = Make();
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 4; ++i) {
      SamplingParams sampling = Mixed(i);
      sampling.max_tokens = 250;
      sinks.push_back(Submit(*small, MakeRequest(60 + i, sampling, i)).first);
    }
    for (int i = 0; i < 4; ++i) {
      sinks[i]->Wait();
      SamplingParams sampling = Mixed(i);
      sampling.max_tokens = 250;
      EXPECT_EQ(sinks[i]->tokens(), Generate(*large, MakeRequest(60 + i, sampling, i)).tokens[0])
          << i;
    }
    EXPECT_GT(small->Stats().num_preemptions, 0u);
  }
}

TEST(Engine, ChoicesAreWhatTheirSeedsGiveAlone) {
  auto engine = Make();
  SamplingParams sampling = Mixed(1);
  sampling.max_tokens = 12;
  sampling.n = 5;
  const auto together = Generate(*engine, MakeRequest(100, sampling));
  EXPECT_EQ(together.finished.size(), 5u);
  EXPECT_EQ(together.usage.completion_tokens, 60);
  sampling.n = 1;
  for (int c = 0; c < 5; ++c) {
    sampling.seed = ChoiceSeed(1, c);
    EXPECT_EQ(Generate(*engine, MakeRequest(100, sampling)).tokens[0], together.tokens[c]) << c;
  }
  EXPECT_NE(together.tokens[0], together.tokens[1]);
}

TEST(Engine, CachedPrefixGivesTheSameTokens) {
  auto engine = Make();
  const auto first = Generate(*engine, MakeRequest(300, Greedy(20)));
  const auto second = Generate(*engine, MakeRequest(300, Greedy(20)));
  EXPECT_EQ(first.usage.cached_tokens, 0);
  EXPECT_EQ(second.usage.cached_tokens, 256);
  EXPECT_EQ(first.tokens[0], second.tokens[0]);
  EXPECT_GT(second.usage.kv_bytes, 0);
}

TEST(Engine, PromptLogprobsComeInOrderAndAgreeWithDrawnOnes) {
  auto engine = Make();
  SamplingParams sampling = Greedy(20);
  sampling.logprobs = 0;
  Request request = MakeRequest(200, sampling);
  const auto drawn = Generate(*engine, request);
  ASSERT_EQ(drawn.logprobs[0].size(), 20u);
  request.prompt.insert(request.prompt.end(), drawn.tokens[0].begin(), drawn.tokens[0].end());
  request.sampling = Greedy(1);
  request.sampling.prompt_logprobs = 2;
  const auto given = Generate(*engine, request);
  ASSERT_EQ(given.prompt.size(), 219u);
  int64_t next = 1;
  for (const auto& [first, count] : given.slices) {
    EXPECT_EQ(first, next);
    next += count;
  }
  EXPECT_EQ(next, 220);
  for (size_t i = 0; i < given.prompt.size(); ++i) {
    EXPECT_EQ(given.prompt[i].token, request.prompt[i + 1]);
    if (i >= 199) {
      EXPECT_EQ(given.prompt[i].logprob, drawn.logprobs[0][i - 199].logprob) << i;
    }
  }
}

TEST(Engine, EosStopIdsAndBadWords) {
  const auto free = Generate(*Make(), MakeRequest(30, Greedy(30))).tokens[0];
  FakeModelOptions with_eos;
  with_eos.eos_tokens = {free[4]};
  const auto ended = Generate(*Make(SmallOptions(), with_eos), MakeRequest(30, Greedy(30)));
  EXPECT_EQ(ended.tokens[0].back(), free[4]);
  EXPECT_LE(ended.tokens[0].size(), 5u);
  EXPECT_EQ(ended.finished[0].second, FinishReason::kStop);
  SamplingParams later = Greedy(30);
  later.min_tokens = 10;
  const auto longer = Generate(*Make(SmallOptions(), with_eos), MakeRequest(30, later));
  EXPECT_GE(longer.tokens[0].size(), 10u);
  SamplingParams banned = Greedy(30);
  banned.bad_words = {{free[0]}, {free[1], free[2]}};
  const auto other = Generate(*Make(), MakeRequest(30, banned)).tokens[0];
  EXPECT_EQ(std::ranges::count(other, free[0]), 0);
  for (size_t i = 0; i + 1 < other.size(); ++i) {
    EXPECT_FALSE(other[i] == free[1] && other[i + 1] == free[2]);
  }
}

TEST(Engine, NotANumberFailsOneRequestAlone) {
  FakeModelOptions model;
  model.poison = 96;
  SamplingParams unpoisoned = Greedy(50);
  unpoisoned.bad_words = {{96}};
  auto engine = Make(SmallOptions(), model);
  const auto [good, good_handle] = Submit(*engine, MakeRequest(3, unpoisoned));
  Request request;
  request.prompt = {1, 2, 96};
  request.sampling = Greedy(5);
  const auto bad = Generate(*engine, request);
  EXPECT_EQ(bad.status, absl::InternalError("the model's logits for position 3 are not finite"));
  EXPECT_THAT(bad.finished, ElementsAre(std::pair(0, FinishReason::kError)));
  good->Wait();
  EXPECT_TRUE(good->status().ok());
}

TEST(Engine, CancelWholeAndOneChoice) {
  FakeModelOptions model;
  model.delay = milliseconds(1);
  auto engine = Make(SmallOptions(), model);
  const auto [sink, handle] = Submit(*engine, MakeRequest(10, Greedy(400)));
  sink->WaitForTokens(3);
  engine->Cancel(handle);
  sink->Wait();
  EXPECT_EQ(sink->status(), absl::CancelledError("the request was cancelled"));
  EXPECT_LT(sink->record().total, 400);

  SamplingParams two = Greedy(60);
  two.n = 2;
  const auto [both, both_handle] = Submit(*engine, MakeRequest(10, two));
  both->WaitForTokens(4);
  engine->Cancel(both_handle, FinishReason::kStop, 0);
  both->Wait();
  EXPECT_TRUE(both->status().ok());
  EXPECT_LT(both->tokens(0).size(), 60u);
  EXPECT_EQ(both->tokens(1).size(), 60u);
  engine->Cancel(both_handle);  // ended already: nothing happens
  engine->Cancel(12345);
}

TEST(Engine, DeadlinesQueuedAndRunning) {
  FakeModelOptions model;
  model.delay = milliseconds(2);
  EngineOptions options = SmallOptions();
  options.limits.max_sequences = 1;
  auto engine = Make(options, model);
  Request request = MakeRequest(4, Greedy(500));
  request.deadline = std::chrono::steady_clock::now() + milliseconds(100);
  const auto [running, running_handle] = Submit(*engine, request);
  request.deadline = std::chrono::steady_clock::now() + milliseconds(50);
  const auto [queued, queued_handle] = Submit(*engine, request);
  queued->Wait();
  EXPECT_EQ(queued->status(), absl::DeadlineExceededError("the deadline passed while waiting"));
  EXPECT_FALSE(running->done());
  running->Wait();
  EXPECT_EQ(running->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(running->record().total, 0);
}

TEST(Engine, QueueIsBounded) {
  FakeModelOptions model;
  model.delay = milliseconds(1);
  EngineOptions options = SmallOptions();
  options.limits.max_sequences = 1;
  options.max_queued = 3;
  auto engine = Make(options, model);
  const auto [first, first_handle] = Submit(*engine, MakeRequest(4, Greedy(500)));
  first->WaitForTokens(1);
  std::vector<std::shared_ptr<RecordingSink>> queued;
  for (int i = 0; i < 3; ++i) queued.push_back(Submit(*engine, MakeRequest(4, Greedy(2))).first);
  Request extra = MakeRequest(4, Greedy(2));
  extra.sink = std::make_shared<RecordingSink>();
  EXPECT_EQ(engine->Submit(extra).status(),
            absl::ResourceExhaustedError("the queue is full (3 requests wait, "
                                         "--max-num-queued-reqs is 3): try again later"));
  EXPECT_EQ(engine->Stats().rejected["queue_full"], 1u);
  engine->Cancel(first_handle);
  for (const auto& sink : queued) {
    sink->Wait();
    EXPECT_TRUE(sink->status().ok());
  }
}

TEST(Engine, DrainFinishesWhatRunsAndRefusesTheRest) {
  FakeModelOptions model;
  model.delay = milliseconds(1);
  auto engine = Make(SmallOptions(), model);
  const auto [sink, handle] = Submit(*engine, MakeRequest(4, Greedy(50)));
  std::atomic<bool> drained = false;
  engine->Drain([&, running = sink] {
    EXPECT_TRUE(running->done());
    drained = true;
  });
  Request late = MakeRequest(4, Greedy(2));
  late.sink = std::make_shared<RecordingSink>();
  EXPECT_EQ(
      engine->Submit(late).status(),
      absl::UnavailableError("the server is draining and takes no new requests: try another"));
  sink->Wait();
  EXPECT_EQ(sink->tokens().size(), 50u);
  while (!drained) std::this_thread::yield();
  std::atomic<bool> again = false;
  engine->Drain([&] { again = true; });  // idle already
  while (!again) std::this_thread::yield();
}

TEST(Engine, DestructionCancelsWhatIsAlive) {
  FakeModelOptions model;
  model.delay = milliseconds(1);
  auto engine = Make(SmallOptions(), model);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 20; ++i) sinks.push_back(Submit(*engine, MakeRequest(9, Greedy(500))).first);
  sinks[0]->WaitForTokens(2);
  engine.reset();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->record().done, 1);
    EXPECT_EQ(sink->status(), absl::CancelledError("the engine is shutting down"));
  }
}

TEST(Engine, SinkMayCancelFromOnToken) {
  struct Stopping final : RecordingSink {
    void OnToken(const TokenOutput& output) override {
      RecordingSink::OnToken(output);
      if (++seen == 3) engine->Cancel(handle, FinishReason::kStop, 0);
    }
    Engine* engine = nullptr;
    std::atomic<RequestHandle> handle = 0;
    int seen = 0;
  };
  auto engine = Make();
  auto sink = std::make_shared<Stopping>();
  sink->engine = engine.get();
  sink->handle = 1;  // of the first request
  Request request = MakeRequest(4, Greedy(500));
  request.sink = sink;
  ASSERT_EQ(*engine->Submit(request), 1u);
  sink->Wait();
  EXPECT_TRUE(sink->status().ok());
  EXPECT_EQ(sink->tokens().size(), 3u);  // within the step
}

TEST(Engine, StatsCountWhatHappened) {
  auto engine = Make();
  for (int i = 0; i < 3; ++i) Generate(*engine, MakeRequest(100, Greedy(10)));
  EngineStats stats;
  do {
    stats = engine->Stats();
  } while (stats.num_requests_running > 0 || stats.e2e_request_latency.count < 3);
  EXPECT_EQ(stats.generation_tokens, 30u);
  EXPECT_EQ(stats.prompt_tokens, 300u);
  EXPECT_EQ(stats.prefix_cache_queries, 300u);
  EXPECT_EQ(stats.prefix_cache_hits, 128u);
  EXPECT_EQ(stats.finished[static_cast<size_t>(FinishReason::kLength)], 3u);
  EXPECT_EQ(stats.time_to_first_token.count, 3u);
  EXPECT_EQ(stats.inter_token_latency.count, 27u);
  EXPECT_EQ(stats.iteration_tokens.count, stats.steps);
  EXPECT_EQ(stats.kv_cache_usage_perc, 0);
  ASSERT_EQ(stats.banks.size(), 1u);
  EXPECT_EQ(stats.banks[0].kind, "paged");
  EXPECT_EQ(stats.banks[0].free_bytes, stats.banks[0].capacity_bytes);
}

}  // namespace
}  // namespace serval
