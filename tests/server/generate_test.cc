// What a Generate stream says: text, stops, UTF-8, choices, logprobs, usage.
#include <gmock/gmock.h>

#include "server/convert.h"
#include "tests/server/server_fixture.h"

namespace serval {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

FakeEngineOptions Saying(std::string text) {
  FakeEngineOptions options;
  options.script = Say(std::move(text));
  return options;
}

TEST_F(ServerTest, StreamsTextAndEndsWithUsage) {
  Start();
  const Answer answer = Generate(Ask("hi", 30));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text.at(0), "abcdefghijklmnopqrstuvwxyzabcd");
  EXPECT_EQ(answer.last.at(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(answer.messages.front().model(), "fake");
  EXPECT_EQ(answer.messages.front().request_id().substr(0, 4), "gen-");
  EXPECT_TRUE(answer.messages.back().has_usage());
  EXPECT_FALSE(answer.messages.back().has_choice());
  for (size_t i = 0; i + 1 < answer.messages.size(); ++i) {
    EXPECT_FALSE(answer.messages[i].has_usage());
  }
  EXPECT_EQ(answer.usage().prompt_tokens(), 2);
  EXPECT_EQ(answer.usage().completion_tokens(), 30);
  EXPECT_EQ(answer.usage().kv_bytes(), 64);
  ExpectIdle();
}

TEST_F(ServerTest, OmittedMaxTokensIs16) {
  Start();
  v1::GenerateRequest request;
  request.set_text("hi");
  EXPECT_EQ(Generate(request).text.at(0).size(), 16u);
}

TEST_F(ServerTest, EndTokenStopsWithoutBeingSeen) {
  Start(Saying("good"));
  v1::GenerateRequest request = Ask("hi", 50);
  request.set_return_token_ids(true);
  request.mutable_sampling()->set_skip_special_tokens(false);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "good");
  EXPECT_THAT(answer.token_ids.at(0), ElementsAre('g', 'o', 'o', 'd', FakeTokenizer::kEnd));
  EXPECT_THAT(answer.messages.front().prompt_token_ids(), ElementsAre('h', 'i'));
  EXPECT_EQ(answer.last.at(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.last.at(0).stop_reason_case(), v1::Choice::STOP_REASON_NOT_SET);
  EXPECT_EQ(answer.usage().completion_tokens(), 5);
}

TEST_F(ServerTest, StopStringAcrossTokensIsCutOffAndNamed) {
  Start(Saying("one two three four five six seven"));
  v1::GenerateRequest request = Ask("count", 33);
  request.mutable_sampling()->add_stop("nothing");
  request.mutable_sampling()->add_stop("e fo");
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "one two thre");
  EXPECT_EQ(answer.last.at(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.last.at(0).stop_string(), "e fo");
  EXPECT_EQ(answer.usage().completion_tokens(), 16);  // "one two three fo"
  ExpectIdle();
}

TEST_F(ServerTest, StopStringMayBeKept) {
  Start(Saying("one two three"));
  v1::GenerateRequest request = Ask("count", 33);
  request.mutable_sampling()->add_stop("two");
  request.mutable_sampling()->set_include_stop_str_in_output(true);
  EXPECT_EQ(Generate(request).text.at(0), "one two");
}

TEST_F(ServerTest, NoStopStringBeforeMinTokens) {
  Start(Saying("one two one two"));
  v1::GenerateRequest request = Ask("count", 15);
  request.mutable_sampling()->add_stop("two");
  request.mutable_sampling()->set_min_tokens(8);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "one two one ");
  EXPECT_EQ(answer.last.at(0).stop_string(), "two");
}

TEST_F(ServerTest, TextThatMayBecomeAStopStringIsShownWhenItDoesNot) {
  Start(Saying("STO then ST"));
  v1::GenerateRequest request = Ask("x", 33);
  request.mutable_sampling()->add_stop("STOP");
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "STO then ST");
  EXPECT_FALSE(answer.last.at(0).has_stop_string());
}

TEST_F(ServerTest, StopTokenIsNamedAndNotShown) {
  Start();
  v1::GenerateRequest request = Ask("x", 33);
  request.mutable_sampling()->add_stop_token_ids('d');
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "abc");
  EXPECT_EQ(answer.last.at(0).stop_token_id(), 'd');
  EXPECT_EQ(answer.usage().completion_tokens(), 4);
}

