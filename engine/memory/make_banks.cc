#include "engine/memory/make_banks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/memory/memory_plan.h"
#include "engine/memory/paged_bank.h"

namespace serval {
namespace {

constexpr BankKind kKinds[] = {
    {"paged", &PagedBank::Make, &PagedBank::BytesFor},
};

// The longest context of which one sequence fits into `bytes`.
int64_t LongestFitting(const std::vector<BankPlan>& plan, int64_t context, int64_t bytes) {
  int64_t low = 0, high = context;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    int64_t need = 0;
    for (const BankPlan& bank : plan) need += bank.kind->bytes_for(bank.config, middle);
    (need <= bytes ? low : high) = need <= bytes ? middle : middle - 1;
  }
  return low;
}

}  // namespace

std::span<const BankKind> BankKinds() { return kKinds; }

const BankKind* FindBankKind(std::string_view name) {
  for (const BankKind& kind : kKinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

absl::StatusOr<Banks> MakeBanks(std::vector<BankPlan> plan, int64_t bytes) {
  const int64_t context = plan.front().config.limits.max_context;
  int64_t need = 0;
  size_t layers = 0;
  for (const BankPlan& bank : plan) {
    need += bank.kind->bytes_for(bank.config, context);
    layers += bank.layers.size();
  }
  if (need > bytes) {
    const int64_t fitting = LongestFitting(plan, context, bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        "one sequence of --max-model-len ", context, " tokens needs ", need,
        " bytes of memory, but --kv-cache-bytes is ", bytes, ": raise it to at least ", need,
        fitting > 0 ? absl::StrCat(", or lower --max-model-len to ", fitting) : std::string()));
  }
  Banks made;
  made.layers.resize(layers);
  for (BankPlan& bank : plan) {
    // need <= bytes, so every share is at least its bank's own need.
    const double share =
        static_cast<double>(bank.kind->bytes_for(bank.config, context)) / static_cast<double>(need);
    bank.config.bytes = plan.size() == 1
                            ? bytes
                            : std::max(static_cast<int64_t>(share * static_cast<double>(bytes)),
                                       bank.kind->bytes_for(bank.config, context));
    auto memory = bank.kind->make(bank.config);
    if (!memory.ok()) return memory.status();
    for (size_t i = 0; i < bank.layers.size(); ++i) {
      made.layers[bank.layers[i]] = {memory->get(), static_cast<int>(i)};
    }
    made.banks.push_back(*std::move(memory));
  }
  return made;
}

}  // namespace serval
