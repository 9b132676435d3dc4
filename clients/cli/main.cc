// The `serval` command line client.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "clients/cli/command.h"
#include "clients/common/interrupt.h"

int main(int argc, char** argv) {
  serval::IgnoreSigPipe();
  std::ios::sync_with_stdio(false);
  const serval::Io io{std::cin, std::cout, std::cerr};
  try {
    const std::vector<std::string> args(argv + 1, argv + argc);
    return serval::RunCli(args, io);
  } catch (const std::exception& error) {
    return serval::Fail(io, "", std::string("stopped: ") + error.what(), serval::kFailed);
  }
}
