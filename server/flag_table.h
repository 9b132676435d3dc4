// The table of flags: the one place where a flag's name, help and effect stand. Thread rule:
// constant data.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/options.h"

namespace serval {

struct Flag {
  std::string_view group;
  std::string_view name;         // "grpc-port"
  std::string_view placeholder;  // "PORT"; empty = a switch: needs no value, --no-NAME turns it off
  std::string_view help;
  std::string_view fallback;  // the default, as shown in the help; empty = none
  absl::Status (*set)(ServerOptions& options, std::string_view value);
  bool is_switch() const { return placeholder.empty(); }
};

std::span<const Flag> Flags();

}  // namespace serval
