#include "kernels/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/philox.h"
#include "kernels/sample/penalties.h"
#include "kernels/sample/scan.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace serval {
namespace {

constexpr float kGreedyTemperature = 1e-5f;  // below, exp(1 / temperature) says nothing more

// A worker's buffers.
struct Scratch {
  uint64_t* keys = nullptr;    // [vocab]
  float* weights = nullptr;    // [vocab]
  uint32_t* counts = nullptr;  // [vocab], zero between rows once `counts_ready`
  double* blocks = nullptr;    // [vocab / kSumBlock, rounded up]
  bool counts_ready = false;
};

struct Row {
  const float* logits;
  int64_t vocab;
  float max;
};

// Collects candidates under falling thresholds (max - depth * unit) until enough(found, depth); the
// last takes everything. What is found is always a prefix of the order (logit descending, id
// ascending) as a set, so a few cheap passes replace a full sort.
template <class Enough>
int64_t CollectUntil(const Row& row, float unit, uint64_t* keys, Enough enough) {
  for (const float depth : {2.0f, 4.0f, 7.0f, 11.0f, 16.0f}) {
    const int64_t found = CollectCandidates(row.logits, row.vocab, row.max - depth * unit, keys);
    if (enough(found, depth)) return found;
  }
  return CollectCandidates(row.logits, row.vocab, -std::numeric_limits<float>::infinity(), keys);
}

// The `wanted` most likely tokens (fewer if the others are -inf), sorted, into keys; returns how
// many.
int64_t Top(const Row& row, int64_t wanted, uint64_t* keys) {
  const int64_t found =
      CollectUntil(row, 1.0f, keys, [wanted](int64_t count, float) { return count >= wanted; });
  const int64_t kept = std::min(wanted, found);
  if (kept < found) std::nth_element(keys, keys + kept, keys + found, std::greater<>());
  std::sort(keys, keys + kept, std::greater<>());
  return kept;
}

int32_t DrawInIdOrder(const Row& row, float inv_temperature, double uniform, double* blocks) {
  const double total = SumExp(row.logits, row.vocab, row.max, inv_temperature, blocks);
  const double target = uniform * total;
  double below = 0;
  int64_t block = 0, last = 0;
  for (int64_t b = 0; b * kSumBlock < row.vocab; ++b) {
    if (blocks[b] <= 0) continue;
    block = b;
    if (below + blocks[b] > target) break;
    below += blocks[b];
  }
  // Rounding may leave the target just beyond the block's sum: then its last possible token is
  // meant.
  for (int64_t i = block * kSumBlock; i < std::min(row.vocab, (block + 1) * kSumBlock); ++i) {
    const float weight = Weight(row.logits[i], row.max, inv_temperature);
    if (weight <= 0) continue;
    last = i;
    below += weight;
    if (below > target) break;
  }
  return static_cast<int32_t>(last);
}

// Tokens that survive top-k, top-p and min-p, each of which keeps a prefix of the sorted order.
int64_t Survivors(const SampleRow& p, const Row& row, float inv_temperature, Scratch* scratch) {
  uint64_t* keys = scratch->keys;
  float* weights = scratch->weights;
  const bool nucleus = p.top_p < 1.0f;
  int64_t found = 0;
  double total = 0;
  if (p.top_k > 0 && p.top_k < row.vocab) {
    found = Top(row, p.top_k, keys);
    total = CandidateWeights(keys, found, row.max, inv_temperature, weights);
  } else {
    if (nucleus) total = SumExp(row.logits, row.vocab, row.max, inv_temperature, nullptr);
    const double min_p_depth = p.min_p > 0 ? -std::log(p.min_p) + 0.01 : INFINITY;
    found = CollectUntil(row, p.temperature, keys, [&](int64_t count, float depth) {
      if (depth >= min_p_depth) return true;
      return nucleus &&
             CandidateWeights(keys, count, row.max, inv_temperature, weights) >= p.top_p * total;
    });
    std::sort(keys, keys + found, std::greater<>());
    CandidateWeights(keys, found, row.max, inv_temperature, weights);
  }
  double sum = 0;
  for (int64_t i = 0; i < found; ++i) {
    if (i > 0 && (weights[i] <= 0 || weights[i] < p.min_p)) return i;  // the best one weighs 1
    sum += weights[i];
    if (nucleus && sum >= p.top_p * total) return i + 1;
  }
  return found;
}

int32_t Draw(const SampleRow& p, const Row& row, Scratch* scratch) {
  if (p.temperature < kGreedyTemperature) {
    return static_cast<int32_t>(FirstEqual(row.logits, row.vocab, row.max));
  }
  const float inv_temperature = 1.0f / p.temperature;
  const double uniform = PhiloxUniform(p.seed, static_cast<uint64_t>(p.position));
  const bool filtered = (p.top_k > 0 && p.top_k < row.vocab) || p.top_p < 1.0f || p.min_p > 0.0f;
  if (!filtered) return DrawInIdOrder(row, inv_temperature, uniform, scratch->blocks);
  const int64_t kept = Survivors(p, row, inv_temperature, scratch);
  double total = 0, below = 0;
  for (int64_t i = 0; i < kept; ++i) total += scratch->weights[i];
  int64_t i = 0;
  while (i + 1 < kept && (below += scratch->weights[i]) <= uniform * total) ++i;
  return CandidateId(scratch->keys[i]);
}

void RecordLogprobs(const SampleRow& p, const Row& row, Scratch* scratch, SampleResult* result) {
  const double log_sum = row.max + std::log(SumExp(row.logits, row.vocab, row.max, 1.0f, nullptr));
  const auto logprob = [&](float logit) { return static_cast<float>(logit - log_sum); };
  const int64_t chosen = result->chosen.token;
  result->chosen.logprob = logprob(row.logits[chosen]);
  result->chosen.rank = static_cast<int32_t>(CountBefore(row.logits, row.vocab, chosen)) + 1;
  if (p.top_logprobs <= 0) return;
  const int64_t count = Top(row, std::min<int64_t>(p.top_logprobs, row.vocab), scratch->keys);
  result->top.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = scratch->keys[i];
    result->top.push_back(
        {CandidateId(key), logprob(CandidateLogit(key)), static_cast<int32_t>(i + 1)});
  }
}

