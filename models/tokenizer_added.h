// Finds special and added tokens in text: leftmost first, and of those the longest. The texts lie
// sorted, and a search narrows the range that agrees with the text byte by byte: a trie without
// nodes. Thread rule: const after construction.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace serval {

class AddedTokens {
 public:
  struct Token {
    std::string text;  // not empty
    int32_t id;
  };
  struct Match {
    size_t begin = 0, end = 0;
    int32_t id = -1;  // -1 = none
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<Token> tokens);

  // The first match that begins at `from` or later.
  Match Find(std::string_view text, size_t from) const;

 private:
  Match MatchAt(std::string_view text, size_t begin) const;

  std::vector<Token> tokens_;  // sorted by text
  std::array<bool, 256> starts_{};
};

}  // namespace serval
