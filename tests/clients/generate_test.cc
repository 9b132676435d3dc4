// `serval generate` against a scripted server: what is sent, what is printed.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/clients/run_cli.h"
#include "tests/clients/scripted_server.h"

namespace serval {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class Generate : public testing::Test {
 protected:
  CliResult Run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin(), {"generate", "--target", server_.Target()});
    return RunInProcess(args, input);
  }
  v1::GenerateRequest Sent() {
    const auto requests = server_.Requests();
    EXPECT_EQ(requests.size(), 1u);
    return requests.empty() ? v1::GenerateRequest() : requests[0];
  }

  ScriptedServer server_;
};

v1::GenerateResponse Delta(const std::string& text, int index = 0, bool last = false) {
  v1::GenerateResponse message;
  message.mutable_choice()->set_index(index);
  message.mutable_choice()->set_text(text);
  if (last) message.mutable_choice()->set_finish_reason(v1::FINISH_REASON_STOP);
  return message;
}

v1::TokenLogprob Token(int id, const std::string& bytes, float logprob, int rank) {
  v1::TokenLogprob token;
  token.set_token_id(id);
  token.set_token(bytes);
  token.set_logprob(logprob);
  token.set_rank(rank);
  return token;
}

TEST_F(Generate, PrintsTheTextAndOneNewline) {
  server_.script = [](auto*, const auto&, auto* writer) {
    writer->Write(Delta("Hello"));
    writer->Write(Delta(" wörld", 0, true));
    return grpc::Status::OK;
  };
  const CliResult result = Run({"--prompt", "Say hello"});
  EXPECT_EQ(result.code, kOk);
  EXPECT_EQ(result.out, "Hello wörld\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(Sent().text(), "Say hello");
  EXPECT_FALSE(Sent().has_add_special_tokens());
  EXPECT_FALSE(Sent().sampling().has_max_tokens());
}

TEST_F(Generate, TakesStandardInputByteForByte) {
  const std::string bytes("a\0b\r\n\xFF\xC3\n\n", 9);
  EXPECT_EQ(Run({}, bytes).code, kOk);
  EXPECT_EQ(Sent().text(), bytes);
}

TEST_F(Generate, TakesAFileByteForByte) {
  const std::string path = testing::TempDir() + "serval-prompt-" + std::to_string(getpid());
  const std::string bytes("x\0\xFE\n", 4);
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(Run({"--prompt-file", path}).code, kOk);
  EXPECT_EQ(Sent().text(), bytes);
  unlink(path.c_str());
  const CliResult gone = Run({"--prompt-file", path});
  EXPECT_EQ(gone.code, kFailed);
  EXPECT_THAT(gone.err, HasSubstr("cannot read --prompt-file '" + path + "' (No such file"));
  EXPECT_EQ(Run({"--prompt-file", "/"}).code, kFailed);
}

TEST_F(Generate, SendsATenMegabytePrompt) {
  const std::string prompt(10 << 20, 'x');
  EXPECT_EQ(Run({}, prompt).code, kOk);
  EXPECT_EQ(Sent().text().size(), prompt.size());
}

TEST_F(Generate, EveryFlagReachesTheRequest) {
  std::vector<std::string> args = SplitList(
      "--prompt-tokens 1,2,3 --max-tokens 7 --min-tokens 2 --temperature 0.5 --top-k -1 --top-p "
      "0.9 "
      "--min-p 0.1 --repetition-penalty 1.1 --presence-penalty -2 --frequency-penalty 2 --seed 42 "
      "--n 2 --stop END --stop-token-ids 5,6 --bad-words no --ignore-eos --logit-bias 3=-1.5,4=100 "
      "--logprobs 2 --prompt-logprobs 0 --echo --skip-special-tokens=false "
      "--include-stop-str-in-output --priority -3 --cache-salt salt --request-id id "
      "--truncate-prompt-tokens 9 --model m",
      ' ');
  args.insert(args.end(), {"--stop", "\n"});
  const CliResult result = Run(args);
  ASSERT_EQ(result.code, kOk) << result.err;
  v1::GenerateRequest want;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    model: "m" tokens { ids: [1, 2, 3] } echo: true
    request_id: "id" priority: -3 cache_salt: "salt" truncate_prompt_tokens: 9
    sampling {
      temperature: 0.5 top_k: -1 top_p: 0.9 min_p: 0.1 repetition_penalty: 1.1
      presence_penalty: -2 frequency_penalty: 2 bad_words: "no" seed: 42
      logit_bias { key: 3 value: -1.5 } logit_bias { key: 4 value: 100 }
      max_tokens: 7 min_tokens: 2 stop: ["END", "\n"] stop_token_ids: [5, 6]
      include_stop_str_in_output: true ignore_eos: true n: 2
      logprobs: 2 prompt_logprobs: 0 skip_special_tokens: false
    })",
                                                            &want));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(Sent(), want))
      << Sent().DebugString();
}

