// The command line, the environment and the configuration file of serval-server: one table of
// flags. Precedence: command line (--name VALUE, --name=VALUE), then environment (SERVAL_NAME),
// then --config FILE.yaml (name: value), then the default. Thread rule: called once, at start.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/options.h"

namespace serval {

// Reads one environment variable; nullopt when unset. Tests pass their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment ProcessEnvironment();

// `args` without the program's name. Errors: INVALID_ARGUMENT naming the flag, the value and what
// is allowed, or for an unknown flag the nearest known one; NOT_FOUND for the configuration file.
absl::StatusOr<ServerOptions> ParseFlags(std::span<const std::string_view> args,
                                         const Environment& environment);

// The text of --help.
std::string HelpText();

}  // namespace serval
