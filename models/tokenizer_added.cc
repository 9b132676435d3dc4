#include "models/tokenizer_added.h"

#include <algorithm>
#include <utility>

namespace serval {

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.text < b.text; });
  for (const Token& token : tokens_) starts_[static_cast<uint8_t>(token.text[0])] = true;
}

AddedTokens::Match AddedTokens::Find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return {};
  for (size_t pos = from; pos < text.size(); ++pos) {
    if (!starts_[static_cast<uint8_t>(text[pos])]) continue;
    const Match match = MatchAt(text, pos);
    if (match.id >= 0) return match;
  }
  return {};
}

AddedTokens::Match AddedTokens::MatchAt(std::string_view text, size_t begin) const {
  Match match;
  auto low = tokens_.begin(), high = tokens_.end();
  for (size_t depth = 0; begin + depth < text.size(); ++depth) {
    // All of [low, high) share text[begin, begin + depth); none of them ends there (the one that
    // did was stepped over).
    const uint8_t byte = static_cast<uint8_t>(text[begin + depth]);
    low = std::partition_point(low, high, [&](const Token& token) {
      return static_cast<uint8_t>(token.text[depth]) < byte;
    });
    high = std::partition_point(low, high, [&](const Token& token) {
      return static_cast<uint8_t>(token.text[depth]) == byte;
    });
    if (low != high && low->text.size() == depth + 1) {
      match = {begin, begin + depth + 1, low->id};
      ++low;
    }
    if (low == high) break;
  }
  return match;
}

}  // namespace serval
