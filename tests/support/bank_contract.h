// What every kind of memory must do, as tests that run over each of them: a new kind adds a
// BankCase to the instantiation in tests/engine/bank_contract_test.cc and inherits all of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/make_banks.h"
#include "engine/memory/memory_plan.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "tests/support/fake_model.h"

namespace serval {

struct BankCase {
  std::string name;
  std::string plan;  // a --memory-plan
  DType kv_dtype = DType::kF32;
};

// One sequence under test.
struct Stream {
  std::vector<Holding> holdings = std::vector<Holding>(1);
  std::vector<int32_t> tokens;
  int64_t stored = 0;
};

class BankContract : public testing::TestWithParam<BankCase> {
 protected:
  // Room for `sequences` of 512 tokens.
  BankContract();

  using Logits = std::vector<float>;
  // One step: the next `count` tokens of each stream; the logits after the last of each.
  std::vector<Logits> Step(const std::vector<std::pair<Stream*, int64_t>>& parts);
  // All the stream's tokens in steps of `chunk`; the logits after the last.
  Logits Feed(Stream& stream, int64_t chunk = 1000);
  // What a stream of these tokens must give, computed in a memory of its own kind, alone and at
  // once.
  Logits Alone(std::span<const int32_t> tokens);
  void Release(Stream& stream);
  // Some tokens, the same for equal arguments.
  static std::vector<int32_t> Tokens(int64_t count, int seed);

  MemoryBank& bank() { return *banks_.banks[0]; }

  StepLimits limits_{
      .max_tokens = 512, .max_sequences = 8, .max_logit_rows = 8, .max_context = 512};
  FakeModel model_;
  Banks banks_;
  ThreadPool pool_{2};
  std::unique_ptr<Workspace> workspace_;
  Ctx ctx_;
};

}  // namespace serval
