#include "tests/bench/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace serval::bench {
namespace {

constexpr size_t kWordsPerThread = (size_t{512} << 20) / sizeof(uint64_t);

uint64_t Sum(const std::vector<uint64_t>& words) {
  // Independent sums, so that the loop waits for memory and not for its own additions.
  uint64_t sums[32] = {};
  for (size_t i = 0; i + 32 <= words.size(); i += 32) {
    for (size_t lane = 0; lane < 32; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

template <class Body>
void OnThreads(int threads, Body body) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) running.emplace_back(body, i);
  for (std::thread& thread : running) thread.join();
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  std::vector<std::vector<uint64_t>> parts(threads);
  OnThreads(threads, [&](int i) { parts[i].assign(kWordsPerThread, static_cast<uint64_t>(i)); });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    OnThreads(threads, [&](int i) { sink += Sum(parts[i]); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double bytes = static_cast<double>(kWordsPerThread) * sizeof(uint64_t) * threads;
    best = std::max(best, bytes / took.count());
  }
  return best;
}

}  // namespace serval::bench
