// Command line flags of the clients: --name VALUE, --name=VALUE, --switch, --switch=false. A wrong
// flag is refused with the nearest right one, a wrong value with what was expected. Thread rule:
// none; made, parsed and read by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace serval {

// The whole of `text` as a number within [low, high]. INVALID_ARGUMENT: says what was expected and
// what came.
absl::StatusOr<int64_t> ParseInteger(std::string_view text, int64_t low, int64_t high);
absl::StatusOr<double> ParseNumber(std::string_view text, double low, double high);

// "1,2,3" in parts, empty ones included; an empty text has none.
std::vector<std::string> SplitList(std::string_view text, char separator = ',');

// The candidate with the fewest edits from `word`; empty when none is near enough to be what was
// meant.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

class FlagSet {
 public:
  using Setter = std::function<absl::Status(std::string_view)>;

  // `usage` is the first line of the help, `about` the paragraph under it.
  FlagSet(std::string usage, std::string about)
      : usage_(std::move(usage)), about_(std::move(about)) {}

  void Section(std::string title);
  // A flag that takes a value; `set` is called each time it is given.
  void Add(std::string name, std::string value_name, std::string help, Setter set);
  void AddSwitch(std::string name, std::string help, const std::function<void(bool)>& set);
  void AddText(std::string name, std::string value_name, std::string help,
               const std::function<void(std::string)>& set);
  void AddInteger(std::string name, std::string help, int64_t low, int64_t high,
                  const std::function<void(int64_t)>& set);
  void AddNumber(std::string name, std::string help, double low, double high,
                 const std::function<void(double)>& set);
  // Another spelling of a flag, with its dashes: Alias("-v", "stats").
  void Alias(const std::string& spelling, std::string_view name);

  // INVALID_ARGUMENT with one sentence. There are no positional arguments.
  absl::Status Parse(std::span<const std::string> args) const;
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string value_name;  // empty: a switch
    std::string help;
    std::string section;  // title printed before it, once
    std::string alias;
    Setter set;
  };
  const Flag* Find(std::string_view spelling) const;
  absl::Status Unknown(std::string_view spelling) const;

  std::string usage_;
  std::string about_;
  std::string next_section_;
  std::vector<Flag> flags_;
};

inline constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

}  // namespace serval
