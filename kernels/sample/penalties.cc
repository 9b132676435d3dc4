#include "kernels/sample/penalties.h"

#include <algorithm>
#include <limits>

namespace serval {
namespace {

int32_t CheckedId(int32_t id, int64_t vocab) {
  SERVAL_CHECK_GE(id, 0);
  SERVAL_CHECK_LT(id, vocab);
  return id;
}

// Each token once, however often it came: counts says how often, and that it is still to do.
void Penalise(const SampleRow& row, int64_t vocab, float* logits, uint32_t* counts) {
  // A penalty near 0 may ask for more than a float holds.
  const auto repeat = [&](int32_t id) {
    float& x = logits[id];
    x = x > 0 ? std::min(x / row.repetition_penalty, std::numeric_limits<float>::max())
              : x * row.repetition_penalty;
  };
  for (int32_t id : row.output) ++counts[CheckedId(id, vocab)];
  for (int32_t id : row.prompt) {
    if (counts[CheckedId(id, vocab)] != 0) continue;
    repeat(id);
    counts[id] = 1;
  }
  // A token of the prompt alone is done; what remains is in the output, whose counts no mark of the
  // prompt has touched.
  for (int32_t id : row.output) {
    if (counts[id] == 0) continue;
    repeat(id);
    logits[id] -= row.frequency_penalty * static_cast<float>(counts[id]) + row.presence_penalty;
    counts[id] = 0;
  }
  for (int32_t id : row.prompt) counts[id] = 0;
}

}  // namespace

bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
         row.frequency_penalty != 0.0f;
}

void EditLogits(const SampleRow& row, int64_t vocab, float* logits, uint32_t* counts) {
  for (const auto& [id, bias] : row.logit_bias) logits[CheckedId(id, vocab)] += bias;
  for (int32_t id : row.banned) {
    logits[CheckedId(id, vocab)] = -std::numeric_limits<float>::infinity();
  }
  if (HasPenalties(row)) Penalise(row, vocab, logits, counts);
}

}  // namespace serval
