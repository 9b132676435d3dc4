#include "kernels/gemm/matmul.h"

#include <algorithm>

#include "kernels/gemm/panel.h"
#include "kernels/gemm/tiles.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace serval {
namespace {

// Of x: a chunk of its rows stays in L2 while the panels stream by.
constexpr int64_t kChunkBytes = 256 << 10;
// Of weights: what a task reads at least, where that leaves every thread kTasksPerThread tasks.
constexpr int64_t kTaskBytes = 64 << 10;
constexpr int64_t kTasksPerThread = 8;
// Elements of x that one thread quantises before a second one could have begun.
constexpr int64_t kSerialQuantise = 8 << 10;

// One MatMul on its way: x prepared, and the work cut into (chunk of rows, range of panels).
struct Plan {
  const MatMul& op;
  const bool exact;
  const QuantTiles& quant_tiles;
  const FloatTiles& float_tiles;
  std::byte* quantised = nullptr;  // all of x as tiles of quant_tiles.max_rows rows
  float* panel_scratch = nullptr;  // [workers][in][kPanelRows], for exact
  int64_t tokens, in;
  int64_t panels = 0;  // of all parts, numbered one after another
  int64_t chunk_rows = 0, chunks = 0;
  int64_t task_panels = 0, panel_tasks = 0;
};

bool Quantises(const Plan& plan, DType dtype) { return IsQuantised(dtype) && !plan.exact; }

int64_t QuantisedBytes(int64_t rows, int64_t in) {
  return rows * (in / kBlock) * kTileRowBlockBytes;
}

void QuantiseInput(const Ctx& ctx, const Plan& plan) {
  const TensorView& x = plan.op.x;
  const int64_t tile_rows = plan.quant_tiles.max_rows;
  const auto quantise = [&](int64_t tile, int) {
    const int64_t begin = tile * tile_rows;
    const int rows = static_cast<int>(std::min(tile_rows, plan.tokens - begin));
    plan.quant_tiles.quantise(x.row<float>(begin), x.stride[0], rows, plan.in,
                              plan.quantised + QuantisedBytes(begin, plan.in));
  };
  const int64_t tiles = (plan.tokens + tile_rows - 1) / tile_rows;
  if (plan.tokens * plan.in > kSerialQuantise) {
    ctx.pool->ParallelFor(tiles, quantise);
  } else {
    for (int64_t tile = 0; tile < tiles; ++tile) quantise(tile, 0);
  }
}

const QuantTiles::ByRows& TilesFor(const QuantTiles& tiles, DType dtype) {
  if (dtype == DType::kQ4_0) return tiles.q4_0;
  return dtype == DType::kQ4_1 ? tiles.q4_1 : tiles.q8_0;
}

const FloatTiles::ByRows& TilesFor(const FloatTiles& tiles, DType dtype) {
  if (dtype == DType::kF16) return tiles.f16;
  return dtype == DType::kBF16 ? tiles.bf16 : tiles.f32;
}

// Rows [begin, end) of x times panel `index` of `part`.
void MultiplyPanel(const Plan& plan, const MatMul::Part& part, int64_t index, int64_t begin,
                   int64_t end, int worker) {
  DType dtype = part.weight.dtype;
  const int64_t column = index * kPanelRows;
  const auto* panel =
      static_cast<const std::byte*>(part.weight.data) + index * PanelBytes(dtype, plan.in);
  TileOut out{.stride = part.y.stride[0],
              .columns = static_cast<int>(std::min<int64_t>(kPanelRows, part.weight.out - column)),
              .accumulate = plan.op.accumulate};
  const bool quantises = Quantises(plan, dtype);
  if (!quantises && IsQuantised(dtype)) {
    float* scratch = plan.panel_scratch + worker * plan.in * kPanelRows;
    DequantisePanel(dtype, panel, plan.in, scratch);
    panel = reinterpret_cast<const std::byte*>(scratch);
    dtype = DType::kF32;
  }
  const int64_t tile_rows = quantises ? plan.quant_tiles.max_rows : plan.float_tiles.max_rows;
  for (int64_t row = begin; row < end; row += tile_rows) {
    const int rows = static_cast<int>(std::min(tile_rows, end - row));
    out.y = part.y.row<float>(row) + column;
    if (quantises) {
      TilesFor(plan.quant_tiles, dtype)[rows - 1](plan.quantised + QuantisedBytes(row, plan.in),
                                                  panel, plan.in / kBlock, out);
    } else {
      TilesFor(plan.float_tiles, dtype)[rows - 1](plan.op.x.row<float>(row), plan.op.x.stride[0],
                                                  panel, plan.in, out);
    }
  }
}

void CutIntoTasks(Plan& plan, int threads) {
  int64_t weight_bytes = 0;
  bool floats = false;
  for (int i = 0; i < plan.op.count; ++i) {
    const Weight& weight = plan.op.parts[i].weight;
    plan.panels += Panels(weight.out);
    weight_bytes += WeightBytes(weight.dtype, weight.layout, weight.out, weight.in);
    floats = floats || !Quantises(plan, weight.dtype);
  }
  const int64_t row_bytes = floats ? plan.in * 4 : QuantisedBytes(1, plan.in);
  plan.chunk_rows = std::max<int64_t>(kChunkBytes / row_bytes / kMaxTileRows, 1) * kMaxTileRows;
  plan.chunks = (plan.tokens + plan.chunk_rows - 1) / plan.chunk_rows;

  const int64_t tiles = (std::min(plan.tokens, plan.chunk_rows) + kMaxTileRows - 1) / kMaxTileRows;
  const int64_t read_per_panel = weight_bytes / plan.panels * tiles;
  const int64_t balanced = plan.panels / (kTasksPerThread * threads);
  plan.task_panels = std::max<int64_t>(1, std::min(kTaskBytes / read_per_panel, balanced));
  plan.panel_tasks = (plan.panels + plan.task_panels - 1) / plan.task_panels;
}

// Chunk by chunk: the tasks of one chunk share its rows of x, and each runs through its panels.
void RunTask(const Plan& plan, int64_t task, int worker) {
  const int64_t begin = task / plan.panel_tasks * plan.chunk_rows;
  const int64_t end = std::min(begin + plan.chunk_rows, plan.tokens);
  int64_t panel = task % plan.panel_tasks * plan.task_panels;
  const int64_t panel_end = std::min(panel + plan.task_panels, plan.panels);
  int64_t first = 0;  // of the part
  for (int i = 0; i < plan.op.count; ++i) {
    const MatMul::Part& part = plan.op.parts[i];
    const int64_t part_end = first + Panels(part.weight.out);
    for (; panel < std::min(panel_end, part_end); ++panel) {
      MultiplyPanel(plan, part, panel - first, begin, end, worker);
    }
    first = part_end;
  }
}

}  // namespace

