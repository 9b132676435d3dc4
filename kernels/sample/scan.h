// The passes over a row of logits that sampling is made of, vectorised.
// Thread rule: pure functions on the buffers they are given; any worker.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace serval {

// A candidate as one integer: higher logit first, then lower id, is descending order of keys.
inline uint64_t CandidateKey(float logit, uint32_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 becomes 0: they are equal
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (uint64_t{ordered} << 32) | ~id;
}
inline int32_t CandidateId(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}
inline float CandidateLogit(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered & 0x80000000u ? ordered & 0x7FFFFFFFu : ~ordered);
}

inline constexpr int64_t kSumBlock = 1024;  // elements a partial sum of SumExp covers

// The largest logit; NaN if there is one in the row.
float RowMax(const float* logits, int64_t count);
// The first index holding `value`. REQUIRES: it occurs.
int64_t FirstEqual(const float* logits, int64_t count, float value);
// How many tokens come before token `id` in (logit descending, id ascending) order.
int64_t CountBefore(const float* logits, int64_t count, int64_t id);
// Sum over the row of exp((logit - max) * inv_temperature), added up in double a block of kSumBlock
// at a time; the sum of block b is left in blocks[b] unless null.
double SumExp(const float* logits, int64_t count, float max, float inv_temperature, double* blocks);
// exp((logit - max) * inv_temperature) of one logit, bit for bit as SumExp and CandidateWeights
// take it.
float Weight(float logit, float max, float inv_temperature);
// Writes the keys of all logits >= threshold except -inf, in id order; returns how many.
int64_t CollectCandidates(const float* logits, int64_t count, float threshold, uint64_t* keys);
// weights[i] = Weight(logit of keys[i]); returns their sum.
double CandidateWeights(const uint64_t* keys, int64_t count, float max, float inv_temperature,
                        float* weights);

}  // namespace serval
