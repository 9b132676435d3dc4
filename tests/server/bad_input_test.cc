// Bad input: the exact status and message of everything the server decides itself.
#include <limits>

#include "tests/server/server_fixture.h"

namespace serval {
namespace {

using grpc::StatusCode;

class BadInputTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }
  void ExpectRefused(const v1::GenerateRequest& request, StatusCode code,
                     const std::string& message) {
    // At once: flow control by gRPC's guess kept one large prompt in thirty waiting for ten
    // seconds.
    const Answer answer = Generate(request, std::chrono::seconds(8));
    EXPECT_EQ(answer.status.error_code(), code);
    EXPECT_EQ(answer.status.error_message(), message);
    EXPECT_TRUE(answer.messages.empty());
    ExpectIdle();
  }
  void ExpectInvalid(const std::function<void(v1::SamplingParams&)>& spoil,
                     const std::string& message) {
    v1::GenerateRequest request = Ask("hi", 4);
    spoil(*request.mutable_sampling());
    ExpectRefused(request, StatusCode::INVALID_ARGUMENT, message);
  }
};

TEST_F(BadInputTest, EmptyPrompt) {
  const std::string message = "prompt is empty; allowed: at least one token";
  ExpectRefused(v1::GenerateRequest(), StatusCode::INVALID_ARGUMENT, message);
  v1::GenerateRequest text = Ask("", 4);
  text.set_add_special_tokens(true);
  ExpectRefused(text, StatusCode::INVALID_ARGUMENT, message);
  v1::GenerateRequest tokens;
  tokens.mutable_tokens();
  ExpectRefused(tokens, StatusCode::INVALID_ARGUMENT, message);
}

TEST_F(BadInputTest, PromptThatIsNotUtf8) {
  ExpectRefused(Ask("gr\xFC\xDF", 4), StatusCode::INVALID_ARGUMENT,
                "prompt is not valid UTF-8 at byte 2; allowed: UTF-8 text");
  ExpectRefused(Ask("abc\xE2\x82", 4), StatusCode::INVALID_ARGUMENT,
                "prompt is not valid UTF-8 at byte 3; allowed: UTF-8 text");
  ExpectRefused(Ask(std::string("\xED\xA0\x80"), 4), StatusCode::INVALID_ARGUMENT,
                "prompt is not valid UTF-8 at byte 0; allowed: UTF-8 text");
}

TEST_F(BadInputTest, PromptTooLarge) {
  v1::GenerateRequest cut = Ask(std::string(10 << 20, 'a'), 4);
  cut.set_truncate_prompt_tokens(10);
  ExpectRefused(cut, StatusCode::INVALID_ARGUMENT,
                "prompt is 10485760 bytes long; allowed: at most 4194304 bytes");
  ExpectRefused(Ask(std::string(10 << 20, 'a'), 4), StatusCode::OUT_OF_RANGE,
                "the prompt's 10485760 bytes are more tokens than the context of 2048; shorten it "
                "or set truncate_prompt_tokens");
  ExpectRefused(Ask(std::string(100000, 'a'), 4), StatusCode::OUT_OF_RANGE,
                "the prompt's 100000 bytes are more tokens than the context of 2048; shorten it or "
                "set truncate_prompt_tokens");
}

TEST_F(BadInputTest, PromptAndOutputOverTheContext) {
  ExpectRefused(Ask(std::string(2040, 'a'), 9), StatusCode::OUT_OF_RANGE,
                "2040 prompt tokens and max_tokens 9 are over the context of 2048");
}

TEST_F(BadInputTest, TruncatedPromptMayBeLong) {
  v1::GenerateRequest request = Ask(std::string(100000, 'a'), 4);
  request.set_truncate_prompt_tokens(10);
  EXPECT_EQ(Generate(request).usage().prompt_tokens(), 10);
  request.set_truncate_prompt_tokens(0);
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT,
                "truncate_prompt_tokens is 0; allowed: 1 or more");
}

TEST_F(BadInputTest, UnknownToken) {
  v1::GenerateRequest request;
  request.mutable_tokens()->add_ids(5);
  request.mutable_tokens()->add_ids(259);
  ExpectRefused(
      request, StatusCode::INVALID_ARGUMENT,
      "prompt tokens: token id 259 at index 1 is not in the vocabulary; allowed: 0 to 258");
}

TEST_F(BadInputTest, UnknownModel) {
  v1::GenerateRequest request = Ask("hi", 4);
  request.set_model("gpt-5");
  ExpectRefused(request, StatusCode::NOT_FOUND,
                "model 'gpt-5' is not served here; this server serves 'fake'");
  request.set_model(std::string(1 << 20, 'm'));
  ExpectRefused(
      request, StatusCode::NOT_FOUND,
      "model '" + std::string(256, 'm') + "' is not served here; this server serves 'fake'");
}

TEST_F(BadInputTest, RequestId) {
  v1::GenerateRequest request = Ask("hi", 4);
  request.set_request_id("two\nlines");
  ExpectRefused(request, StatusCode::INVALID_ARGUMENT,
                "request_id of 9 bytes; allowed: at most 128 printable ASCII characters without "
                "spaces");
}

