#include "models/bpe_merge.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "models/bpe_bytes.h"

namespace serval {
namespace {

size_t HashPair(int32_t left, int32_t right) {
  const uint64_t pair =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
  return mixed ^ mixed >> 32;
}

absl::Status BadMerge(size_t index, std::string_view merge, std::string_view why) {
  constexpr size_t kShown = 80;
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges[", index, "] (\"",
                                                 std::string(merge.substr(0, kShown)), "\") ",
                                                 std::string(why)));
}

}  // namespace

absl::StatusOr<BpeMerger> BpeMerger::Make(const Vocabulary& vocabulary,
                                          std::span<const std::string_view> merges) {
  BpeMerger merger;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary.find(ByteSymbol(static_cast<uint8_t>(byte)));
    merger.byte_ids_[byte] = found == vocabulary.end() ? -1 : found->second;
  }
  if (absl::Status status = merger.AddMerges(vocabulary, merges); !status.ok()) return status;
  merger.Index();
  return merger;
}

absl::Status BpeMerger::AddMerges(const Vocabulary& vocabulary,
                                  std::span<const std::string_view> merges) {
  merges_.reserve(merges.size());
  std::string whole;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges[i];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return BadMerge(i, merge, "is not two tokens with one space between");
    }
    whole.assign(merge.substr(0, space));
    whole.append(merge.substr(space + 1));
    const auto left = vocabulary.find(merge.substr(0, space));
    const auto right = vocabulary.find(merge.substr(space + 1));
    const auto result = vocabulary.find(whole);
    if (left == vocabulary.end() || right == vocabulary.end() || result == vocabulary.end()) {
      return BadMerge(i, merge, "names a token that is not in tokenizer.ggml.tokens");
    }
    merges_.push_back({left->second, right->second, result->second});
  }
  return absl::OkStatus();
}

void BpeMerger::Index() {
  table_.assign(std::bit_ceil(merges_.size() * 2 + 1), -1);
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    size_t slot = HashPair(merge.left, merge.right) & (table_.size() - 1);
    // A pair listed twice counts with its later rank, as in Hugging Face.
    while (table_[slot] >= 0 && (merges_[table_[slot]].left != merge.left ||
                                 merges_[table_[slot]].right != merge.right)) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    table_[slot] = static_cast<int32_t>(rank);
  }
}

int32_t BpeMerger::Rank(int32_t left, int32_t right) const {
  size_t slot = HashPair(left, right) & (table_.size() - 1);
  while (table_[slot] >= 0) {
    const Merge& merge = merges_[table_[slot]];
    if (merge.left == left && merge.right == right) return table_[slot];
    slot = (slot + 1) & (table_.size() - 1);
  }
  return -1;
}

void BpeMerger::Offer(Scratch& scratch, int32_t left) const {
  if (left < 0) return;
  const Symbol& symbol = scratch.symbols[left];
  if (symbol.next < 0) return;
  const int32_t rank = Rank(symbol.id, scratch.symbols[symbol.next].id);
  if (rank < 0) return;
  scratch.heap.push_back(static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(left));
}

void BpeMerger::Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  SERVAL_CHECK_LT(word.size(), static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (const char byte : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    const int32_t at = static_cast<int32_t>(symbols.size());
    if (id >= 0) symbols.push_back({id, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) Offer(scratch, static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto push = [&](int32_t left) {
    const size_t before = heap.size();
    Offer(scratch, left);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Merge& merge = merges_[heap.back() >> 32];
    const int32_t at = static_cast<int32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    Symbol& left = symbols[at];
    // An entry outlives its pair when a neighbour was joined first.
    if (left.id != merge.left || left.next < 0 || symbols[left.next].id != merge.right) continue;
    Symbol& right = symbols[left.next];
    left.id = merge.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].prev = at;
    push(left.prev);
    push(at);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace serval
