// serval-server as a process, with a tiny model: how it starts, stops and fails.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/server/server_fixture.h"
#include "tests/support/tiny_gguf.h"

namespace serval {
namespace {

// A child whose standard error is read here; killed when it is still there at the end.
class Process {
 public:
  explicit Process(std::vector<std::string> args) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    args.insert(args.begin(), SERVAL_SERVER_BINARY);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
    close(out_);
  }
  // Reads until `text` has been seen; false at the end of the output or after half a minute.
  bool ReadUntil(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (seen_.find(text) == std::string::npos) {
      pollfd ready{.fd = out_, .events = POLLIN, .revents = 0};
      char buffer[4096];
      if (std::chrono::steady_clock::now() > end) return false;
      if (poll(&ready, 1, 1000) <= 0) continue;
      const ssize_t count = read(out_, buffer, sizeof(buffer));
      if (count <= 0) return false;
      seen_.append(buffer, count);
    }
    return true;
  }
  void Signal(int signal) const { kill(pid_, signal); }
  // The exit code, or -1 for an end by signal.
  int Wait() {
    ReadUntil("\x01 never written");
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& seen() const { return seen_; }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::string seen_;
};

class ProcessTest : public testing::Test {
 protected:
  std::vector<std::string> Args(std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {
        "--model",          file_.path(), "--host",    "127.0.0.1", "--grpc-port",    "0",
        "--port",           "0",          "--threads", "1",         "--max-num-seqs", "4",
        "--kv-cache-dtype", "f32"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static std::unique_ptr<v1::Generation::Stub> Connect(const Process& server) {
    const std::string before = "gRPC on ";
    const size_t begin = server.seen().find(before) + before.size();
    const std::string target = server.seen().substr(begin, server.seen().find(',', begin) - begin);
    return v1::Generation::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  }
  static v1::GenerateRequest Long(int tokens) {
    v1::GenerateRequest request;
    request.set_text("hello");
    request.set_return_token_ids(true);
    request.mutable_sampling()->set_max_tokens(tokens);
    request.mutable_sampling()->set_ignore_eos(true);
    return request;
  }

  const TemporaryFile file_{WriteTinyLlama({}).Bytes()};
};

TEST_F(ProcessTest, StartsAnswersAndDrainsOnSigterm) {
  Process server(Args());
  ASSERT_TRUE(server.ReadUntil("ready: gRPC on ")) << server.seen();
  ASSERT_TRUE(server.ReadUntil("\n"));
  EXPECT_NE(server.seen().find("paged"), std::string::npos) << "the plan is printed";
  auto stub = Connect(server);
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, Long(100));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  server.Signal(SIGTERM);
  int tokens = message.choice().token_ids_size();
  while (reader->Read(&message)) tokens += message.choice().token_ids_size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, 100);
  EXPECT_EQ(server.Wait(), 0) << server.seen();
}

TEST_F(ProcessTest, SecondSignalEndsAtOnce) {
  Process server(Args());
  ASSERT_TRUE(server.ReadUntil("ready: gRPC on ")) << server.seen();
  auto stub = Connect(server);
  // An answer of a megabyte that nobody reads on: the call stays open.
  v1::GenerateRequest request = Long(500);
  request.mutable_sampling()->set_n(4);
  request.mutable_sampling()->set_logprobs(20);
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, request);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  server.Signal(SIGINT);
  ASSERT_TRUE(server.ReadUntil("shutting down"));
  server.Signal(SIGINT);
  EXPECT_EQ(server.Wait(), 128 + SIGINT) << server.seen();
}

TEST_F(ProcessTest, BrokenModelIsOneSentenceAndExitCode1) {
  file_.Write("GGUF, or so it says");
  Process server(Args());
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_TRUE(server.seen().starts_with("serval-server: ")) << server.seen();
  EXPECT_EQ(std::count(server.seen().begin(), server.seen().end(), '\n'), 1) << server.seen();
}

TEST_F(ProcessTest, MissingModelIsNamed) {
  Process server({"--model", "/no/such.gguf", "--grpc-port", "0", "--port", "0"});
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_EQ(server.seen(), "serval-server: --model /no/such.gguf: no such file\n");
}

TEST_F(ProcessTest, ContextBeyondTheModelsIsRefused) {
  Process server(Args({"--max-model-len", "1000000"}));
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_NE(server.seen().find("--max-model-len 1000000: the model's context is "),
            std::string::npos)
      << server.seen();
}

TEST_F(ProcessTest, UsageErrorIsExitCode2) {
  Process server({"--modle", "x"});
  EXPECT_EQ(server.Wait(), 2);
  EXPECT_EQ(server.seen(), "serval-server: unknown flag --modle; did you mean --model?\n");
}

TEST_F(ProcessTest, JsonLogHasOneObjectALine) {
  Process server(Args({"--log-json"}));
  ASSERT_TRUE(server.ReadUntil("ready: gRPC on ")) << server.seen();
  ASSERT_TRUE(server.ReadUntil("\n"));
  auto stub = Connect(server);
  v1::GenerateRequest request = Long(1);
  request.set_request_id("r-1");
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, request);
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  ASSERT_TRUE(reader->Finish().ok());
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_NE(server.seen().find("\"level\":\"info\",\"message\":\"done: "), std::string::npos)
      << server.seen();
  EXPECT_NE(server.seen().find("\"request_id\":\"r-1\"}\n"), std::string::npos) << server.seen();
}

}  // namespace
}  // namespace serval
