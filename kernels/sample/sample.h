// From logits to a token, one row a sequence; and log-probabilities of given tokens. All parameters
// of the OpenAI and vLLM vocabularies. Random numbers are Philox4x32-10 by (seed, position): a
// row's result depends on its own logits and parameters alone, never on its batch-mates. Order per
// row: logit bias, bad words and banned tokens to -inf; repetition, presence, frequency penalties;
// log-probabilities (of these logits, temperature 1) are recorded; temperature; top-k; top-p;
// min-p; draw. temperature 0 = argmax, lowest id on ties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core.h"

namespace serval {

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 = the most likely
};

struct SampleRow {
  float temperature = 1.0f;  // 0 = greedy
  int top_k = 0;             // 0 = off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // over prompt and output (CTRL paper, as in Hugging Face)
  float presence_penalty = 0.0f;    // over output
  float frequency_penalty = 0.0f;   // over output
  std::span<const int32_t> prompt;  // token ids
  std::span<const int32_t> output;
  std::span<const std::pair<int32_t, float>> logit_bias;
  // Ids that must not come now (bad words completed, stop ids before min_tokens).
  std::span<const int32_t> banned;
  uint64_t seed = 0;
  int64_t position = 0;   // index of the token being drawn, in the whole sequence
  int top_logprobs = -1;  // -1: none; 0: of the drawn token; n: and of the n most likely
  int32_t given = -1;     // >= 0: do not draw, report this token (prompt logprobs)
};

struct SampleResult {
  TokenLogprob chosen;            // logprob and rank only where top_logprobs >= 0
  std::vector<TokenLogprob> top;  // most likely first; ties by lower id
  bool finite = true;  // false: NaN, +inf or no finite logit in the row; chosen is meaningless
};

struct Sample {
  TensorView logits;  // f32 [rows, vocab]; used as scratch
  std::span<const SampleRow> rows;
  std::span<SampleResult> results;  // output, one a row
};

void Validate(const Sample& op);
void RunOnCpu(const Ctx& ctx, const Sample& op);
// Worst case, whatever the rows' parameters.
int64_t SampleWorkspaceBytes(int64_t vocab, int threads);

}  // namespace serval
