// Byte-pair merging of one word: the pair of lowest rank is joined first, the leftmost of equals,
// until none is left. A heap over a linked list, O(n log n) in the length of the word. Source:
// Sennrich et al. 2016; order as in Hugging Face tokenizers. Thread rule: const after construction;
// a Scratch belongs to one call at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace serval {

class BpeMerger {
 public:
  using Vocabulary = std::unordered_map<std::string_view, int32_t>;  // token text -> id

  // `merges` are "left right", best first. Errors: INVALID_ARGUMENT naming the merge that is
  // malformed or whose parts or whole are no tokens.
  static absl::StatusOr<BpeMerger> Make(const Vocabulary& vocabulary,
                                        std::span<const std::string_view> merges);

  struct Symbol {
    int32_t id;          // -1 = joined to its left neighbour
    int32_t prev, next;  // -1 = none
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol
  };

  // Appends the ids of `word` (raw bytes, under 2^31 of them). A byte that has no token of its own
  // is left out, as Hugging Face does when a model names no unknown token.
  void Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    int32_t left, right, result;
  };

  absl::Status AddMerges(const Vocabulary& vocabulary, std::span<const std::string_view> merges);
  void Index();
  int32_t Rank(int32_t left, int32_t right) const;  // -1 = the pair does not merge
  void Offer(Scratch& scratch, int32_t left) const;

  std::array<int32_t, 256> byte_ids_{};  // -1 = no token
  std::vector<Merge> merges_;            // by rank
  std::vector<int32_t> table_;           // ranks, open addressing by pair; -1 = free
};

}  // namespace serval
