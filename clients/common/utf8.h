// UTF-8 as the clients need it: is it well-formed, and what to show where it is not.
// Thread rule: pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace serval {

// Well-formed by the Unicode standard, table 3-7: no overlong forms, no surrogates, nothing above
// U+10FFFF.
bool IsUtf8(std::string_view text);

// Each maximal ill-formed piece becomes one U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace serval