void SampleOne(const SampleRow& p, int64_t vocab, float* logits, Scratch* scratch,
               SampleResult* result) {
  if (HasPenalties(p) && !scratch->counts_ready) {
    std::fill_n(scratch->counts, vocab, 0u);
    scratch->counts_ready = true;
  }
  EditLogits(p, vocab, logits, scratch->counts);
  result->top.clear();
  result->chosen = {};
  const Row row{logits, vocab, RowMax(logits, vocab)};
  result->finite = std::isfinite(row.max);
  if (!result->finite) return;
  result->chosen.token = p.given >= 0 ? p.given : Draw(p, row, scratch);
  if (p.given >= 0 || p.top_logprobs >= 0) RecordLogprobs(p, row, scratch, result);
}

Scratch TakeScratch(Workspace* workspace, int64_t vocab) {
  Scratch scratch;
  scratch.keys = workspace->Take<uint64_t>(vocab);
  scratch.weights = workspace->Take<float>(vocab);
  scratch.counts = workspace->Take<uint32_t>(vocab);
  scratch.blocks = workspace->Take<double>((vocab - 1) / kSumBlock + 1);
  return scratch;
}

}  // namespace

void Validate(const Sample& op) {
  SERVAL_CHECK_EQ(op.logits.rank, 2);
  const int64_t rows = op.logits.dim(0), vocab = op.logits.dim(1);
  CheckShape("Sample.logits", op.logits, DType::kF32, {rows, vocab});
  SERVAL_CHECK_GE(vocab, 1);
  SERVAL_CHECK_EQ(static_cast<int64_t>(op.rows.size()), rows);
  SERVAL_CHECK_EQ(static_cast<int64_t>(op.results.size()), rows);
  for (const SampleRow& row : op.rows) SERVAL_CHECK_LT(row.given, vocab);
}

void RunOnCpu(const Ctx& ctx, const Sample& op) {
  const int64_t vocab = op.logits.dim(1);
  const WorkspaceScope scope(ctx.workspace);
  const int threads = ctx.pool->threads();
  Scratch* scratch = ctx.workspace->Take<Scratch>(threads);
  for (int i = 0; i < threads; ++i) scratch[i] = TakeScratch(ctx.workspace, vocab);
  ctx.pool->ParallelFor(op.logits.dim(0), [&](int64_t row, int worker) {
    SampleOne(op.rows[row], vocab, op.logits.row<float>(row), &scratch[worker], &op.results[row]);
  });
}

int64_t SampleWorkspaceBytes(int64_t vocab, int threads) {
  constexpr int64_t kAlignment = 64;
  const int64_t worker = vocab * (sizeof(uint64_t) + sizeof(float) + sizeof(uint32_t)) +
                         ((vocab - 1) / kSumBlock + 1) * sizeof(double) + 4 * kAlignment;
  return threads * (worker + static_cast<int64_t>(sizeof(Scratch))) + kAlignment;
}

}  // namespace serval
