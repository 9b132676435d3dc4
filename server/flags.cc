#include "server/flags.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/flag_table.h"
#include "server/flag_values.h"

namespace serval {
namespace {

constexpr std::string_view kNo = "no-";

// One value for one flag, and where it came from ("--port", "SERVAL_PORT", "port in serve.yaml").
struct Given {
  std::string value;
  std::string source;
};
using GivenFlags = std::map<const Flag*, Given>;

const Flag* Find(std::string_view name) {
  for (const Flag& flag : Flags()) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status Unknown(const std::string& written, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Flag& flag : Flags()) names.push_back(flag.name);
  const std::string nearest(Nearest(name, names));
  return absl::InvalidArgumentError(
      nearest.empty() ? absl::StrCat("unknown flag ", written, "; --help lists them all")
                      : absl::StrCat("unknown flag ", written, "; did you mean --", nearest, "?"));
}

absl::StatusOr<GivenFlags> FromCommandLine(std::span<const std::string_view> args) {
  GivenFlags given;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i] == "-h" ? "--help" : args[i];
    if (!arg.starts_with("--") || arg.size() == 2) {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", std::string(arg),
                                                     "'; flags start with --, see --help"));
    }
    const size_t equals = arg.find('=');
    const std::string_view name = arg.substr(2, equals == arg.npos ? arg.npos : equals - 2);
    const Flag* flag = Find(name);
    const bool negated = flag == nullptr && name.starts_with(kNo);
    if (negated) flag = Find(name.substr(kNo.size()));
    if (flag == nullptr || (negated && (!flag->is_switch() || equals != arg.npos))) {
      return Unknown(absl::StrCat("--", std::string(name)), name);
    }
    std::string value = negated ? "false" : "true";
    if (equals != arg.npos) {
      value = std::string(arg.substr(equals + 1));
    } else if (!flag->is_switch()) {
      if (++i == args.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--", std::string(name), " needs a value: ", std::string(flag->placeholder)));
      }
      value = std::string(args[i]);
    }
    given[flag] = {value, absl::StrCat("--", std::string(flag->name))};
  }
  return given;
}

// Adds what the environment says about flags that are not given yet.
void AddEnvironment(const Environment& environment, GivenFlags& given) {
  for (const Flag& flag : Flags()) {
    if (flag.name == "help" || flag.name == "version") continue;
    const std::string name = absl::StrCat("SERVAL_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                                         std::string(flag.name), {{"-", "_"}})));
    if (const auto value = environment(name)) given.insert({&flag, {*value, name}});
  }
}

absl::Status AddYaml(const std::string& path, const YAML::Node& root, GivenFlags& given) {
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config ", path, ": expected lines of the form 'flag: value'"));
  }
  for (const auto& entry : root) {
    const auto written = entry.first.as<std::string>();
    const std::string name = absl::StrReplaceAll(written, {{"_", "-"}});
    const Flag* flag = Find(name);
    if (flag == nullptr || flag->name == "config") {
      return Unknown(absl::StrCat("'", written, "' in --config ", path), name);
    }
    if (!entry.second.IsScalar()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--config ", path, ": '", written, "' wants one value"));
    }
    given.insert(
        {flag,
         {entry.second.as<std::string>(), absl::StrCat("'", written, "' in --config ", path)}});
  }
  return absl::OkStatus();
}

absl::Status AddFile(GivenFlags& given) {
  const auto found = given.find(Find("config"));
  if (found == given.end()) return absl::OkStatus();
  const std::string& path = found->second.value;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("--config ", path, ": no such file"));
  }
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config ", path, ": a directory; name a file"));
  }
  try {
    return AddYaml(path, YAML::LoadFile(path), given);
  } catch (const std::exception& exception) {  // yaml-cpp's own, or of the stream it reads
    return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": ", exception.what()));
  }
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

absl::StatusOr<ServerOptions> ParseFlags(std::span<const std::string_view> args,
                                         const Environment& environment) {
  auto given = FromCommandLine(args);
  if (!given.ok()) return given.status();
  AddEnvironment(environment, *given);
  if (absl::Status status = AddFile(*given); !status.ok()) return status;

  ServerOptions options;
  for (const auto& [flag, value] : *given) {
    const absl::Status status = flag->set(options, value.value);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(value.source, ": '", value.value, "' is refused; ", status.message()));
    }
  }
  if (options.model.empty() && !options.help && !options.version) {
    return absl::InvalidArgumentError("--model is missing: name a .gguf file, see --help");
  }
  return options;
}

std::string HelpText() {
  std::string text =
      "serval-server: serves a language model over gRPC.\n\n"
      "  serval-server --model MODEL.gguf\n\n"
      "Then ask it: serval generate --prompt 'Once upon a time'\n"
      "Every flag may also be set in the environment (--grpc-port as SERVAL_GRPC_PORT) or in a "
      "file "
      "(--config).\n";
  std::string_view group;
  for (const Flag& flag : Flags()) {
    if (flag.group != group) {
      group = flag.group;
      absl::StrAppend(&text, "\n", std::string(group), "\n");
    }
    std::string left = absl::StrCat("  --", std::string(flag.name));
    if (!flag.is_switch()) absl::StrAppend(&left, " ", std::string(flag.placeholder));
    left.resize(std::max<size_t>(left.size() + 2, 34), ' ');
    absl::StrAppend(&text, left, std::string(flag.help));
    if (!flag.fallback.empty()) absl::StrAppend(&text, " [", std::string(flag.fallback), "]");
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, "\nA switch is turned off by --no-NAME or --NAME=false.\n");
  return text;
}

}  // namespace serval
