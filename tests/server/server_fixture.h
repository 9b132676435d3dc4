// A Frontend around a scripted engine, and a client on the loopback. Thread rule: the test's
// thread; Generate from any.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serval/v1/admin.grpc.pb.h"
#include "serval/v1/generation.grpc.pb.h"
#include "serval/v1/models.grpc.pb.h"
#include "server/frontend.h"
#include "server/log.h"
#include "tests/support/fake_engine.h"
#include "tests/support/fake_tokenizer.h"

namespace serval {

// A whole stream, put together.
struct Answer {
  grpc::Status status;
  std::map<int, std::string> text;  // by choice
  std::map<int, std::vector<int32_t>> token_ids;
  std::map<int, std::vector<v1::PositionLogprobs>> logprobs;
  std::map<int, v1::Choice> last;  // the message that carried the finish reason
  std::vector<v1::GenerateResponse> messages;
  std::string retry_after_ms;
  const v1::Usage& usage() const { return messages.back().usage(); }
};

// Until `condition` holds, for at most ten seconds.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class ServerTest : public testing::Test {
 protected:
  void Start(FakeEngineOptions options = {}) {
    StartLoading();
    Serve(std::move(options));
  }
  void StartLoading() {
    StartLog("off", false);
    ServerOptions options;
    options.host = "127.0.0.1";
    options.grpc_port = 0;
    options.port = 0;
    options.seed = 7;
    auto started = Frontend::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    frontend_ = *std::move(started);
    channel_ = NewChannel();
    stub_ = v1::Generation::NewStub(channel_);
  }
  void Serve(FakeEngineOptions options) {
    auto engine = std::make_unique<FakeEngine>(std::move(options));
    engine_ = engine.get();
    frontend_->Serve(
        MakeServedModel("fake", std::make_shared<FakeTokenizer>(), std::move(engine), "template"));
  }
  std::string target() const { return "127.0.0.1:" + std::to_string(frontend_->grpc_port()); }
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(target(), grpc::InsecureChannelCredentials(), arguments);
  }

  static v1::GenerateRequest Ask(const std::string& prompt, int max_tokens) {
    v1::GenerateRequest request;
    request.set_text(prompt);
    request.set_add_special_tokens(false);
    request.mutable_sampling()->set_max_tokens(max_tokens);
    return request;
  }
  Answer Generate(const v1::GenerateRequest& request,
                  std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    Answer answer;
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) Add(message, answer);
    answer.status = reader->Finish();
    const auto& trailers = context.GetServerTrailingMetadata();
    if (const auto found = trailers.find("retry-after-ms"); found != trailers.end()) {
      answer.retry_after_ms = std::string(found->second.data(), found->second.size());
    }
    return answer;
  }
  // Everything was given back.
  void ExpectIdle() {
    EXPECT_TRUE(Eventually(
        [&] { return engine_->held() == 0 && frontend_->state().running_calls() == 0; }));
  }

  std::unique_ptr<Frontend> frontend_;
  FakeEngine* engine_ = nullptr;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;

 private:
  static void Add(const v1::GenerateResponse& message, Answer& answer) {
    answer.messages.push_back(message);
    if (!message.has_choice()) return;
    const v1::Choice& choice = message.choice();
    const int index = choice.index();
    answer.text[index] += choice.text();
    auto& ids = answer.token_ids[index];
    ids.insert(ids.end(), choice.token_ids().begin(), choice.token_ids().end());
    auto& logprobs = answer.logprobs[index];
    logprobs.insert(logprobs.end(), choice.logprobs().begin(), choice.logprobs().end());
    if (choice.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) answer.last[index] = choice;
  }
};

}  // namespace serval
