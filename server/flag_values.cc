#include "server/flag_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace serval {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};
constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"k", 1024.0},
                                          {"kib", 1024.0},
                                          {"kb", 1e3},
                                          {"m", 1048576.0},
                                          {"mib", 1048576.0},
                                          {"mb", 1e6},
                                          {"g", 1073741824.0},
                                          {"gib", 1073741824.0},
                                          {"gb", 1e9},
                                          {"t", 1099511627776.0},
                                          {"tib", 1099511627776.0},
                                          {"tb", 1e12}}};

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return absl::InvalidArgumentError(
        most == std::numeric_limits<int64_t>::max()
            ? absl::StrCat("allowed: a whole number, ", least, " or more")
            : absl::StrCat("allowed: a whole number from ", least, " to ", most));
  }
  return value;
}

absl::StatusOr<bool> ParseBool(std::string_view text) {
  for (const std::string_view yes : {"true", "yes", "on", "1"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "no", "off", "0"}) {
    if (text == no) return false;
  }
  return absl::InvalidArgumentError("allowed: true or false");
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  const auto refused =
      absl::InvalidArgumentError("allowed: a number of bytes such as 2GiB, 512MB or 1073741824");
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return refused;
  std::string unit(end, text.data() + text.size());
  absl::AsciiStrToLower(&unit);
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    const double bytes = std::floor(number * known.bytes);
    if (bytes > 1e18) return refused;
    return static_cast<int64_t>(bytes);
  }
  return refused;
}

std::string_view Nearest(std::string_view name, std::span<const std::string_view> names) {
  std::string_view best;
  size_t least = std::max<size_t>(2, name.size() / 2) + 1;
  for (const std::string_view candidate : names) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace serval