TEST_F(Generate, ChatIsChatMl) {
  EXPECT_EQ(Run({"--chat", "--prompt", "Hi"}).code, kOk);
  EXPECT_EQ(Sent().text(),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(Sent().has_add_special_tokens());
  EXPECT_FALSE(Sent().add_special_tokens());
  EXPECT_EQ(Sent().sampling().max_tokens(), 512);
}

TEST_F(Generate, ChatWithASystemPrompt) {
  EXPECT_EQ(Run({"--chat", "--system", "Be brief.", "--max-tokens", "3"}, "Hi\n").code, kOk);
  EXPECT_THAT(Sent().text(), StartsWith("<|im_start|>system\nBe brief.<|im_end|>\n"));
  EXPECT_THAT(Sent().text(), HasSubstr("user\nHi\n<|im_end|>"));
  EXPECT_EQ(Sent().sampling().max_tokens(), 3);
}

TEST_F(Generate, ChoicesDoNotMix) {
  server_.script = [](auto*, const auto&, auto* writer) {
    for (const auto& message :
         {Delta("a", 0), Delta("x", 1), Delta("y", 1, true), Delta("b", 0, true)}) {
      writer->Write(message);
    }
    return grpc::Status::OK;
  };
  const CliResult result = Run({"--prompt", "p", "--n", "2"});
  EXPECT_EQ(result.out, "=== choice 0 ===\nab\n=== choice 1 ===\nxy\n");
}

TEST_F(Generate, StatsAreOneLineOfStandardError) {
  server_.script = [](auto*, const auto&, auto* writer) {
    auto message = Delta("hi", 0, true);
    message.mutable_usage()->set_prompt_tokens(12);
    message.mutable_usage()->set_completion_tokens(1);
    message.mutable_usage()->set_cached_tokens(8);
    writer->Write(message);
    return grpc::Status::OK;
  };
  const CliResult result = Run({"--prompt", "p", "-v"});
  EXPECT_EQ(result.out, "hi\n");
  EXPECT_THAT(result.err, testing::MatchesRegex("serval: 1 tokens, TTFT [0-9]+ ms, .* tokens/s; "
                                                "8 of 12 prompt tokens cached\n"));
}

grpc::Status AnswerWithEverything(ScriptedServer::Writer* writer) {
  v1::GenerateResponse first;
  first.set_request_id("r1");
  first.set_model("smol");
  for (int id : {1, 2, 3}) first.add_prompt_token_ids(id);
  first.set_prompt_logprobs_begin(1);
  *first.add_prompt_logprobs()->mutable_chosen() = Token(2, "b", -0.1f, 1);
  writer->Write(first);
  v1::GenerateResponse second;
  second.set_prompt_logprobs_begin(2);
  *second.add_prompt_logprobs()->mutable_chosen() = Token(3, "c", -7.25f, 30);
  writer->Write(second);
  auto delta = Delta("A", 0);
  delta.mutable_choice()->add_token_ids(65);
  auto* logprobs = delta.mutable_choice()->add_logprobs();
  *logprobs->mutable_chosen() = Token(65, "A", -0.5f, 1);
  *logprobs->add_top() = Token(65, "A", -0.5f, 1);
  *logprobs->add_top() = Token(9, "\xE2\x82", -1.5f, 2);
  writer->Write(delta);
  auto last = Delta("", 0);
  last.mutable_choice()->set_finish_reason(v1::FINISH_REASON_STOP);
  last.mutable_choice()->set_stop_string("END");
  last.mutable_usage()->set_prompt_tokens(3);
  last.mutable_usage()->set_completion_tokens(1);
  last.mutable_usage()->set_kv_bytes(4096);
  writer->Write(last);
  return grpc::Status::OK;
}

TEST_F(Generate, JsonHasEverything) {
  server_.script = [](auto*, const auto&, auto* writer) { return AnswerWithEverything(writer); };
  const CliResult result =
      Run({"--prompt", "abc", "--json", "--logprobs", "2", "--prompt-logprobs", "1"});
  ASSERT_EQ(result.code, kOk) << result.err;
  EXPECT_TRUE(Sent().return_token_ids());
  EXPECT_EQ(json::parse(result.out), json::parse(R"({
    "text": "A", "token_ids": [65], "finish_reason": "stop", "stop_reason": "END",
    "logprobs": [{"token_id": 65, "token": "A", "logprob": -0.5, "rank": 1, "top": [
      {"token_id": 65, "token": "A", "logprob": -0.5, "rank": 1},
      {"token_id": 9, "token": "\ufffd", "bytes": [226, 130], "logprob": -1.5, "rank": 2}]}],
    "prompt_logprobs": [null,
      {"token_id": 2, "token": "b", "logprob": -0.1, "rank": 1, "top": []},
      {"token_id": 3, "token": "c", "logprob": -7.25, "rank": 30, "top": []}],
    "prompt_token_ids": [1, 2, 3],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "cached_tokens": 0,
              "kv_bytes": 4096},
    "request_id": "r1", "model": "smol"})"));
}

