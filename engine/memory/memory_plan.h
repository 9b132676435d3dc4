// Which kind of memory each layer keeps its past in: the operator's --memory-plan, parsed, and the
// table of bytes it costs.
//   plan   := clause (';' clause)*          default=paged; layers[0,4-7]=paged
//   clause := ('default' | 'layers[' range (',' range)* ']') '=' kind (':' option (',' option)*)?
//   range  := layer | layer '-' layer        option := key '=' value
// Later clauses win. Layers that no clause names take the default, which is "paged" when not given.
// Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/memory/bank_config.h"
#include "engine/memory/make_banks.h"

namespace serval {

struct LayerPlan {
  std::string kind = "paged";
  KindOptions options;
  friend bool operator==(const LayerPlan&, const LayerPlan&) = default;
};

// One entry a layer. Errors: INVALID_ARGUMENT naming the position in `text`, what was expected and
// what was found.
absl::StatusOr<std::vector<LayerPlan>> ParseMemoryPlan(std::string_view text, int layers);

// Layers that share kind and options share a bank. In the order of their first layers;
// `config.bytes` is not set yet.
struct BankPlan {
  const BankKind* kind = nullptr;
  BankConfig config;
  std::vector<int> layers;  // of the model
};
std::vector<BankPlan> GroupLayers(const std::vector<LayerPlan>& plan, const ModelInfo& model,
                                  const StepLimits& limits, DType kv_dtype);

// The table of bytes, several lines: per kind, bytes a token and a sequence at 4K, 32K, 128K and
// the whole context (those within it), and how many such sequences `total_bytes` hold.
std::string PlanTable(const std::vector<BankPlan>& banks, int64_t context, int64_t total_bytes);

}  // namespace serval
