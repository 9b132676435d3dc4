// Calls that do not end well, many at once, and the server's own beginning and end.
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <fstream>
#include <future>

#include "tests/server/server_fixture.h"

namespace serval {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;

int ThreadsOfThisProcess() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  }
  return -1;
}

// A unary call of a service whose messages are written by hand.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string& response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  grpc::Slice slice(request);
  grpc::ByteBuffer in(&slice, 1), out;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, method, in, &queue);
  call->StartCall();
  call->Finish(&out, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (status.ok() && out.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      response.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  return status;
}

// grpc.health.v1: 1 = SERVING, 2 = NOT_SERVING.
int Health(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  std::string request, response;
  if (!service.empty()) {
    request = std::string("\x0A") + static_cast<char>(service.size()) + service;
  }
  const grpc::Status status = CallRaw(channel, "/grpc.health.v1.Health/Check", request, response);
  if (!status.ok()) return -static_cast<int>(status.error_code());
  return response.size() == 2 ? response[1] : 0;
}

TEST_F(ServerTest, CancelFreesTheRequestAtOnce) {
  Start();
  engine_->Pause(true);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Ask("x", 1000));
  ASSERT_TRUE(Eventually([&] { return engine_->held() == 1; }));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  ExpectIdle();
  EXPECT_EQ(engine_->Stats().finished[static_cast<size_t>(FinishReason::kCancelled)], 1u);
}

TEST_F(ServerTest, CancelWhileStreaming) {
  Start();
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Ask("x", 2000));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  ExpectIdle();
}

TEST_F(ServerTest, VanishedClientFreesItsRequests) {
  Start();
  {
    auto channel = NewChannel();
    auto stub = v1::Generation::NewStub(channel);
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
    engine_->Pause(true);
    for (int i = 0; i < 20; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(stub->Generate(contexts.back().get(), Ask("x", 2000)));
    }
    ASSERT_TRUE(Eventually([&] { return engine_->held() == 20; }));
    engine_->Pause(false);
  }  // the connection goes with all its streams
  ExpectIdle();
  EXPECT_TRUE(Generate(Ask("x", 3)).status.ok());
}

// Long texts wait until the gate opens.
class GatedTokenizer : public FakeTokenizer {
 public:
  explicit GatedTokenizer(std::shared_future<void> gate) : gate_(std::move(gate)) {}
  std::vector<int32_t> Encode(std::string_view text, bool add_special) const override {
    if (text.size() > 1000) gate_.wait();
    return FakeTokenizer::Encode(text, add_special);
  }

 private:
  std::shared_future<void> gate_;
};

TEST_F(ServerTest, LongTextsKeepNobodyElseWaiting) {
  StartLoading();
  std::promise<void> gate;
  auto engine = std::make_unique<FakeEngine>(FakeEngineOptions{});
  engine_ = engine.get();
  frontend_->Serve(MakeServedModel(
      "fake", std::make_shared<GatedTokenizer>(gate.get_future().share()), std::move(engine), ""));
  v1::GenerateRequest request = Ask(std::string(100000, 'a'), 3);
  request.set_truncate_prompt_tokens(5);
  constexpr int kClients = 40;
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] { answered += Generate(request).status.ok(); });
  }
  EXPECT_TRUE(Eventually([&] { return frontend_->state().running_calls() == kClients; }));
  EXPECT_TRUE(Generate(Ask("x", 3), milliseconds(5000)).status.ok());
  EXPECT_EQ(Generate(request, milliseconds(200)).status.error_code(),
            StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(answered, 0);
  gate.set_value();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, kClients);
  ExpectIdle();
}

TEST_F(ServerTest, DeadlineWhileRunning) {
  Start();
  engine_->Pause(true);
  const Answer answer = Generate(Ask("x", 1000), milliseconds(150));
  EXPECT_EQ(answer.status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  ExpectIdle();
  EXPECT_EQ(engine_->Stats().finished[static_cast<size_t>(FinishReason::kDeadline)], 1u);
}

TEST_F(ServerTest, DeadlineWhileQueued) {
  FakeEngineOptions options;
  options.engine.limits.max_sequences = 1;
  Start(options);
  engine_->Pause(true);
  grpc::ClientContext context;
  auto first = stub_->Generate(&context, Ask("x", 5));
  ASSERT_TRUE(Eventually([&] { return engine_->held() == 1; }));
  const Answer second = Generate(Ask("x", 5), milliseconds(100));
  EXPECT_EQ(second.status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return engine_->held() == 1; }));
  engine_->Pause(false);
  v1::GenerateResponse message;
  while (first->Read(&message)) {
  }
  EXPECT_TRUE(first->Finish().ok());
}

