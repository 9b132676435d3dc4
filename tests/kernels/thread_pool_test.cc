#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace serval {
namespace {

TEST(ThreadPool, DefaultsToAtLeastOneThread) {
  ThreadPool pool;
  EXPECT_GE(pool.threads(), 1);
  EXPECT_LE(pool.threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (int64_t tasks : {0, 1, 2, 5, 64, 1000}) {
      std::vector<int> runs(tasks, 0);  // plain ints: each element belongs to one task
      std::atomic<bool> worker_in_range{true};
      pool.ParallelFor(tasks, [&](int64_t task, int worker) {
        ++runs[task];
        if (worker < 0 || worker >= threads) worker_in_range = false;
      });
      EXPECT_EQ(runs, std::vector<int>(tasks, 1)) << threads << " threads";
      EXPECT_TRUE(worker_in_range);
    }
  }
}

TEST(ThreadPool, WorkersNeverShareScratch) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(4 * 16, 0);  // a cache line each; TSan sees any sharing
  for (int job = 0; job < 200; ++job) {
    pool.ParallelFor(50, [&](int64_t task, int worker) { sums[worker * 16] += task; });
  }
  int64_t total = 0;
  for (int worker = 0; worker < 4; ++worker) total += sums[worker * 16];
  EXPECT_EQ(total, 200 * 50 * 49 / 2);
}

// Jobs back to back, with changing bodies: a late worker must never run an old body.
TEST(ThreadPool, ManyShortJobs) {
  ThreadPool pool(3);
  for (int64_t job = 0; job < 20000; ++job) {
    int64_t results[3] = {-1, -1, -1};
    pool.ParallelFor(3, [&, job](int64_t task, int) { results[task] = job + task; });
    ASSERT_EQ(results[0], job);
    ASSERT_EQ(results[1], job + 1);
    ASSERT_EQ(results[2], job + 2);
  }
}

// Pauses around the spinning time, so that jobs meet workers that spin, that park, and that are
// about to.
TEST(ThreadPool, NoLostWakeUpAroundParking) {
  ThreadPool pool(2);
  for (int job = 0; job < 2000; ++job) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(20 + job % 80);
    while (std::chrono::steady_clock::now() < until) {
    }
    // Both tasks wait for each other: this ends only if the worker really takes part.
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, [&](int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
  }
}

TEST(ThreadPool, StartsAndStopsIdle) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(4);
}

TEST(ThreadPoolDeathTest, NestingIsOurBug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ThreadPool pool(1);
  EXPECT_DEATH(pool.ParallelFor(1, [&](int64_t, int) { pool.ParallelFor(1, [](int64_t, int) {}); }),
               "ParallelFor inside ParallelFor");
}

}  // namespace
}  // namespace serval
