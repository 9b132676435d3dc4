// A byte-level BPE tokenizer from its parts: added tokens, then pre-tokenizer, then merges. Thread
// rule: see tokenizer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/tokenizer.h"

namespace serval {

// The metadata that makes one, viewed where it lies; nothing of it is needed after
// MakeBpeTokenizer.
struct BpeMetadata {
  std::span<const std::string_view> tokens;  // id = position
  std::span<const std::string_view> merges;  // "left right", best first
  std::span<const int64_t> token_types;  // as GGUF numbers them, one per token; empty = all normal
  std::string_view pre = "default";
  int64_t bos_id = -1;           // -1 = none
  std::vector<int64_t> eos_ids;  // eos, eot, eom; -1 = none
  std::optional<bool> add_bos;   // not given: as is usual for `pre`
};

// Errors: INVALID_ARGUMENT naming the key that is wrong.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(const BpeMetadata& metadata);

}  // namespace serval
