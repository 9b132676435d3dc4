// The flags of `serval generate`, and the request they make.
// Thread rule: one thread.
#pragma once

#include <istream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "clients/common/flags.h"
#include "clients/common/rpc.h"
#include "serval/v1/generation.pb.h"

namespace serval {

struct GenerateOptions {
  Server server = DefaultServer();
  v1::GenerateRequest request;
  std::optional<std::string> prompt;       // --prompt
  std::optional<std::string> prompt_file;  // --prompt-file
  std::optional<std::string> system;       // --system
  bool chat = false;
  bool json = false;
  bool stats = false;  // a line of counts and rates at the end
};

// `options` must outlive `flags`.
FlagSet GenerateFlags(GenerateOptions& options);

// Puts the prompt in the request: from the flags or, without one, all of `in`. INVALID_ARGUMENT:
// the flags contradict each other. NOT_FOUND and the like: the file cannot be read.
absl::Status TakePrompt(GenerateOptions& options, std::istream& in);

// One exchange of ChatML that ends where the assistant's answer begins.
std::string ChatMl(const std::string& system, const std::string& user);

}  // namespace serval
