// UTF-8 as Python's bytes.decode("utf-8", errors="replace") reads it: one U+FFFD for each maximal
// subpart of an ill-formed sequence (Unicode 15, section 3.9, table 3-7). Thread rule: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace serval {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum Kind : uint8_t {
    kValid,       // one whole character
    kInvalid,     // a maximal subpart that no continuation can mend
    kIncomplete,  // a good beginning, cut off by the end of the text
  };
  Kind kind;
  size_t bytes;  // 1 to 4
};

// What stands at the front of `text`, which is not empty.
Utf8Step NextUtf8(std::string_view text);

// The length of the longest well-formed prefix.
size_t ValidUtf8Prefix(std::string_view text);

// Appends `text` well-formed. When `more` may follow, a cut-off last character is left alone and
// its length returned; otherwise it becomes U+FFFD and the result is 0.
size_t AppendValidUtf8(std::string_view text, bool more, std::string& out);

// `text` itself when it is well-formed, else its repaired copy in `storage`.
std::string_view ToValidUtf8(std::string_view text, std::string& storage);

}  // namespace serval
