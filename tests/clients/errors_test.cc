// What `serval` says and how it exits when a call fails, is interrupted, or loses its reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/clients/run_cli.h"
#include "tests/clients/scripted_server.h"

namespace serval {
namespace {

using testing::HasSubstr;

CliResult Generate(const std::string& target, std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"generate", "--target", target, "--prompt", "p"};
  args.insert(args.end(), more.begin(), more.end());
  return RunInProcess(args);
}

TEST(Errors, EveryStatusIsOneSentenceWithARemedy) {
  ScriptedServer server;
  const std::vector<std::pair<grpc::StatusCode, std::string>> cases = {
      {grpc::StatusCode::INVALID_ARGUMENT, "refused the request (why): correct that value"},
      {grpc::StatusCode::OUT_OF_RANGE, "does not fit the model (why): shorten the prompt"},
      {grpc::StatusCode::NOT_FOUND, "does not have it (why): 'serval models' lists"},
      {grpc::StatusCode::UNAUTHENTICATED, "does not let this client in (why): ask whoever"},
      {grpc::StatusCode::PERMISSION_DENIED, "does not let this client in (why): ask whoever"},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "is full (why): try again in a moment"},
      {grpc::StatusCode::UNAVAILABLE, "is not ready (why): try again in a moment"},
      {grpc::StatusCode::DEADLINE_EXCEEDED, "ran out of time (why): ask for fewer tokens"},
      {grpc::StatusCode::CANCELLED, "cancelled at the server's side (why): see whether"},
      {grpc::StatusCode::UNIMPLEMENTED, "does not know this call (why): is it a serval-server"},
      {grpc::StatusCode::INTERNAL, "failed (why): its log says why"},
      {grpc::StatusCode::UNKNOWN, "failed (why): its log says why"},
  };
  for (const auto& [code, sentence] : cases) {
    server.script = [code = code](auto*, const auto&, auto*) { return grpc::Status(code, "why"); };
    const CliResult result = Generate(server.Target());
    EXPECT_EQ(result.code, kFailed);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(sentence));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(Errors, AFullQueueSaysWhenToComeBack) {
  ScriptedServer server;
  server.script = [](grpc::ServerContext* context, const auto&, auto*) {
    context->AddTrailingMetadata("retry-after-ms", "1500");
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full");
  };
  EXPECT_THAT(Generate(server.Target()).err,
              HasSubstr("is full (the queue is full): try again in 1.5 s"));
}

TEST(Errors, TextBeforeAFailureStaysOnItsOwnLine) {
  ScriptedServer server;
  server.script = [](auto*, const auto&, auto* writer) {
    v1::GenerateResponse message;
    message.mutable_choice()->set_text("half");
    writer->Write(message);
    return grpc::Status(grpc::StatusCode::INTERNAL, "broken");
  };
  const CliResult text = Generate(server.Target());
  EXPECT_EQ(text.code, kFailed);
  EXPECT_EQ(text.out, "half\n");
  const CliResult json = Generate(server.Target(), {"--json"});
  EXPECT_EQ(json.code, kFailed);
  EXPECT_EQ(json.out, "");
}

TEST(Errors, NobodyListens) {
  std::string target;
  {
    const ScriptedServer gone;
    target = gone.Target();
  }
  const CliResult result = Generate(target);
  EXPECT_EQ(result.code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("connection refused: is serval-server running at " + target));
  EXPECT_EQ(RunInProcess({"models", "--target", target}).code, kFailed);
  EXPECT_EQ(RunInProcess({"stats", "--target", target}).code, kFailed);
}

TEST(Errors, AnUnknownHost) {
  const CliResult result = Generate("no-such-host.invalid:50051");
  EXPECT_EQ(result.code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("the host of 'no-such-host.invalid:50051' is not known"));
}

TEST(Errors, AServerOfAnotherProtocol) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread http([listener] {
    const int connection = accept(listener, nullptr, nullptr);
    constexpr char kAnswer[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    EXPECT_GT(send(connection, kAnswer, sizeof kAnswer - 1, 0), 0);
    char ignored[1024];
    while (read(connection, ignored, sizeof ignored) > 0) {
    }
    close(connection);
  });
  const CliResult result = Generate("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  shutdown(listener, SHUT_RDWR);
  http.join();
  close(listener);
  EXPECT_EQ(result.code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("does not speak gRPC: give the gRPC port"));
}

// Writes a word every 10 ms until the client leaves; says so in `left`.
ScriptedServer::Script Endless(std::atomic<bool>& left) {
  return [&left](grpc::ServerContext* context, const auto&, auto* writer) {
    v1::GenerateResponse message;
    message.mutable_choice()->set_text("word ");
    while (!context->IsCancelled()) {
      writer->Write(message);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    left = true;
    return grpc::Status::CANCELLED;
  };
}

bool Becomes(const std::atomic<bool>& flag) {
  for (int i = 0; i < 1000 && !flag; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return flag;
}

TEST(Errors, TheTimeoutIsTheDeadline) {
  std::atomic<bool> left = false;
  ScriptedServer server;
  server.script = Endless(left);
  const CliResult result = Generate(server.Target(), {"--timeout", "0.3"});
  EXPECT_EQ(result.code, kFailed);
  EXPECT_THAT(result.err, HasSubstr("no complete answer within --timeout 0.3 s: give more time"));
  EXPECT_TRUE(Becomes(left));
}

TEST(Process, TextComesWhileTheCallRuns) {
  std::atomic<bool> left = false;
  ScriptedServer server;
  server.script = Endless(left);
  CliProcess cli({"generate", "--target", server.Target(), "--prompt", "p"});
  EXPECT_THAT(cli.ReadSome(), HasSubstr("word"));
  EXPECT_FALSE(left);
}

class Interrupts : public testing::TestWithParam<int> {};

TEST_P(Interrupts, CancelTheCall) {
  std::atomic<bool> left = false;
  ScriptedServer server;
  server.script = Endless(left);
  CliProcess cli({"generate", "--target", server.Target(), "--prompt", "p"});
  ASSERT_NE(cli.ReadSome(), "");
  cli.Signal(GetParam());
  EXPECT_EQ(cli.Wait(), kInterrupted);
  EXPECT_TRUE(Becomes(left));
  EXPECT_THAT(cli.Err(), HasSubstr("interrupted; the call was cancelled"));
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupts, testing::Values(SIGINT, SIGTERM));

TEST(Process, ALostReaderCancelsTheCall) {
  std::atomic<bool> left = false;
  ScriptedServer server;
  server.script = Endless(left);
  CliProcess cli({"generate", "--target", server.Target(), "--prompt", "p"});
  ASSERT_NE(cli.ReadSome(), "");
  cli.CloseOutput();
  EXPECT_EQ(cli.Wait(), kFailed);
  EXPECT_TRUE(Becomes(left));
  EXPECT_THAT(cli.Err(), HasSubstr("standard output was closed before the end"));
}

TEST(Process, AServerThatDiesIsNamed) {
  std::atomic<bool> left = false;
  auto server = std::make_unique<ScriptedServer>();
  server->script = Endless(left);
  CliProcess cli({"generate", "--target", server->Target(), "--prompt", "p"});
  ASSERT_NE(cli.ReadSome(), "");
  server.reset();
  EXPECT_EQ(cli.Wait(), kFailed);
  EXPECT_NE(cli.Err(), "");
}

}  // namespace
}  // namespace serval
