// Runs `serval` in this process, and as a process of its own, for the clients' tests.
// Thread rule: one test, one thread.
#pragma once

#include <sys/types.h>

#include <sstream>
#include <string>
#include <vector>

#include "clients/cli/command.h"

namespace serval {

struct CliResult {
  int code = 0;
  std::string out;
  std::string err;
};

inline CliResult RunInProcess(const std::vector<std::string>& args, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out, err;
  const int code = RunCli(args, {in, out, err});
  return {code, out.str(), err.str()};
}

// The binary, with its standard output on a pipe and its standard error in a file.
class CliProcess {
 public:
  explicit CliProcess(const std::vector<std::string>& args);
  ~CliProcess();
  CliProcess(const CliProcess&) = delete;
  CliProcess& operator=(const CliProcess&) = delete;

  // Waits for output: at least one byte, empty at its end.
  std::string ReadSome();
  // The reader goes away.
  void CloseOutput();
  void Signal(int signal);
  // Waits for the end. The exit code, or 128 + the signal that ended it.
  int Wait();
  std::string Err() const;

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
};

}  // namespace serval
