// The small parts that need no server: admission, progress, model names, the token queue, the
// outbox.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "server/admission.h"
#include "server/convert.h"
#include "server/log.h"
#include "server/model_path.h"
#include "server/outbox.h"
#include "server/progress.h"
#include "server/token_queue.h"

namespace serval {
namespace {

TEST(AdmissionTest, RetryFollowsThePaceOfTheQueue) {
  using std::chrono::milliseconds;
  Admission admission;
  const auto start = Admission::Clock::now();
  EXPECT_EQ(admission.RetryAfter(100, start), milliseconds(1000));
  for (int i = 0; i < 40; ++i) admission.CountFinished(start + milliseconds(100) * i);
  const auto now = start + milliseconds(100) * 40;
  // 32 endings in 3.2 s, a quarter of 100 waiting: 2.5 s.
  EXPECT_EQ(admission.RetryAfter(100, now), milliseconds(2500));
  EXPECT_EQ(admission.RetryAfter(0, now), milliseconds(100));
  EXPECT_EQ(admission.RetryAfter(1000000, now), milliseconds(60000));
  EXPECT_GT(admission.RetryAfter(100, now + std::chrono::seconds(3)), milliseconds(2500));
}

TEST(ProgressTest, LineShowsBytesRateAndTimeLeft) {
  EXPECT_EQ(
      ProgressLine("Loading m", 25 << 20, 100 << 20, 0.5),
      "Loading m  25% [######                  ] 25.0 MiB of 100.0 MiB, 50.0 MiB/s, 1.5 s left");
  EXPECT_EQ(ProgressLine("x", 0, 0, 0),
            "x   0% [                        ] 0 B of 0 B, 0 B/s, 0.0 s left");
}

TEST(LogTest, ARequestCannotFakeALine) {
  EXPECT_EQ(TextLine("done", ""), "done");
  EXPECT_EQ(TextLine("done: äß", "gen-1"), "[gen-1] done: äß");
  EXPECT_EQ(TextLine("model 'a\nb\x1B[31m\x7F'", "x\r\ny"),
            "[x\\x0D\\x0Ay] model 'a\\x0Ab\\x1B[31m\\x7F'");
  EXPECT_TRUE(IsRequestId("gen-1"));
  for (const std::string& id :
       {std::string(), std::string("a b"), std::string("a\nb"), std::string(129, 'a')}) {
    EXPECT_FALSE(IsRequestId(id)) << id;
  }
}

class ModelPathTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    for (const char* name : {"One.Q4_1.gguf", "Two.Q4_1.gguf", "Two.F16.gguf", "Three.gguf"}) {
      std::ofstream(directory_ + "/" + name) << "x";
    }
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string ErrorOf(const std::string& model) {
    const auto path = FindModelFile(model, directory_);
    return path.ok() ? "found " + *path : std::string(path.status().message());
  }
  const std::string directory_ = testing::TempDir() + "serval-model-path";
};

TEST_F(ModelPathTest, PathsAndNames) {
  EXPECT_EQ(*FindModelFile(directory_ + "/Three.gguf", "/none"), directory_ + "/Three.gguf");
  EXPECT_EQ(*FindModelFile("One", directory_), directory_ + "/One.Q4_1.gguf");
  EXPECT_EQ(*FindModelFile("Three", directory_), directory_ + "/Three.gguf");
  EXPECT_EQ(*FindModelFile("Two.F16", directory_), directory_ + "/Two.F16.gguf");
  EXPECT_EQ(*FindModelFile("Two.F16.gguf", directory_), directory_ + "/Two.F16.gguf");
  EXPECT_EQ(DefaultServedName("/a/b/One.Q4_1.gguf"), "One.Q4_1");
  EXPECT_EQ(DefaultServedName("One"), "One");
}

TEST_F(ModelPathTest, Errors) {
  EXPECT_EQ(ErrorOf("/no/such/model.gguf"), "--model /no/such/model.gguf: no such file");
  EXPECT_EQ(ErrorOf(directory_), "--model " + directory_ + ": a directory; name a .gguf file");
  EXPECT_EQ(ErrorOf("Two"), "--model Two: several fit in " + directory_ +
                                "; name one of Two.F16.gguf, Two.Q4_1.gguf");
  EXPECT_EQ(ErrorOf("Four"),
            "--model Four: neither a file nor the name of a model in " + directory_ +
                ", where there are: One.Q4_1.gguf, Three.gguf, Two.F16.gguf, Two.Q4_1.gguf");
}

TEST(TokenQueueTest, WakesOnceUntilTaken) {
  int woken = 0;
  TokenQueue queue([&] { ++woken; });
  const TokenLogprob top[] = {{.token = 1, .logprob = -1, .rank = 1}};
  queue.OnToken(
      {.choice = 0, .token = 5, .has_logprob = true, .logprob = {.token = 5}, .top = top});
  queue.OnToken({.choice = 1, .token = 6, .has_logprob = false, .logprob = {}, .top = {}});
  queue.OnFinish(1, FinishReason::kLength);
  EXPECT_EQ(woken, 1);
  TokenBatch batch;
  queue.Take(batch);
  ASSERT_EQ(batch.events.size(), 3u);
  EXPECT_EQ(batch.events[0].logprobs_count, 2);
  EXPECT_EQ(batch.events[1].logprobs_begin, -1);
  EXPECT_TRUE(batch.events[2].finish);
  EXPECT_FALSE(batch.done);
  queue.OnDone(absl::CancelledError("gone"), {.prompt_tokens = 3});
  EXPECT_EQ(woken, 2);
  queue.Take(batch);
  EXPECT_TRUE(batch.events.empty());
  EXPECT_TRUE(batch.done);
  EXPECT_EQ(batch.usage.prompt_tokens, 3);
}

TEST(OutboxTest, RunsEverythingThatWasPosted) {
  struct Task : OutboxTask {
    std::atomic<int> pumps = 0;
    void Pump() override { ++pumps; }
  };
  auto task = std::make_shared<Task>();
  {
    Outbox outbox;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 1000; ++j) outbox.Post(task);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(task->pumps, 4000);
}

}  // namespace
}  // namespace serval