TEST_F(Generate, JsonOfWhatWasNotAskedForIsNull) {
  const json answer = json::parse(Run({"--prompt", "p", "--json"}).out);
  EXPECT_TRUE(answer["logprobs"].is_null());
  EXPECT_TRUE(answer["prompt_logprobs"].is_null());
  EXPECT_TRUE(answer["finish_reason"].is_null());
  EXPECT_FALSE(answer.contains("choices"));
}

TEST_F(Generate, JsonOfSeveralChoices) {
  server_.script = [](auto*, const auto&, auto* writer) {
    writer->Write(Delta("b", 1, true));
    writer->Write(Delta("a", 0, true));
    return grpc::Status::OK;
  };
  const json answer = json::parse(Run({"--prompt", "p", "--json", "--n", "2"}).out);
  EXPECT_EQ(answer["text"], "a");
  ASSERT_EQ(answer["choices"].size(), 2u);
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["choices"][1]["text"], "b");
}

TEST_F(Generate, WrongUsageSendsNothing) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--prompt", "a", "--prompt-tokens", "1"}, "give one of --prompt"},
      {{"--chat", "--prompt-tokens", "1"}, "--chat wants text"},
      {{"--system", "x", "--prompt", "a"}, "--system has a meaning only with --chat"},
      {{"--temperature", "nan"}, "--temperature wants a number of at least 0, not 'nan'"},
      {{"--max-tokens", "0"}, "--max-tokens wants a whole number of at least 1, not '0'"},
      {{"--logit-bias", "5"}, "--logit-bias wants ID=BIAS pairs"},
      {{"--stop-token-ids", "1,x"}, "--stop-token-ids wants a whole number"},
      {{"--target", "nowhere"}, "--target wants HOST:PORT"},
      {{"--max_tokens", "1"}, "did you mean --max-tokens?"},
  };
  for (const auto& [args, message] : cases) {
    const CliResult result = Run(args);
    EXPECT_EQ(result.code, kUsage);
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(server_.Requests().size(), 0u);
}

TEST_F(Generate, HelpNeedsNoServer) {
  const CliResult result = RunInProcess({"generate", "--target", "localhost:1", "--help"});
  EXPECT_EQ(result.code, kOk);
  EXPECT_THAT(result.out, HasSubstr("--repetition-penalty X"));
}

}  // namespace
}  // namespace serval
