// A hand-made byte-level vocabulary for the tokenizer's tests: the 256 bytes as ids 0 to 255, then
// one token for each merge, then added tokens. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/bpe_bytes.h"
#include "models/bpe_tokenizer.h"

namespace serval {

struct TinyVocabulary {
  std::vector<std::string> tokens, merges;
  std::vector<int64_t> types;
  std::string pre = "gpt-2";

  explicit TinyVocabulary(const std::vector<std::string>& merge_list) : merges(merge_list) {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(ByteSymbol(static_cast<uint8_t>(byte)));
    }
    for (const std::string& merge : merges) {
      const size_t space = merge.find(' ');
      tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
    }
    types.assign(tokens.size(), 1);
  }

  int32_t Add(const std::string& text, int64_t type) {
    tokens.push_back(text);
    types.push_back(type);
    return static_cast<int32_t>(tokens.size() - 1);
  }

  // What BpeMetadata views lives in `views`.
  struct Views {
    std::vector<std::string_view> tokens, merges;
  };
  BpeMetadata Metadata(Views& views) const {
    views.tokens.assign(tokens.begin(), tokens.end());
    views.merges.assign(merges.begin(), merges.end());
    BpeMetadata metadata;
    metadata.tokens = views.tokens;
    metadata.merges = views.merges;
    metadata.token_types = types;
    metadata.pre = pre;
    return metadata;
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> Make() const {
    Views views;
    return MakeBpeTokenizer(Metadata(views));
  }
};

}  // namespace serval
