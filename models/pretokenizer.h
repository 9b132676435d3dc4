// Splits text into the words that BPE merges within, by the rule a model names in
// tokenizer.ggml.pre. A rule is a row of regular expressions; each splits what the one before left,
// and both its matches and the gaps between them are words. Thread rule: const after construction.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace serval {

// What else goes with a pre-tokenizer's name.
struct PretokenizerTraits {
  bool nfc = false;            // the text is composed (Unicode NFC) first
  bool ignore_merges = false;  // a word that is a token is taken whole, whatever the merges say
  bool add_bos = false;        // begin-of-sequence is added unless the file says otherwise
};

class Pretokenizer {
 public:
  // Errors: INVALID_ARGUMENT, listing the names there are.
  static absl::StatusOr<Pretokenizer> Make(std::string_view name);

  // Calls `word` with each word of `text` (well-formed UTF-8), in order and without gaps. Linear in
  // the text's length for every rule of the table; no limit on it, and no memory that grows with
  // it.
  using Sink = std::function<void(std::string_view)>;
  void Split(std::string_view text, const Sink& word) const { SplitFrom(0, text, word); }

  const PretokenizerTraits& traits() const { return traits_; }

 private:
  class Regex;

  Pretokenizer() = default;
  void SplitFrom(size_t stage, std::string_view text, const Sink& word) const;

  std::vector<std::shared_ptr<const Regex>> stages_;
  PretokenizerTraits traits_;
};

}  // namespace serval