TEST_F(ServerTest, CharactersArriveWhole) {
  const std::string text = "äß€🦁 Ж 日本";
  Start(Saying(text));
  const Answer answer = Generate(Ask("x", 60));
  EXPECT_EQ(answer.text.at(0), text);
  for (const auto& message : answer.messages) {
    EXPECT_TRUE(CheckText("delta", message.choice().text()).ok());
  }
}

TEST_F(ServerTest, UnfinishedCharacterBecomesAReplacement) {
  Start(Saying("a\xF0\x9F\xA6"));
  EXPECT_EQ(Generate(Ask("x", 4)).text.at(0), "a\xEF\xBF\xBD");
}

TEST_F(ServerTest, ChoicesAreIndependent) {
  FakeEngineOptions options;
  options.script = [](const Request&, int choice, int64_t index) -> int32_t {
    return index == 3 + choice ? static_cast<int32_t>(FakeTokenizer::kEnd) : 'a' + choice;
  };
  Start(options);
  v1::GenerateRequest request = Ask("x", 20);
  request.mutable_sampling()->set_n(3);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "aaa");
  EXPECT_EQ(answer.text.at(1), "bbbb");
  EXPECT_EQ(answer.text.at(2), "ccccc");
  EXPECT_EQ(answer.last.size(), 3u);
  EXPECT_EQ(answer.usage().completion_tokens(), 4 + 5 + 6);
}

TEST_F(ServerTest, OneChoiceStopsByStringAndTheOthersGoOn) {
  FakeEngineOptions options;
  options.script = [](const Request&, int choice, int64_t index) -> int32_t {
    return choice == 0 && index == 2 ? '!' : 'x';
  };
  Start(options);
  v1::GenerateRequest request = Ask("x", 50);
  request.mutable_sampling()->set_n(2);
  request.mutable_sampling()->add_stop("!");
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "xx");
  EXPECT_EQ(answer.text.at(1), std::string(50, 'x'));
  EXPECT_EQ(answer.usage().completion_tokens(), 3 + 50);
}

TEST_F(ServerTest, LogprobsComeWithTheirTokenThoughTextIsHeldBack) {
  Start(Saying("€"));  // three tokens, one character
  v1::GenerateRequest request = Ask("x", 3);
  request.mutable_sampling()->set_logprobs(2);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.text.at(0), "€");
  const auto& logprobs = answer.logprobs.at(0);
  ASSERT_EQ(logprobs.size(), 3u);
  EXPECT_EQ(logprobs[0].chosen().token(), "\xE2");
  EXPECT_EQ(logprobs[0].chosen().token_id(), 0xE2);
  EXPECT_FLOAT_EQ(logprobs[0].chosen().logprob(), -0.5f);
  ASSERT_EQ(logprobs[0].top_size(), 2);
  EXPECT_EQ(logprobs[0].top(1).token(), "b");
  EXPECT_EQ(logprobs[0].top(1).rank(), 2);
}

TEST_F(ServerTest, PromptLogprobsComeInSlicesBeforeTheText) {
  Start();
  v1::GenerateRequest request = Ask("0123456789", 2);
  request.mutable_sampling()->set_prompt_logprobs(1);
  const Answer answer = Generate(request);
  std::string prompt;
  int next = 1;
  bool text_seen = false;
  for (const auto& message : answer.messages) {
    text_seen = text_seen || message.has_choice();
    if (message.prompt_logprobs_size() == 0) continue;
    EXPECT_FALSE(text_seen);
    EXPECT_EQ(message.prompt_logprobs_begin(), next);
    next += message.prompt_logprobs_size();
    for (const auto& row : message.prompt_logprobs()) {
      prompt += row.chosen().token();
      EXPECT_EQ(row.top_size(), 1);
    }
  }
  EXPECT_EQ(prompt, "123456789");
}

TEST_F(ServerTest, EchoComesFirst) {
  Start();
  v1::GenerateRequest request = Ask("Grüße, ", 3);
  request.set_echo(true);
  EXPECT_EQ(Generate(request).text.at(0), "Grüße, abc");
  request.set_truncate_prompt_tokens(2);
  EXPECT_EQ(Generate(request).text.at(0), ", abc");
  EXPECT_EQ(Generate(request).usage().prompt_tokens(), 2);
}

