// The kinds of memory there are, and the banks of a plan. A new kind is one line in make_banks.cc.
// Thread rule: at start, before the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/memory/bank.h"
#include "engine/memory/bank_config.h"

namespace serval {

struct BankKind {
  std::string_view name;
  absl::StatusOr<std::unique_ptr<MemoryBank>> (*make)(const BankConfig& config);
  int64_t (*bytes_for)(const BankConfig& config, int64_t tokens);  // what one sequence takes
};

std::span<const BankKind> BankKinds();
// Null when there is no such kind.
const BankKind* FindBankKind(std::string_view name);

struct BankPlan;

struct Banks {
  std::vector<std::unique_ptr<MemoryBank>> banks;
  std::vector<LayerMemory> layers;  // one a layer of the model
};

// Deals `bytes` among the banks in proportion to what a sequence of the whole context takes in
// each. Errors: RESOURCE_EXHAUSTED when not even one such sequence fits (says what would), and the
// kinds' own.
absl::StatusOr<Banks> MakeBanks(std::vector<BankPlan> plan, int64_t bytes);

}  // namespace serval
