// Speed of MatMul: GB/s of weights read and G multiply-accumulates a second, beside what reading
// memory alone reaches.
//   kernels_gemm_bench [--benchmark_filter=q4_1]      threads: the cores this process may use
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/gemm/matmul.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "tests/support/reference.h"

namespace serval {
namespace {

ThreadPool& Pool() {
  static ThreadPool pool;
  return pool;
}

// Sums 64-byte lines, as a GEMV must at least: the ceiling of decoding.
void ReadSum(benchmark::State& state) {
  constexpr int64_t kChunk = 256 << 10;
  const int64_t chunks = state.range(0) * (1 << 20) / kChunk;
  reference::AlignedBytes bytes = reference::Allocate(chunks * kChunk);
  std::memset(bytes.get(), 1, chunks * kChunk);
  const auto* words = reinterpret_cast<const uint64_t*>(bytes.get());
  for (auto _ : state) {
    std::atomic<uint64_t> total{0};
    Pool().ParallelFor(chunks, [&](int64_t chunk, int) {
      uint64_t sums[8] = {};
      const uint64_t* from = words + chunk * kChunk / 8;
      for (int64_t i = 0; i < kChunk / 8; i += 8) {
        for (int j = 0; j < 8; ++j) sums[j] += from[i + j];
      }
      for (uint64_t sum : sums) total.fetch_add(sum, std::memory_order_relaxed);
    });
    benchmark::DoNotOptimize(total.load());
  }
  state.counters["GB/s"] = benchmark::Counter(1e-9 * static_cast<double>(chunks * kChunk),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

// Enough copies of the weight that decoding meets each of them cold, as in a model.
struct ColdWeights {
  ColdWeights(DType dtype, int64_t out, int64_t in) {
    const int64_t bytes = WeightBytes(dtype, WeightLayout::kPanels, out, in);
    const int64_t copies = std::max<int64_t>(1, (96 << 20) / bytes);
    const reference::TestWeight weight = reference::RandomWeight(dtype, out, in, 1);
    storage = reference::Allocate(copies * bytes);
    for (int64_t i = 0; i < copies; ++i) {
      std::memcpy(storage.get() + i * bytes, weight.packed.data, bytes);
      weights.push_back(weight.packed);
      weights.back().data = storage.get() + i * bytes;
    }
  }
  reference::AlignedBytes storage;
  std::vector<Weight> weights;
};

void Multiply(benchmark::State& state, DType dtype, int64_t out, int64_t in) {
  const int64_t tokens = state.range(0);
  const ColdWeights cold(dtype, out, in);
  std::vector<float> x = reference::Normal(tokens * in, 2), y(tokens * out);
  Workspace workspace(MatMulWorkspaceBytes(tokens, in, Pool().threads()));
  const Ctx ctx{.pool = &Pool(), .workspace = &workspace};
  MatMul op;
  op.x = TensorView(x.data(), DType::kF32, {tokens, in});
  size_t next = 0;
  for (auto _ : state) {
    op.parts[0] = {cold.weights[next++ % cold.weights.size()],
                   TensorView(y.data(), DType::kF32, {tokens, out})};
    Run(ctx, op);
    benchmark::ClobberMemory();
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  const int64_t bytes = WeightBytes(dtype, WeightLayout::kPanels, out, in);
  state.counters["GB/s"] = benchmark::Counter(1e-9 * static_cast<double>(bytes), rate);
  state.counters["GMAC/s"] =
      benchmark::Counter(1e-9 * static_cast<double>(tokens * out * in), rate);
}

void Register(DType dtype, int64_t out, int64_t in) {
  const std::string name = std::string("MatMul/") + Name(dtype) + "[" + std::to_string(out) + "," +
                           std::to_string(in) + "]/tokens";
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { Multiply(state, dtype, out, in); })
      ->Arg(1)
      ->Arg(2)
      ->Arg(8)
      ->Arg(64)
      ->Arg(512)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace serval

int main(int argc, char** argv) {
  using serval::DType;
  benchmark::RegisterBenchmark("ReadSum/MiB", serval::ReadSum)
      ->Arg(96)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  for (DType dtype : {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0, DType::kF16}) {
    serval::Register(dtype, 1536, 576);
    serval::Register(dtype, 576, 1536);
  }
  serval::Register(DType::kQ8_0, 49152, 576);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
