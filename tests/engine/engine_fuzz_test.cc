// Thousands of requests, cancelled at random points by other threads: every one ends exactly once,
// and every pool is full after. (The engine itself checks conservation whenever it runs dry.)
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "tests/engine/harness.h"
#include "tests/support/fake_model.h"

namespace serval {
namespace {

Request RandomRequest(std::mt19937& random) {
  Request request;
  const int64_t prompt = 1 + random() % (random() % 8 == 0 ? 150 : 12);
  const int family = static_cast<int>(random() % 3);  // some share prefixes
  for (int64_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<int32_t>((i * 5 + family) % 97));
  }
  SamplingParams& sampling = request.sampling;
  sampling.seed = random();
  sampling.max_tokens = 1 + random() % (random() % 4 == 0 ? 100 : 20);
  sampling.n = random() % 6 == 0 ? 1 + static_cast<int>(random() % 4) : 1;
  sampling.prompt_logprobs = random() % 10 == 0 ? 1 : -1;
  sampling.logprobs = random() % 10 == 0 ? 2 : -1;
  request.priority = static_cast<int>(random() % 3);
  request.cache_salt = random() % 2;
  if (random() % 10 == 0) {
    request.deadline =
        std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 5000);
  }
  return request;
}

// Tries until the queue takes it, so that what is tested does not depend on the machine's speed.
RequestHandle SubmitPatiently(Engine& engine, const Request& request) {
  for (;;) {
    const auto handle = engine.Submit(request);
    if (handle.ok()) return *handle;
    EXPECT_EQ(handle.status().code(), absl::StatusCode::kResourceExhausted);
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

void Client(Engine& engine, int seed, int requests,
            std::vector<std::shared_ptr<RecordingSink>>& sinks) {
  std::mt19937 random(seed);
  for (int i = 0; i < requests; ++i) {
    auto sink = std::make_shared<RecordingSink>();
    Request request = RandomRequest(random);
    const int choices = request.sampling.n;
    request.sink = sink;
    const RequestHandle handle = SubmitPatiently(engine, request);
    sinks.push_back(sink);
    if (random() % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
      const int choice = random() % 3 == 0 ? static_cast<int>(random() % choices) : -1;
      engine.Cancel(handle, random() % 4 == 0 ? FinishReason::kStop : FinishReason::kCancelled,
                    choice);
    }
  }
}

TEST(EngineFuzz, CancelledAtRandomEveryPoolIsFullAfter) {
  EngineOptions options;
  options.limits = {.max_tokens = 40, .max_sequences = 8, .max_logit_rows = 4, .max_context = 256};
  options.kv_bytes = 4 * 64 * 64;  // four pages: one full context, pre-emption all the time
  options.max_queued = 64;
  options.threads = 1;
  FakeModelOptions small;
  small.q_heads = 2;
  small.kv_heads = 2;
  small.head_dim = 4;
  small.layers = 2;
  auto engine = Engine::Create(std::make_unique<FakeModel>(small), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  constexpr int kClients = 4, kRequests = 1000;
  std::vector<std::vector<std::shared_ptr<RecordingSink>>> sinks(kClients);
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] { Client(**engine, c, kRequests, sinks[c]); });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& list : sinks) {
    for (const auto& sink : list) sink->Wait();
  }
  std::atomic<bool> idle = false;
  (*engine)->Drain([&] { idle = true; });
  while (!idle) std::this_thread::yield();
  const EngineStats stats = (*engine)->Stats();
  EXPECT_EQ(stats.num_requests_running + stats.num_requests_waiting, 0);
  EXPECT_EQ(stats.banks[0].used_bytes, 0);
  EXPECT_EQ(stats.banks[0].free_bytes, stats.banks[0].capacity_bytes);
  EXPECT_GT(stats.num_preemptions, 0u);
  for (const auto& list : sinks) {
    for (const auto& sink : list) EXPECT_EQ(sink->record().done, 1);
  }
}

}  // namespace
}  // namespace serval
