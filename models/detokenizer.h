// Tokens in, text out, as it may be shown: never half a UTF-8 character, never text that may still
// become a stop string. Thread rule: one owner at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer.h"

namespace serval {

struct DetokenizerOptions {
  std::vector<std::string> stop;  // stop strings, none empty
  bool include_stop = false;      // keep the stop string in the text
  bool skip_special = true;
  int64_t min_tokens = 0;  // the text of so many first tokens takes no part in stop strings
};

class Detokenizer {
 public:
  Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options);

  // Appends the text that became showable to `out`; true when a stop string was completed (nothing
  // may be pushed after).
  bool Push(int32_t token, std::string& out);
  // The choice ended without a stop string: what was held back; unfinished UTF-8 becomes U+FFFD.
  void Flush(std::string& out);
  bool stopped() const { return stopped_; }

 private:
  bool Release(std::string& out, bool final);

  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  size_t longest_stop_ = 0;
  int64_t pushed_ = 0;   // tokens
  std::string pending_;  // bytes not shown yet
  bool stopped_ = false;
};

}  // namespace serval