TEST_F(ServerTest, TokenPromptIsUsedAsItIs) {
  Start();
  v1::GenerateRequest request;
  request.mutable_tokens()->add_ids(FakeTokenizer::kHello);
  ASSERT_TRUE(Generate(request).status.ok());
  EXPECT_THAT(engine_->last_request().prompt, ElementsAre(FakeTokenizer::kHello));
}

TEST_F(ServerTest, EveryFieldReachesTheEngine) {
  Start();
  v1::GenerateRequest request = Ask("x", 9);
  request.clear_add_special_tokens();  // the default: true
  request.set_request_id("mine");
  request.set_priority(-3);
  request.set_cache_salt("pepper");
  v1::SamplingParams& in = *request.mutable_sampling();
  in.set_temperature(0.5);
  in.set_top_k(-1);
  in.set_top_p(0.9);
  in.set_min_p(0.1);
  in.set_repetition_penalty(1.1);
  in.set_presence_penalty(-1);
  in.set_frequency_penalty(2);
  (*in.mutable_logit_bias())['q'] = -100;
  in.add_bad_words("no");
  in.set_seed(42);
  in.set_min_tokens(2);
  in.add_stop_token_ids('z');
  in.set_ignore_eos(true);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.messages.front().request_id(), "mine");
  const Request got = engine_->last_request();
  EXPECT_THAT(got.prompt, ElementsAre(FakeTokenizer::kBegin, 'x'));
  EXPECT_EQ(got.id, "mine");
  EXPECT_EQ(got.priority, -3);
  EXPECT_NE(got.cache_salt, 0u);
  const SamplingParams& out = got.sampling;
  EXPECT_FLOAT_EQ(out.temperature, 0.5);
  EXPECT_EQ(out.top_k, 0);
  EXPECT_FLOAT_EQ(out.top_p, 0.9);
  EXPECT_FLOAT_EQ(out.min_p, 0.1);
  EXPECT_FLOAT_EQ(out.repetition_penalty, 1.1);
  EXPECT_FLOAT_EQ(out.presence_penalty, -1);
  EXPECT_FLOAT_EQ(out.frequency_penalty, 2);
  EXPECT_THAT(out.logit_bias, ElementsAre(std::pair<int32_t, float>('q', -100)));
  EXPECT_THAT(out.bad_words, ElementsAre(ElementsAre('n', 'o'), ElementsAre(' ', 'n', 'o')));
  EXPECT_EQ(out.seed, 42u);
  EXPECT_EQ(out.max_tokens, 9);
  EXPECT_EQ(out.min_tokens, 2);
  EXPECT_TRUE(out.ignore_eos);
  EXPECT_EQ(out.logprobs, -1);
}

TEST_F(ServerTest, UnsetSeedsDifferAndSetSeedIsKept) {
  Start();
  Generate(Ask("x", 1));
  const uint64_t first = engine_->last_request().sampling.seed;
  Generate(Ask("x", 1));
  EXPECT_NE(engine_->last_request().sampling.seed, first);
}

TEST_F(ServerTest, SlowReaderLosesNothing) {
  FakeEngineOptions options;
  options.step = std::chrono::microseconds(1);
  options.engine.limits.max_context = 100000;
  Start(options);
  v1::GenerateRequest request = Ask("x", 5000);
  request.mutable_sampling()->set_logprobs(20);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, request);
  // The engine finishes while nothing is read: flow control stops the messages, not the engine.
  ASSERT_TRUE(Eventually(
      [&] { return engine_->held() == 0 && engine_->Stats().generation_tokens == 5000; }));
  v1::GenerateResponse message;
  size_t letters = 0, largest = 0;
  while (reader->Read(&message)) {
    letters += message.choice().text().size();
    largest = std::max(largest, message.ByteSizeLong());
    EXPECT_EQ(message.choice().logprobs_size(), std::ssize(message.choice().text()));
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(letters, 5000u);
  EXPECT_LT(largest, 1u << 20);
}

}  // namespace
}  // namespace serval