TEST_F(ServerTest, TenTimesTheQueueIsRefusedAndTheRestIsAnswered) {
  FakeEngineOptions options;
  options.engine.limits.max_sequences = 4;
  options.engine.max_queued = 16;
  Start(options);
  engine_->Pause(true);
  std::atomic<int> answered = 0, refused = 0, other = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back([&] {
      const Answer answer = Generate(Ask("x", 8));
      const bool full = answer.status.error_code() == StatusCode::RESOURCE_EXHAUSTED;
      if (answer.status.ok() && answer.text.at(0) == "abcdefgh") {
        ++answered;
      } else if (full && answer.status.error_message() == "the queue is full (16 requests wait)" &&
                 std::stoi(answer.retry_after_ms) >= 50) {
        ++refused;
      } else {
        ++other;
      }
    });
  }
  EXPECT_TRUE(Eventually([&] { return refused == 180; }));
  engine_->Pause(false);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 20);
  EXPECT_EQ(refused, 180);
  EXPECT_EQ(other, 0);
  ExpectIdle();
}

// Reads one stream without a thread of its own.
class CountingReader : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  CountingReader(v1::Generation::Stub* stub, const v1::GenerateRequest& request,
                 std::atomic<int>* good, std::atomic<int>* done)
      : request_(request), good_(good), done_(done) {
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    letters_ += message_.choice().text().size();
    StartRead(&message_);
  }
  void OnDone(const grpc::Status& status) override {
    if (status.ok() && letters_ == static_cast<size_t>(request_.sampling().max_tokens())) ++*good_;
    ++*done_;
  }

 private:
  grpc::ClientContext context_;
  const v1::GenerateRequest request_;
  v1::GenerateResponse message_;
  size_t letters_ = 0;
  std::atomic<int>* good_;
  std::atomic<int>* done_;
};

