// One step, flattened: what Plan decides, the executor runs, Commit books. Plain data in fixed
// buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/memory/bank.h"
#include "kernels/sample/sample.h"

namespace serval {

// One sequence's part of a step.
struct StepSequence {
  std::span<Holding> holdings;  // one per bank, in the engine's bank order
  int32_t token_begin = 0;      // first of its tokens in the step's flat arrays
  int32_t token_count = 0;
  int64_t past = 0;  // tokens stored before this step
};

struct StepBatch {
  std::span<const int32_t> tokens;     // [tokens] ids, all sequences one after another
  std::span<const int32_t> positions;  // [tokens] place of each in its sequence
  std::span<const StepSequence> sequences;
};

// A whole step: what the model runs over, and which rows of its output become tokens or logprobs.
struct Step {
  std::vector<int32_t> tokens, positions;
  std::vector<StepSequence> sequences;
  std::vector<int32_t> rows;          // tokens whose logits are wanted, by index; n > 1 repeats one
  std::vector<SampleRow> samples;     // one a row; spans stay valid until Commit
  std::vector<SampleResult> results;  // the executor's answer, one a row; may be longer

  bool empty() const { return sequences.empty(); }
  StepBatch batch() const { return {tokens, positions, sequences}; }
  void Clear() {
    tokens.clear();
    positions.clear();
    sequences.clear();
    rows.clear();
    samples.clear();
  }
};

// Upper bounds of any step: buffers and workspace are taken for them at start.
struct StepLimits {
  int64_t max_tokens = 512;     // --max-num-batched-tokens
  int64_t max_sequences = 64;   // --max-num-seqs
  int64_t max_logit_rows = 64;  // rows of logits computed at once; more are done in turns
  int64_t max_context = 2048;   // --max-model-len
};

}  // namespace serval
