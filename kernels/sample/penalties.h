// The edits of a row of logits that come before any probability: bias, banned tokens, penalties.
// Thread rule: pure function on the buffers it is given; any worker.
#pragma once

#include <cstdint>

#include "kernels/sample/sample.h"

namespace serval {

// Whether the row needs `counts` at all.
bool HasPenalties(const SampleRow& row);
// O(tokens of the row's spans). counts: [vocab], all 0 before and after; may be null without
// penalties.
void EditLogits(const SampleRow& row, int64_t vocab, float* logits, uint32_t* counts);

}  // namespace serval