TEST_F(BadInputTest, SamplingNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  using S = v1::SamplingParams;
  ExpectInvalid([&](S& s) { s.set_temperature(nan); },
                "temperature is nan; allowed: a finite number, 0 or more");
  ExpectInvalid([&](S& s) { s.set_temperature(infinity); },
                "temperature is inf; allowed: a finite number, 0 or more");
  ExpectInvalid([](S& s) { s.set_temperature(-0.5); },
                "temperature is -0.5; allowed: a finite number, 0 or more");
  ExpectInvalid([](S& s) { s.set_top_p(0); }, "top_p is 0; allowed: more than 0, at most 1");
  ExpectInvalid([](S& s) { s.set_top_p(1.5); }, "top_p is 1.5; allowed: more than 0, at most 1");
  ExpectInvalid([&](S& s) { s.set_top_p(nan); }, "top_p is nan; allowed: more than 0, at most 1");
  ExpectInvalid([](S& s) { s.set_min_p(2); }, "min_p is 2; allowed: 0 to 1");
  ExpectInvalid([](S& s) { s.set_repetition_penalty(0); },
                "repetition_penalty is 0; allowed: a finite number, more than 0");
  ExpectInvalid([](S& s) { s.set_presence_penalty(3); }, "presence_penalty is 3; allowed: -2 to 2");
  ExpectInvalid([](S& s) { s.set_frequency_penalty(-3); },
                "frequency_penalty is -3; allowed: -2 to 2");
}

TEST_F(BadInputTest, SamplingCounts) {
  using S = v1::SamplingParams;
  ExpectInvalid([](S& s) { s.set_top_k(-2); }, "top_k is -2; allowed: 1 or more; 0 or -1 = off");
  ExpectInvalid([](S& s) { s.set_max_tokens(0); }, "max_tokens is 0; allowed: 1 or more");
  ExpectInvalid([](S& s) { s.set_max_tokens(-1); }, "max_tokens is -1; allowed: 1 or more");
  ExpectInvalid([](S& s) { s.set_min_tokens(5); }, "min_tokens is 5; allowed: 0 to max_tokens");
  ExpectInvalid([](S& s) { s.set_n(0); }, "n is 0; allowed: 1 to 64");
  ExpectInvalid([](S& s) { s.set_n(65); }, "n is 65; allowed: 1 to 64");
  ExpectInvalid([](S& s) { s.set_logprobs(21); }, "logprobs is 21; allowed: 0 to 20");
  ExpectInvalid([](S& s) { s.set_prompt_logprobs(-1); }, "prompt_logprobs is -1; allowed: 0 to 20");
}

TEST_F(BadInputTest, SamplingTokensAndWords) {
  using S = v1::SamplingParams;
  ExpectInvalid([](S& s) { (*s.mutable_logit_bias())[-1] = 1; },
                "logit_bias: token id -1 at index 0 is not in the vocabulary; allowed: 0 to 258");
  ExpectInvalid([](S& s) { (*s.mutable_logit_bias())[7] = 101; },
                "logit_bias of token 7 is 101; allowed: -100 to 100");
  ExpectInvalid(
      [](S& s) { s.add_stop_token_ids(1000); },
      "stop_token_ids: token id 1000 at index 0 is not in the vocabulary; allowed: 0 to 258");
  ExpectInvalid([](S& s) { s.add_stop(""); }, "stop[0] is empty; allowed: some text");
  ExpectInvalid([](S& s) { s.add_stop(std::string(1025, 'x')); },
                "length of stop[0] is 1025 bytes; allowed: at most 1024 bytes");
  ExpectInvalid(
      [](S& s) {
        for (int i = 0; i < 65; ++i) s.add_stop("x");
      },
      "number of stop strings is 65; allowed: at most 64");
  ExpectInvalid([](S& s) { s.add_bad_words(""); }, "bad_words[0] is empty; allowed: some text");
}

TEST_F(BadInputTest, TokenizeAndDetokenize) {
  v1::TokenizeRequest tokenize;
  tokenize.set_text("a\xFF");
  v1::TokenizeResponse tokens;
  grpc::ClientContext first, second;
  grpc::Status status = stub_->Tokenize(&first, tokenize, &tokens);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "text is not valid UTF-8 at byte 1; allowed: UTF-8 text");
  v1::DetokenizeRequest detokenize;
  detokenize.add_ids(-4);
  v1::DetokenizeResponse text;
  status = stub_->Detokenize(&second, detokenize, &text);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "ids: token id -4 at index 0 is not in the vocabulary; allowed: 0 to 258");
}

TEST_F(BadInputTest, RefusalsAreCounted) {
  ExpectInvalid([](v1::SamplingParams& s) { s.set_n(0); }, "n is 0; allowed: 1 to 64");
  const auto rejected = frontend_->state().admission().rejected();
  EXPECT_EQ(rejected.at("invalid"), 1u);
}

}  // namespace
}  // namespace serval