void Validate(const MatMul& op) {
  SERVAL_CHECK_GE(op.count, 1);
  SERVAL_CHECK_LE(op.count, static_cast<int>(op.parts.size()));
  SERVAL_CHECK_EQ(op.x.rank, 2);
  const int64_t tokens = op.x.dim(0);
  const int64_t in = op.x.dim(1);
  CheckShape("MatMul.x", op.x, DType::kF32, {tokens, in});
  SERVAL_CHECK_EQ(op.x.stride[1], 1);
  for (int i = 0; i < op.count; ++i) {
    const MatMul::Part& part = op.parts[i];
    SERVAL_CHECK(part.weight.data != nullptr);
    SERVAL_CHECK(part.weight.dtype != DType::kI32);
    SERVAL_CHECK_EQ(part.weight.in, in);
    SERVAL_CHECK_GT(part.weight.out, 0);
    if (IsQuantised(part.weight.dtype)) SERVAL_CHECK_EQ(in % kBlock, 0);
    CheckShape("MatMul.y", part.y, DType::kF32, {tokens, part.weight.out});
    SERVAL_CHECK_EQ(part.y.stride[1], 1);
  }
}

void RunOnCpu(const Ctx& ctx, const MatMul& op) {
  if (op.x.dim(0) == 0) return;
  WorkspaceScope scope(ctx.workspace);
  Plan plan{.op = op,
            .exact = ctx.exact,
            .quant_tiles = BestQuantTiles(),
            .float_tiles = BestFloatTiles(),
            .tokens = op.x.dim(0),
            .in = op.x.dim(1)};
  bool quantises = false, scratch = false;
  for (int i = 0; i < op.count; ++i) {
    const Weight& weight = op.parts[i].weight;
    SERVAL_CHECK(weight.layout == WeightLayout::kPanels, "the CPU multiplies packed weights");
    (ctx.exact ? scratch : quantises) |= IsQuantised(weight.dtype);
  }
  const int threads = ctx.pool->threads();
  if (scratch) plan.panel_scratch = ctx.workspace->Take<float>(threads * plan.in * kPanelRows);
  if (quantises) {
    plan.quantised = ctx.workspace->Take<std::byte>(QuantisedBytes(plan.tokens, plan.in));
    QuantiseInput(ctx, plan);
  }
  CutIntoTasks(plan, threads);
  ctx.pool->ParallelFor(plan.chunks * plan.panel_tasks,
                        [&](int64_t task, int worker) { RunTask(plan, task, worker); });
}

int64_t MatMulWorkspaceBytes(int64_t tokens, int64_t in, int threads) {
  // Either of the two: quantised rows, or exact's panels. Both are rounded up to the workspace's
  // alignment.
  return std::max<int64_t>(QuantisedBytes(tokens, in), threads * in * kPanelRows * 4) + 64;
}

}  // namespace serval
