#include "clients/cli/command.h"

#include <ostream>
#include <vector>

namespace serval {
namespace {

struct Command {
  std::string_view name;
  std::string_view about;
  int (*run)(Args, Io);
};

constexpr Command kCommands[] = {
    {"generate", "continue a prompt, streaming the text as it comes", RunGenerate},
    {"models", "what the server serves, its context length and its memory", RunModels},
    {"stats", "requests, tokens, latencies and memory of the running server", RunStats},
};

void PrintHelp(std::ostream& out) {
  out << "Usage: serval COMMAND [FLAGS]\n\nTalks to a running serval-server.\n\nCommands:\n";
  for (const Command& command : kCommands) {
    out << "  " << command.name << std::string(12 - command.name.size(), ' ') << command.about
        << "\n";
  }
  out << "\n'serval COMMAND --help' explains one. The server is named by --target HOST:PORT or "
         "the\n"
         "environment's SERVAL_TARGET [localhost:50051]. Exit codes: 0 done, 1 the call failed,\n"
         "2 wrong usage, 130 interrupted.\n\nExample:\n"
         "  serval generate --chat --prompt 'Why is the sky blue?' --max-tokens 100\n";
}

}  // namespace

int Fail(Io io, std::string_view command, std::string_view sentence, int code) {
  io.err << "serval";
  if (!command.empty()) io.err << ' ' << command;
  io.err << ": " << sentence << std::endl;
  return code;
}

bool ParseOrExplain(FlagSet& flags, std::string_view command, Args args, Io io, int* code) {
  bool help = false;
  flags.Section("Help");
  flags.AddSwitch("help", "print this and exit", [&help](bool on) { help = on; });
  flags.Alias("-h", "help");
  const absl::Status status = flags.Parse(args);
  if (help) {
    io.out << flags.Help() << std::flush;
    *code = kOk;
    return false;
  }
  if (!status.ok()) *code = Fail(io, command, std::string(status.message()), kUsage);
  return status.ok();
}

int RunCli(Args args, Io io) {
  if (args.empty()) {
    PrintHelp(io.err);
    return kUsage;
  }
  const std::string& name = args[0];
  if (name == "--help" || name == "-h" || name == "help") {
    PrintHelp(io.out);
    return kOk;
  }
  if (name == "--version") {
    io.out << "serval " << SERVAL_VERSION << std::endl;
    return kOk;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(args.subspan(1), io);
    names.emplace_back(command.name);
  }
  const std::string near = Nearest(name, names);
  return Fail(io, "",
              "unknown command '" + name + "'" +
                  (near.empty() ? "; see serval --help" : "; did you mean '" + near + "'?"),
              kUsage);
}

}  // namespace serval
