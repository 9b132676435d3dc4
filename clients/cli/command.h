// The commands of `serval`. Each is a function of its arguments and its streams, so tests run it in
// their own process. Thread rule: one command at a time, on the main thread.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "clients/common/flags.h"

namespace serval {

struct Io {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
};

enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kInterrupted = 130 };

using Args = std::span<const std::string>;

// `args` without the program's name. Returns the exit code.
int RunCli(Args args, Io io);

// `args` without the command's name.
int RunGenerate(Args args, Io io);
int RunModels(Args args, Io io);
int RunStats(Args args, Io io);

// Adds --help, parses, and deals with what ends a command before it began: true = go on, else *code
// is the exit code. The sections and flags of the command are in `flags` already.
bool ParseOrExplain(FlagSet& flags, std::string_view command, Args args, Io io, int* code);

// One line on io.err: "serval generate: sentence". Returns `code`.
int Fail(Io io, std::string_view command, std::string_view sentence, int code);

}  // namespace serval
