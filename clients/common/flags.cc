#include "clients/common/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

namespace serval {
namespace {

constexpr size_t kHelpColumn = 36;
constexpr size_t kHelpWidth = 100;

std::string Shown(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string Range(double low, double high) {
  const bool has_low = low > -std::numeric_limits<float>::max();
  const bool has_high = high < std::numeric_limits<float>::max();
  if (has_low && has_high) return " from " + Shown(low) + " to " + Shown(high);
  if (has_low) return " of at least " + Shown(low);
  if (has_high) return " of at most " + Shown(high);
  return "";
}

absl::Status Expected(const std::string& what, std::string_view came) {
  return absl::InvalidArgumentError("wants " + what + ", not '" + std::string(came) + "'");
}

size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Appends `text` word by word from kHelpColumn on; the cursor stands at column `at`.
void Wrap(std::string& out, size_t at, const std::string& text) {
  auto indent = [&out](size_t from) {
    out.append(kHelpColumn > from ? kHelpColumn - from : 0, ' ');
  };
  if (at + 2 > kHelpColumn) {
    out += '\n';
    at = 0;
  }
  indent(at);
  size_t column = kHelpColumn;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > kHelpColumn && column + 1 + word.size() > kHelpWidth) {
      out += '\n';
      indent(0);
      column = kHelpColumn;
    }
    if (column > kHelpColumn) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  out += '\n';
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stopped == end && value >= low && value <= high) return value;
  const bool unbounded = high == std::numeric_limits<int64_t>::max() || high == kInt32Max;
  std::string range = " from " + std::to_string(low) + " to " + std::to_string(high);
  if (unbounded) range = " of at least " + std::to_string(low);
  if (unbounded && error == std::errc() && stopped == end && value > high) {
    range = " of at most " + std::to_string(high);
  }
  return Expected("a whole number" + range, text);
}

absl::StatusOr<double> ParseNumber(std::string_view text, double low, double high) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stopped == end && std::isfinite(value) && value >= low &&
      value <= high) {
    return value;
  }
  return Expected("a number" + Range(low, high), text);
}

std::vector<std::string> SplitList(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  size_t best_edits = std::max<size_t>(2, word.size() / 2);
  for (const std::string& candidate : candidates) {
    // A cut-off name ("max-tok") is what was meant, however many letters are missing.
    const bool prefix = word.size() >= 3 && candidate.starts_with(word);
    const size_t edits = prefix ? 1 : Edits(word, candidate);
    if (edits < best_edits || (edits == best_edits && best.empty())) {
      best = candidate;
      best_edits = edits;
    }
  }
  return best;
}

void FlagSet::Section(std::string title) { next_section_ = std::move(title); }

void FlagSet::Add(std::string name, std::string value_name, std::string help, Setter set) {
  flags_.push_back({std::move(name),
                    std::move(value_name),
                    std::move(help),
                    std::exchange(next_section_, {}),
                    {},
                    std::move(set)});
}

void FlagSet::AddSwitch(std::string name, std::string help, const std::function<void(bool)>& set) {
  Add(std::move(name), "", std::move(help), [set](std::string_view text) {
    if (text != "true" && text != "false") return Expected("true or false", text);
    set(text == "true");
    return absl::OkStatus();
  });
}

void FlagSet::AddText(std::string name, std::string value_name, std::string help,
                      const std::function<void(std::string)>& set) {
  Add(std::move(name), std::move(value_name), std::move(help), [set](std::string_view text) {
    set(std::string(text));
    return absl::OkStatus();
  });
}

void FlagSet::AddInteger(std::string name, std::string help, int64_t low, int64_t high,
                         const std::function<void(int64_t)>& set) {
  Add(std::move(name), "N", std::move(help), [=](std::string_view text) {
    const auto value = ParseInteger(text, low, high);
    if (value.ok()) set(*value);
    return value.status();
  });
}

void FlagSet::AddNumber(std::string name, std::string help, double low, double high,
                        const std::function<void(double)>& set) {
  Add(std::move(name), "X", std::move(help), [=](std::string_view text) {
    const auto value = ParseNumber(text, low, high);
    if (value.ok()) set(*value);
    return value.status();
  });
}

void FlagSet::Alias(const std::string& spelling, std::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) flag.alias = spelling;
  }
}

const FlagSet::Flag* FlagSet::Find(std::string_view spelling) const {
  for (const Flag& flag : flags_) {
    if (spelling == "--" + flag.name || (!flag.alias.empty() && spelling == flag.alias)) {
      return &flag;
    }
  }
  return nullptr;
}

absl::Status FlagSet::Unknown(std::string_view spelling) const {
  std::string message = "unknown flag '" + std::string(spelling) + "'";
  if (!spelling.starts_with("-")) {
    return absl::InvalidArgumentError("unexpected argument '" + std::string(spelling) +
                                      "': every value belongs to a flag; see --help");
  }
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string near =
      Nearest(spelling.substr(std::min(spelling.find_first_not_of('-'), spelling.size())), names);
  message += near.empty() ? "; see --help" : "; did you mean --" + near + "?";
  return absl::InvalidArgumentError(message);
}

absl::Status FlagSet::Parse(std::span<const std::string> args) const {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    const size_t equals = arg.find('=');
    const std::string_view spelling = arg.substr(0, equals);
    const Flag* flag = Find(spelling);
    if (flag == nullptr) return Unknown(spelling);
    std::string_view value = "true";
    if (equals != std::string_view::npos) {
      value = arg.substr(equals + 1);
    } else if (!flag->value_name.empty()) {
      if (++i == args.size()) {
        return absl::InvalidArgumentError("--" + flag->name + " wants a value (" +
                                          flag->value_name + "), and none follows it");
      }
      value = args[i];
    }
    if (const absl::Status status = flag->set(value); !status.ok()) {
      return absl::InvalidArgumentError("--" + flag->name + " " + std::string(status.message()));
    }
  }
  return absl::OkStatus();
}

std::string FlagSet::Help() const {
  std::string out = "Usage: " + usage_ + "\n\n" + about_ + "\n";
  for (const Flag& flag : flags_) {
    if (!flag.section.empty()) out += "\n" + flag.section + ":\n";
    std::string line = "  ";
    if (!flag.alias.empty()) line += flag.alias + ", ";
    line += "--" + flag.name;
    if (!flag.value_name.empty()) line += " " + flag.value_name;
    out += line;
    Wrap(out, line.size(), flag.help);
  }
  return out;
}

}  // namespace serval
