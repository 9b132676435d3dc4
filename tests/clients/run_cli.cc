#include "tests/clients/run_cli.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

extern char** environ;

namespace serval {

CliProcess::CliProcess(const std::vector<std::string>& args) {
  char path[] = "/tmp/serval-cli-XXXXXX";
  int pipe_ends[2];
  err_ = mkostemp(path, O_CLOEXEC);
  if (err_ < 0 || pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("no files");
  unlink(path);
  out_ = pipe_ends[0];

  std::vector<char*> argv = {const_cast<char*>(SERVAL_CLI)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_, STDERR_FILENO);
  const int failed = posix_spawn(&pid_, SERVAL_CLI, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (failed != 0) throw std::runtime_error("cannot start " SERVAL_CLI);
}

CliProcess::~CliProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
  CloseOutput();
  close(err_);
}

std::string CliProcess::ReadSome() {
  char text[4096];
  const ssize_t bytes = read(out_, text, sizeof text);
  return bytes > 0 ? std::string(text, bytes) : "";
}

void CliProcess::CloseOutput() {
  if (out_ >= 0) close(out_);
  out_ = -1;
}

void CliProcess::Signal(int signal) { kill(pid_, signal); }

int CliProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string CliProcess::Err() const {
  char text[4096];
  const ssize_t bytes = pread(err_, text, sizeof text, 0);
  return bytes > 0 ? std::string(text, bytes) : "";
}

}  // namespace serval
