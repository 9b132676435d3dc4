// From the text of a flag to its value. Errors say what is allowed; the caller adds which flag it
// was. Thread rule: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace serval {

absl::StatusOr<int64_t> ParseInteger(std::string_view text, int64_t least, int64_t most);
// true false yes no on off 1 0.
absl::StatusOr<bool> ParseBool(std::string_view text);
// Bytes: 1073741824, 1GiB, 512MB, 1.5GiB, 64K (a bare K, M, G or T is binary). At least 0.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);
// The entry of `names` nearest to `name` by edit distance, empty when none is near enough to be
// meant.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> names);

}  // namespace serval
