// Speed of PagedAttention: decoding as GB/s of keys and values read, prefill as GFLOP/s of the two
// products. And of Sample.
//   kernels_attention_bench [--benchmark_filter=Decode]   prints the best of the repetitions beside
//   their mean
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/paged/paged.h"
#include "kernels/sample/sample.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace serval {
namespace {

constexpr int kQHeads = 9, kKvHeads = 3, kHeadDim = 64;  // SmolLM2-135M

std::vector<float> Normals(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// `layers` pools of the same sequences: more than the last-level cache holds, as a model's are.
struct Cache {
  Cache(int64_t seqs, int64_t past, int64_t queries, int64_t layers)
      : q(Normals(seqs * queries * kQHeads * kHeadDim)), out(q.size()) {
    const int64_t pages_each = (past + queries - 1) / kPageTokens + 1;
    pages.resize(seqs * pages_each);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(2));
    const int64_t slots = seqs * pages_each * kKvHeads;
    const int64_t elements = slots * 2 * kPageTokens * kHeadDim;
    const std::vector<float> values = Normals(1 << 16);
    for (int64_t layer = 0; layer < layers; ++layer) {
      pools.emplace_back(elements);
      for (int64_t i = 0; i < elements; ++i) pools.back()[i] = F32ToBF16(values[i & 0xFFFF]);
    }
    for (int64_t s = 0; s <= seqs; ++s) begin.push_back(static_cast<int32_t>(s * queries));
    pasts.assign(seqs, static_cast<int32_t>(past));
    const int64_t tokens = seqs * queries;
    op.q = TensorView(q.data(), DType::kF32, {tokens, kQHeads, kHeadDim});
    op.out = TensorView(out.data(), DType::kF32, {tokens, kQHeads, kHeadDim});
    op.pool = TensorView(nullptr, DType::kBF16, {slots, 2, kPageTokens, kHeadDim});
    op.table.pages = TensorView(pages.data(), DType::kI32, {seqs, pages_each});
    op.table.query_begin = TensorView(begin.data(), DType::kI32, {seqs + 1});
    op.table.past = TensorView(pasts.data(), DType::kI32, {seqs});
    op.kv_heads = kKvHeads;
    op.scale = 0.125f;
  }
  std::vector<float> q, out;
  std::vector<std::vector<uint16_t>> pools;
  std::vector<int32_t> pages, begin, pasts;
  PagedAttention op;
};

double Best(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}
double Most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

// threads, sequences, queries each, past, layers
void Attention(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const int64_t seqs = state.range(1), queries = state.range(2), past = state.range(3);
  ThreadPool pool(threads);
  Workspace workspace(PagedAttentionWorkspaceBytes(seqs * queries, kQHeads, kKvHeads, kHeadDim,
                                                   past + queries, threads));
  Ctx ctx;
  ctx.pool = &pool;
  ctx.workspace = &workspace;
  Cache cache(seqs, past, queries, state.range(4));
  size_t layer = 0;
  for (auto _ : state) {
    cache.op.pool.data = cache.pools[layer++ % cache.pools.size()].data();
    Run(ctx, cache.op);
  }
  const double entries = static_cast<double>(seqs * queries) *
                         (static_cast<double>(past) + static_cast<double>(queries + 1) / 2);
  const double bytes = static_cast<double>(seqs * (past + queries)) * kKvHeads * kHeadDim * 2 * 2;
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(1e-9 * bytes, Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] =
      Counter(1e-9 * entries * kQHeads * kHeadDim * 4, Counter::kIsIterationInvariantRate);
}

// threads, rows, top_k, per cent of top_p, top_logprobs
void Sampling(benchmark::State& state) {
  constexpr int64_t kVocab = 49152;
  const int threads = static_cast<int>(state.range(0));
  ThreadPool pool(threads);
  Workspace workspace(SampleWorkspaceBytes(kVocab, threads));
  Ctx ctx;
  ctx.pool = &pool;
  ctx.workspace = &workspace;
  std::vector<float> logits = Normals(state.range(1) * kVocab);
  for (float& x : logits) x *= 3.0f;  // about as peaked as a language model
  std::vector<SampleRow> rows(state.range(1));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].top_k = static_cast<int>(state.range(2));
    rows[i].top_p = static_cast<float>(state.range(3)) / 100.0f;
    rows[i].top_logprobs = static_cast<int>(state.range(4));
    rows[i].seed = i;
  }
  std::vector<SampleResult> results(rows.size());
  Sample op;
  op.logits = TensorView(logits.data(), DType::kF32, {state.range(1), kVocab});
  op.rows = rows;
  op.results = results;
  for (auto _ : state) Run(ctx, op);
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(rows.size()),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void Report(benchmark::internal::Benchmark* bench) {
  bench->UseRealTime()->Unit(benchmark::kMicrosecond)->Repetitions(12)->MinTime(0.05);
  bench->ReportAggregatesOnly()->ComputeStatistics("best time", Best);
  bench->ComputeStatistics("best rate", Most);
}

BENCHMARK(Attention)
    ->Name("Decode")
    ->ArgNames({"threads", "seqs", "queries", "past", "layers"})
    ->ArgsProduct({{1, 2}, {1}, {1}, {1023, 8191}, {24}})
    ->Args({2, 8, 1, 2047, 8})
    ->Apply(Report);
BENCHMARK(Attention)
    ->Name("Prefill")
    ->ArgNames({"threads", "seqs", "queries", "past", "layers"})
    ->ArgsProduct({{1, 2}, {1}, {512}, {0, 4096}, {8}})
    ->Apply(Report);
BENCHMARK(Sampling)
    ->Name("Sample")
    ->ArgNames({"threads", "rows", "top_k", "top_p", "top_logprobs"})
    ->Args({1, 8, 0, 100, -1})
    ->Args({1, 8, 40, 100, -1})
    ->Args({1, 8, 0, 95, -1})
    ->Args({1, 8, 0, 100, 5})
    ->Apply(Report);

}  // namespace
}  // namespace serval

BENCHMARK_MAIN();