TEST_F(ServerTest, AThousandOpenStreamsNeedNoThreads) {
  constexpr int kStreams = 1000;
  FakeEngineOptions options;
  options.engine.limits.max_sequences = kStreams;
  options.step = std::chrono::milliseconds(2);
  Start(options);
  ASSERT_TRUE(Generate(Ask("x", 1)).status.ok());
  engine_->Pause(true);
  std::atomic<int> good = 0, done = 0;
  std::vector<std::unique_ptr<CountingReader>> readers;
  for (int i = 0; i < kStreams; ++i) {
    readers.push_back(std::make_unique<CountingReader>(stub_.get(), Ask("x", 40), &good, &done));
  }
  ASSERT_TRUE(Eventually([&] { return engine_->held() == kStreams; }));
  engine_->Pause(false);
  // gRPC has threads by the core, for client and server in this one process; none by the stream.
  EXPECT_LT(ThreadsOfThisProcess(), 30 + 4 * static_cast<int>(std::thread::hardware_concurrency()));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (done < kStreams && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(done, kStreams);
  EXPECT_EQ(good, kStreams);
  ExpectIdle();
}

TEST_F(ServerTest, LoadingServerAnswersUnavailable) {
  StartLoading();
  EXPECT_EQ(Health(channel_, ""), 2);
  const Answer answer = Generate(Ask("x", 3));
  EXPECT_EQ(answer.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(answer.status.error_message(), "the model is still loading; try again in a moment");
  Serve({});
  EXPECT_EQ(Health(channel_, ""), 1);
  EXPECT_EQ(Health(channel_, "serval.v1.Generation"), 1);
  EXPECT_EQ(Health(channel_, "serval.v1.Models"), 1);
  EXPECT_EQ(Health(channel_, "serval.v1.Admin"), 1);
  EXPECT_EQ(Health(channel_, "no.such.Service"), -static_cast<int>(StatusCode::NOT_FOUND));
  EXPECT_TRUE(Generate(Ask("x", 3)).status.ok());
}

TEST_F(ServerTest, DrainFinishesWhatRunsAndRefusesWhatComes) {
  Start();
  engine_->Pause(true);
  Answer running;
  std::thread client([&] { running = Generate(Ask("x", 50)); });
  ASSERT_TRUE(Eventually([&] { return engine_->held() == 1; }));
  bool finished = false;
  std::thread stopper([&] { finished = frontend_->Stop(std::chrono::seconds(20)); });
  ASSERT_TRUE(Eventually([&] { return frontend_->state().phase() == Phase::kDraining; }));
  EXPECT_TRUE(Eventually([&] { return Health(channel_, "") == 2; }));
  const Answer late = Generate(Ask("x", 3));
  EXPECT_EQ(late.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(late.status.error_message(), "the server is shutting down; ask another one");
  engine_->Pause(false);
  stopper.join();
  client.join();
  EXPECT_TRUE(finished);
  EXPECT_TRUE(running.status.ok()) << running.status.error_message();
  EXPECT_EQ(running.text.at(0).size(), 50u);
}

TEST_F(ServerTest, DrainCutsOffWhatTakesTooLong) {
  Start();
  engine_->Pause(true);
  Answer running;
  std::thread client([&] { running = Generate(Ask("x", 50)); });
  ASSERT_TRUE(Eventually([&] { return engine_->held() == 1; }));
  EXPECT_FALSE(frontend_->Stop(milliseconds(50)));
  client.join();
  EXPECT_EQ(running.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(running.status.error_message(), "the server shut down before the answer was complete");
}

TEST_F(ServerTest, TakenPortIsAnErrorThatNamesIt) {
  StartLoading();
  ServerOptions options;
  options.host = "127.0.0.1";
  options.grpc_port = frontend_->grpc_port();
  options.port = 0;
  const auto second = Frontend::Start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(second.status().message())
                .find("--grpc-port " + std::to_string(options.grpc_port) + ": cannot listen"),
            std::string::npos)
      << second.status();
}

TEST_F(ServerTest, ReflectionListsTheServices) {
  Start();
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  const grpc::Slice list_services(std::string("\x3A\x01*"));
  call->WriteLast(grpc::ByteBuffer(&list_services, 1), grpc::WriteOptions(), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  ASSERT_TRUE(wait());
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(wait());
  EXPECT_TRUE(status.ok()) << status.error_message();
  grpc::Slice all;
  ASSERT_TRUE(response.DumpToSingleSlice(&all).ok());
  const std::string text(reinterpret_cast<const char*>(all.begin()), all.size());
  for (const char* name :
       {"serval.v1.Generation", "serval.v1.Models", "serval.v1.Admin", "grpc.health.v1.Health"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
}

TEST_F(ServerTest, ModelsAndStats) {
  Start();
  ASSERT_TRUE(Generate(Ask("x", 3)).status.ok());
  ExpectIdle();
  auto models = v1::Models::NewStub(channel_);
  v1::ListModelsResponse list;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(models->ListModels(&first, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  EXPECT_EQ(list.models(0).id(), "fake");
  EXPECT_EQ(list.models(0).max_model_len(), 2048);
  EXPECT_EQ(list.models(0).memory_plan_table(), "memory  bytes\npaged   1024");
  ASSERT_EQ(list.models(0).memory_size(), 1);
  EXPECT_EQ(list.models(0).memory(0).bytes_per_token(), 2 * 2 * 8 * 2);
  v1::Model model;
  v1::GetModelRequest other;
  other.set_id("other");
  EXPECT_EQ(models->GetModel(&second, other, &model).error_code(), StatusCode::NOT_FOUND);
  v1::StatsResponse stats;
  ASSERT_TRUE(v1::Admin::NewStub(channel_)->Stats(&third, {}, &stats).ok());
  EXPECT_EQ(stats.generation_tokens(), 3u);
  EXPECT_EQ(stats.finished().at("length"), 1u);
  EXPECT_EQ(stats.rejected().at("unknown_model"), 1u);
  EXPECT_GT(stats.resident_bytes(), 1 << 20);
  EXPECT_EQ(stats.banks(0).kind(), "paged");
}

TEST_F(ServerTest, TokenizeAndDetokenize) {
  Start();
  v1::TokenizeRequest request;
  request.set_text("hé");
  request.set_add_special_tokens(true);
  request.set_return_token_strs(true);
  v1::TokenizeResponse tokens;
  grpc::ClientContext first, second;
  ASSERT_TRUE(stub_->Tokenize(&first, request, &tokens).ok());
  EXPECT_EQ(tokens.count(), 4);
  EXPECT_EQ(tokens.max_model_len(), 2048);
  EXPECT_EQ(tokens.token_strs(0), "<|begin|>");
  v1::DetokenizeRequest back;
  back.mutable_ids()->CopyFrom(tokens.ids());
  back.set_skip_special_tokens(true);
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub_->Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), "hé");
}

}  // namespace
}  // namespace serval
