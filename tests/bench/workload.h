// What the load benchmarks send: requests of mixed length over random token ids, the same for one
// seed on every run, so that the engine alone and the server over gRPC are measured with equal
// work. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace serval::bench {

struct Job {
  std::vector<int32_t> prompt;  // token ids
  int64_t output = 0;           // tokens to generate
};

// Ids below 100 are left out: vocabularies keep their special tokens there.
inline std::vector<int32_t> RandomIds(int64_t count, int64_t vocab, std::mt19937_64& random) {
  std::uniform_int_distribution<int32_t> pick(100, static_cast<int32_t>(vocab) - 1);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = pick(random);
  return ids;
}

// Prompts of 16 … 256 tokens, outputs of 32 … 160.
inline std::vector<Job> MixedJobs(int count, int64_t vocab, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> prompt(16, 256), output(32, 160);
  std::vector<Job> jobs(count);
  for (Job& job : jobs) {
    job.prompt = RandomIds(prompt(random), vocab, random);
    job.output = output(random);
  }
  return jobs;
}

}  // namespace serval::bench
