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

// Leaves the `wanted` most likely tokens (fewer if the others are -inf) at the front of keys, in
// any order; returns how many.
int64_t SelectTop(const Row& row, int64_t wanted, uint64_t* keys) {
  const int64_t found =
      CollectUntil(row, 1.0f, keys, [wanted](int64_t count, float) { return count >= wanted; });
  const int64_t kept = std::min(wanted, found);
  if (kept < found) std::nth_element(keys, keys + kept, keys + found, std::greater<>());
  return kept;
}

// Where the running sum of weights, taken in descending order of keys, first gets to `target` (or
// beyond it, if asked). Halving instead of sorting: O(count). Afterwards keys[0 .. index] are the
// best index + 1, and their weights add up to *sum.
int64_t Reach(const Row& row, float inv_temperature, int64_t count, double target, bool beyond,
              Scratch* scratch, double* sum) {
  constexpr int64_t kSortable = 32;
  uint64_t* keys = scratch->keys;
  const auto weigh = [&](int64_t from, int64_t to) {
    return CandidateWeights(keys + from, to - from, row.max, inv_temperature, scratch->weights);
  };
  const auto reached = [=](double x) { return beyond ? x > target : x >= target; };
  int64_t low = 0, high = count;
  double below = 0;
  while (high - low > kSortable) {
    const int64_t middle = low + (high - low) / 2;
    std::nth_element(keys + low, keys + middle, keys + high, std::greater<>());
    const double mass = weigh(low, middle);
    if (reached(below + mass)) {
      high = middle;
    } else {
      below += mass;
      low = middle;
    }
  }
  std::sort(keys + low, keys + high, std::greater<>());
  weigh(low, high);
  int64_t index = low;
  *sum = below + scratch->weights[0];
  // Rounding may leave the target just beyond all: then the last token of any weight is meant.
  while (index + 1 < high && !reached(*sum) && scratch->weights[index + 1 - low] > 0) {
    *sum += scratch->weights[++index - low];
  }
  return index;
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

// Brings the tokens that survive top-k, top-p and min-p to the front of the keys; returns how many
// and the sum of their weights. Each filter keeps a prefix of the descending order.
int64_t Survivors(const SampleRow& p, const Row& row, float inv_temperature, Scratch* scratch,
                  double* sum) {
  uint64_t* keys = scratch->keys;
  const auto weigh = [&](int64_t count) {
    return CandidateWeights(keys, count, row.max, inv_temperature, scratch->weights);
  };
  const bool nucleus = p.top_p < 1.0f;
  int64_t kept = 0;
  double total = 0;
  if (p.top_k > 0 && p.top_k < row.vocab) {
    kept = SelectTop(row, p.top_k, keys);
    total = weigh(kept);
  } else {
    if (nucleus) total = SumExp(row.logits, row.vocab, row.max, inv_temperature, nullptr);
    const double min_p_depth = p.min_p > 0 ? -std::log(p.min_p) + 0.01 : INFINITY;
    kept = CollectUntil(row, p.temperature, keys, [&](int64_t count, float depth) {
      return depth >= min_p_depth || (nucleus && weigh(count) >= p.top_p * total);
    });
  }
  if (nucleus) {
    kept = Reach(row, inv_temperature, kept, p.top_p * total, false, scratch, sum) + 1;
  }
  if (p.min_p > 0) {  // relative to the best one, which weighs 1
    kept = std::partition(keys, keys + kept,
                          [&](uint64_t key) {
                            const float logit = CandidateLogit(key);
                            return logit == row.max ||
                                   Weight(logit, row.max, inv_temperature) >= p.min_p;
                          }) -
           keys;
  }
  if (!nucleus || p.min_p > 0) *sum = weigh(kept);
  return kept;
}

int32_t Draw(const SampleRow& p, const Row& row, Scratch* scratch) {
  if (p.temperature < kGreedyTemperature) {
    return static_cast<int32_t>(FirstEqual(row.logits, row.vocab, row.max));
  }
  const float inv_temperature = 1.0f / p.temperature;
  const double uniform = PhiloxUniform(p.seed, static_cast<uint64_t>(p.position));
  const bool filtered = (p.top_k > 0 && p.top_k < row.vocab) || p.top_p < 1.0f || p.min_p > 0.0f;
  if (!filtered) return DrawInIdOrder(row, inv_temperature, uniform, scratch->blocks);
  double sum = 0;
  const int64_t kept = Survivors(p, row, inv_temperature, scratch, &sum);
  const int64_t drawn = Reach(row, inv_temperature, kept, uniform * sum, true, scratch, &sum);
  return CandidateId(scratch->keys[drawn]);
}

void RecordLogprobs(const SampleRow& p, const Row& row, Scratch* scratch, SampleResult* result) {
  const double log_sum = row.max + std::log(SumExp(row.logits, row.vocab, row.max, 1.0f, nullptr));
  const auto logprob = [&](float logit) { return static_cast<float>(logit - log_sum); };
  const int64_t chosen = result->chosen.token;
  result->chosen.logprob = logprob(row.logits[chosen]);
  result->chosen.rank = static_cast<int32_t>(CountBefore(row.logits, row.vocab, chosen)) + 1;
  if (p.top_logprobs <= 0) return;
  const int64_t count = SelectTop(row, p.top_logprobs, scratch->keys);
  std::sort(scratch->keys, scratch->keys + count, std::greater<>());
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
