// Every refusal, with its status and exact message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "engine/engine.h"
#include "engine/validate.h"
#include "tests/engine/harness.h"
#include "tests/support/fake_model.h"

namespace serval {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

absl::Status Refused(const std::function<void(Request&)>& spoil) {
  Request request;
  request.prompt = {1, 2, 3};
  spoil(request);
  return ValidateRequest(
      request, FakeModel().info(),
      {.max_tokens = 64, .max_sequences = 8, .max_logit_rows = 8, .max_context = 100});
}

absl::Status RefusedSampling(const std::function<void(SamplingParams&)>& spoil) {
  return Refused([&](Request& request) { spoil(request.sampling); });
}

TEST(Refusals, NothingWrong) {
  EXPECT_EQ(Refused([](Request&) {}), absl::OkStatus());
}

TEST(Refusals, SamplingValues) {
  const std::pair<std::function<void(SamplingParams&)>, const char*> cases[] = {
      {[](auto& s) { s.temperature = kNan; },
       "temperature is nan; it must be a finite number, at least 0"},
      {[](auto& s) { s.temperature = kInf; },
       "temperature is inf; it must be a finite number, at least 0"},
      {[](auto& s) { s.temperature = -1; },
       "temperature is -1; it must be a finite number, at least 0"},
      {[](auto& s) { s.top_k = -1; }, "top_k is -1; it must be at least 0 (0 = off)"},
      {[](auto& s) { s.top_p = 0; }, "top_p is 0; it must be over 0 and at most 1"},
      {[](auto& s) { s.top_p = 1.5f; }, "top_p is 1.5; it must be over 0 and at most 1"},
      {[](auto& s) { s.top_p = kNan; }, "top_p is nan; it must be over 0 and at most 1"},
      {[](auto& s) { s.min_p = -0.5f; }, "min_p is -0.5; it must be in 0 … 1"},
      {[](auto& s) { s.min_p = 2; }, "min_p is 2; it must be in 0 … 1"},
      {[](auto& s) { s.repetition_penalty = 0; },
       "repetition_penalty is 0; it must be a finite number over 0"},
      {[](auto& s) { s.presence_penalty = kInf; },
       "presence_penalty is inf; it must be a finite number"},
      {[](auto& s) { s.frequency_penalty = kNan; },
       "frequency_penalty is nan; it must be a finite number"},
      {[](auto& s) { s.n = 0; }, "n is 0; it must be in 1 … 64"},
      {[](auto& s) { s.n = 65; }, "n is 65; it must be in 1 … 64"},
      {[](auto& s) { s.n = 9; }, "n is 9; it must be at most --max-num-seqs (8)"},
      {[](auto& s) { s.max_tokens = 0; }, "max_tokens is 0; it must be at least 1"},
      {[](auto& s) { s.max_tokens = -5; }, "max_tokens is -5; it must be at least 1"},
      {[](auto& s) { s.min_tokens = 17; }, "min_tokens is 17; it must be in 0 … max_tokens (16)"},
      {[](auto& s) { s.min_tokens = -1; }, "min_tokens is -1; it must be in 0 … max_tokens (16)"},
      {[](auto& s) { s.logprobs = 98; }, "logprobs is 98; it must be in -1 … 97"},
      {[](auto& s) { s.prompt_logprobs = -2; }, "prompt_logprobs is -2; it must be in -1 … 97"},
      {[](auto& s) {
         s.stop_token_ids = {5, 97};
       },
       "stop_token_ids[1] is 97; it must be a token id in 0 … 96"},
      {[](auto& s) {
         s.logit_bias = {{-1, 0.5f}};
       },
       "logit_bias id is -1; it must be a token id in 0 … 96"},
      {[](auto& s) {
         s.logit_bias = {{4, kNan}};
       },
       "logit_bias of token 4 is nan; it must be a finite number"},
      {[](auto& s) {
         s.bad_words = {{1}, {}};
       },
       "bad_words[1] is empty; it must have a token"},
      {[](auto& s) {
         s.bad_words = {{1, 200}};
       },
       "bad_words[0][1] is 200; it must be a token id in 0 … 96"},
  };
  for (const auto& [spoil, message] : cases) {
    EXPECT_EQ(RefusedSampling(spoil), absl::InvalidArgumentError(message));
  }
}

TEST(Refusals, Prompts) {
  EXPECT_EQ(Refused([](Request& r) { r.prompt.clear(); }),
            absl::InvalidArgumentError("prompt is empty; it must have at least one token"));
  EXPECT_EQ(Refused([](Request& r) {
              r.prompt = {1, -3};
            }),
            absl::InvalidArgumentError("prompt[1] is -3; it must be a token id in 0 … 96"));
  EXPECT_EQ(Refused([](Request& r) { r.prompt.assign(85, 1); }),
            absl::OutOfRangeError("the prompt has 85 tokens and max_tokens is 16, but the context "
                                  "is 100 tokens: shorten the prompt or lower max_tokens"));
  EXPECT_EQ(Refused([](Request& r) { r.prompt.assign(84, 1); }), absl::OkStatus());
  const auto scores = [](Request& r, int64_t prompt, int64_t max_tokens) {
    r.prompt.assign(prompt, 1);
    r.sampling.max_tokens = max_tokens;
    r.sampling.prompt_logprobs = 0;
  };
  EXPECT_EQ(Refused([&](Request& r) { scores(r, 100, 1); }), absl::OkStatus());
  EXPECT_EQ(Refused([&](Request& r) { scores(r, 100, 2); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Refused([&](Request& r) { scores(r, 101, 1); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Refused([](Request& r) {
              r.sampling.max_tokens = std::numeric_limits<int64_t>::max();
            }).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Refused([](Request& r) { r.prompt.assign(3'000'000, -1); }).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(Refusals, WhatTheMemoryCanNeverHold) {
  Rig rig({.pages = 2});
  Request request;
  request.prompt.assign(100, 1);
  request.sampling.max_tokens = 29;
  MemoryBank* bank = &rig.bank();
  const std::string page = std::to_string(bank->Need(1).value * 3);
  EXPECT_EQ(ValidateFits(request, std::span(&bank, 1)),
            absl::OutOfRangeError("prompt and max_tokens are 129 tokens and need " + page +
                                  " bytes of paged memory, which has " +
                                  std::to_string(bank->Capacity().value) +
                                  ": lower max_tokens, or raise --kv-cache-bytes"));
  request.sampling.max_tokens = 28;
  EXPECT_EQ(ValidateFits(request, std::span(&bank, 1)), absl::OkStatus());
}

absl::Status NotCreated(const std::function<void(EngineOptions&)>& spoil) {
  EngineOptions options;
  options.limits = {.max_tokens = 64, .max_sequences = 8, .max_logit_rows = 8, .max_context = 512};
  options.kv_bytes = 1 << 20;
  spoil(options);
  return Engine::Create(std::make_unique<FakeModel>(), options).status();
}

TEST(Refusals, EngineOptions) {
  const std::pair<std::function<void(EngineOptions&)>, const char*> cases[] = {
      {[](auto& o) { o.limits.max_context = 2000; },
       "--max-model-len is 2000, but the model's context is 1024 tokens: lower it to at most that"},
      {[](auto& o) { o.limits.max_tokens = 7; },
       "--max-num-batched-tokens is 7; it must be at least --max-num-seqs (8), for every running "
       "request takes a token a step"},
      {[](auto& o) { o.limits.max_sequences = 0; }, "--max-num-seqs is 0; it must be at least 1"},
      {[](auto& o) { o.max_queued = 0; }, "--max-num-queued-reqs is 0; it must be at least 1"},
      {[](auto& o) { o.kv_bytes = -1; },
       "--kv-cache-bytes is -1; it must be at least 0 (0 = automatic)"},
      {[](auto& o) { o.kv_dtype = DType::kQ8_0; },
       "--kv-cache-dtype is q8_0; it must be f32, f16 or bf16"},
      {[](auto& o) { o.memory_plan = "default=slots"; },
       "--memory-plan, position 9: expected a kind of memory (paged), found \"slots\""},
  };
  for (const auto& [spoil, message] : cases) {
    EXPECT_EQ(NotCreated(spoil), absl::InvalidArgumentError(message));
  }
  EXPECT_EQ(NotCreated([](auto& o) { o.kv_bytes = 10000; }),
            absl::ResourceExhaustedError(
                "one sequence of --max-model-len 512 tokens needs 65536 bytes of memory, but "
                "--kv-cache-bytes is 10000: raise it to at least 65536, or lower --max-model-len "
                "to 64"));
  const absl::Status huge = NotCreated([](auto& o) { o.kv_bytes = int64_t{1} << 55; });
  EXPECT_EQ(huge.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(huge.message()),
      testing::MatchesRegex("--kv-cache-bytes is 36028797018963968, but only [0-9]+ bytes of "
                            "memory are available: lower it to less than that"));
}

TEST(Refusals, AreCountedAndQueueNothing) {
  EngineOptions options;
  options.limits.max_context = 512;
  auto engine = Engine::Create(std::make_unique<FakeModel>(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  // Automatic: at most what max_sequences full sequences take, and memory untouched costs nothing.
  EXPECT_GT((*engine)->options().kv_bytes, 0);
  EXPECT_LE((*engine)->options().kv_bytes, 64 * 65536);
  EXPECT_THAT((*engine)->PlanTable(), testing::HasSubstr("sequences in"));
  Request request;
  request.sink = std::make_shared<RecordingSink>();
  EXPECT_EQ((*engine)->Submit(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.prompt.assign(512, 1);
  EXPECT_EQ((*engine)->Submit(request).status().code(), absl::StatusCode::kOutOfRange);
  const EngineStats stats = (*engine)->Stats();
  EXPECT_EQ(stats.rejected.at("invalid"), 1u);
  EXPECT_EQ(stats.rejected.at("context"), 1u);
  EXPECT_EQ(stats.num_requests_waiting, 0);
}

}  // namespace
}  // namespace serval
