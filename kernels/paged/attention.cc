#include <algorithm>

#include "kernels/paged/paged.h"
#include "kernels/paged/pages.h"
#include "kernels/paged/tile.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace serval {
namespace {

// Partial rows that may be kept for a later merge; units beyond that run their splits one after the
// other instead.
constexpr int64_t kMaxPartialRows = 8192;
// Below this many (row, page) pairs waking the pool costs more than it saves.
constexpr int64_t kInlineWork = 24;

int64_t TileTokens(int64_t group) { return std::max<int64_t>(1, kTileRows / group); }
int64_t TileRows(int64_t tokens, int64_t group) {
  return std::min(tokens, TileTokens(group)) * group;
}
int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

Partial TakePartial(Workspace* workspace, int64_t rows, int64_t dp) {
  return {workspace->Take<float>(rows * dp), workspace->Take<float>(rows),
          workspace->Take<float>(rows)};
}
int64_t PartialFloats(int64_t rows, int64_t dp) { return Aligned(rows * dp) + 2 * Aligned(rows); }

TileScratch TakeScratch(Workspace* workspace, int64_t rows, int64_t head_dim) {
  const int64_t dp = PaddedHeadDim(head_dim);
  TileScratch scratch;
  scratch.q = workspace->Take<float>(rows * head_dim);
  scratch.scores = workspace->Take<float>(rows * kPageTokens);
  scratch.keys = workspace->Take<float>(head_dim * kPageTokens);
  scratch.values = workspace->Take<float>(kPageTokens * dp);
  scratch.split = TakePartial(workspace, rows, dp);
  scratch.total = TakePartial(workspace, rows, dp);
  return scratch;
}
int64_t ScratchFloats(int64_t rows, int64_t head_dim) {
  const int64_t dp = PaddedHeadDim(head_dim);
  return Aligned(rows * head_dim) + rows * kPageTokens + head_dim * kPageTokens + kPageTokens * dp +
         2 * PartialFloats(rows, dp);
}

// A tile and how it is run: by one task, or by one task a split and a merge afterwards.
struct Unit {
  Tile tile;
  int64_t split_begin = 0, split_end = 0;
  int64_t partial_row = -1;  // where its partials lie, one split after the other; -1: one task
  int64_t splits() const { return split_end - split_begin; }
  int64_t cost() const { return tile.rows() * splits(); }
};
struct Task {
  int32_t unit;
  int32_t split;  // -1: all of them
};

struct Plan {
  Unit* units = nullptr;
  Task* tasks = nullptr;
  int64_t unit_count = 0, task_count = 0, partial_rows = 0, work = 0, cost = 0;
};

int64_t CountTiles(const PagedAttention& op, int64_t group) {
  const int32_t* begin = op.table.query_begin.as<int32_t>();
  int64_t tiles = 0;
  for (int64_t s = 0; s < op.table.past.dim(0); ++s) {
    tiles += (begin[s + 1] - begin[s] + TileTokens(group) - 1) / TileTokens(group);
  }
  return tiles;
}

// Longest tiles first within a sequence: what is dealt last should be short.
void AddUnits(const PagedAttention& op, int64_t seq, int64_t group, Plan* plan) {
  const int32_t* begin = op.table.query_begin.as<int32_t>();
  const int64_t tokens = begin[seq + 1] - begin[seq], step = TileTokens(group);
  for (int64_t first = (tokens - 1) / step * step; tokens > 0 && first >= 0; first -= step) {
    for (int64_t h = 0; h < op.kv_heads; ++h) {
      Unit unit;
      unit.tile = {.first_token = begin[seq] + first,
                   .tokens = std::min(step, tokens - first),
                   .first_position = op.table.past.as<int32_t>()[seq] + first,
                   .pages = op.table.pages.row<int32_t>(seq),
                   .kv_head = h,
                   .group = group};
      const int64_t entry = unit.tile.begin(op.window), end = unit.tile.end();
      unit.split_begin = entry / kSplitEntries;
      unit.split_end = (end - 1) / kSplitEntries + 1;
      plan->units[plan->unit_count++] = unit;
      plan->cost += unit.cost();
      plan->work += unit.tile.rows() * ((end - 1) / kPageTokens - entry / kPageTokens + 1);
    }
  }
}

// A unit is cut into its splits when alone it would keep one thread busy while the others wait.
void CutUnits(int threads, Plan* plan) {
  if (threads == 1 || plan->work < kInlineWork) return;
  for (int64_t u = 0; u < plan->unit_count; ++u) {
    Unit& unit = plan->units[u];
    const int64_t rows = unit.tile.rows() * unit.splits();
    if (unit.splits() < 2 || unit.cost() * threads * 4 < plan->cost) continue;
    if (plan->partial_rows + rows > kMaxPartialRows) continue;
    unit.partial_row = plan->partial_rows;
    plan->partial_rows += rows;
  }
}

Plan MakePlan(const Ctx& ctx, const PagedAttention& op, int64_t group) {
  Plan plan;
  plan.units = ctx.workspace->Take<Unit>(CountTiles(op, group) * op.kv_heads);
  for (int64_t s = 0; s < op.table.past.dim(0); ++s) AddUnits(op, s, group, &plan);
  CutUnits(ctx.pool->threads(), &plan);
  int64_t tasks = 0;
  for (int64_t u = 0; u < plan.unit_count; ++u) {
    tasks += plan.units[u].partial_row < 0 ? 1 : plan.units[u].splits();
  }
  plan.tasks = ctx.workspace->Take<Task>(tasks);
  for (int32_t u = 0; u < plan.unit_count; ++u) {
    const Unit& unit = plan.units[u];
    if (unit.partial_row < 0) {
      plan.tasks[plan.task_count++] = {u, -1};
      continue;
    }
    for (int32_t s = unit.split_begin; s < unit.split_end; ++s) {
      plan.tasks[plan.task_count++] = {u, s};
    }
  }
  return plan;
}

Partial PartialAt(const Partial& base, int64_t row, int64_t dp) {
  return {base.acc + row * dp, base.max + row, base.den + row};
}

// All splits of a unit, merged in the same order as MergeUnit does.
void RunWhole(const PagedAttention& op, const Unit& unit, const TileScratch& scratch) {
  const int64_t rows = unit.tile.rows(), dp = PaddedHeadDim(op.q.dim(2));
  ClearPartial(rows, dp, scratch.total);
  for (int64_t s = unit.split_begin; s < unit.split_end; ++s) {
    TileSplit(op, unit.tile, s, scratch, scratch.split);
    MergePartial(rows, dp, scratch.split, scratch.total);
  }
  FinishTile(op, unit.tile, scratch.total);
}

// Merges the partials of a cut unit into its first one and writes the output.
void MergeUnit(const PagedAttention& op, const Unit& unit, const Partial& partials) {
  const int64_t rows = unit.tile.rows(), dp = PaddedHeadDim(op.q.dim(2));
  const Partial total = PartialAt(partials, unit.partial_row, dp);
  for (int64_t s = 1; s < unit.splits(); ++s) {
    MergePartial(rows, dp, PartialAt(partials, unit.partial_row + s * rows, dp), total);
  }
  FinishTile(op, unit.tile, total);
}

}  // namespace

void Validate(const PagedAttention& op) {
  SERVAL_CHECK_EQ(op.q.rank, 3);
  const int64_t tokens = op.q.dim(0), q_heads = op.q.dim(1), head_dim = op.q.dim(2);
  CheckShape("PagedAttention.q", op.q, DType::kF32, {tokens, q_heads, head_dim});
  CheckShape("PagedAttention.out", op.out, DType::kF32, {tokens, q_heads, head_dim});
  SERVAL_CHECK_GE(op.kv_heads, 1);
  SERVAL_CHECK_EQ(q_heads % op.kv_heads, 0);
  SERVAL_CHECK_GE(op.window, 0);
  ValidatePages("PagedAttention", op.pool, op.table, op.kv_heads, head_dim);
}

void RunOnCpu(const Ctx& ctx, const PagedAttention& op) {
  CheckTable(op.table, op.q.dim(0));
  if (op.q.dim(0) == 0) return;
  const int64_t group = op.q.dim(1) / op.kv_heads, head_dim = op.q.dim(2);
  const int64_t dp = PaddedHeadDim(head_dim);
  const WorkspaceScope scope(ctx.workspace);
  const Plan plan = MakePlan(ctx, op, group);
  const int64_t rows = TileRows(op.q.dim(0), group);
  const int threads = plan.work < kInlineWork || plan.task_count == 1 ? 1 : ctx.pool->threads();
  const Partial partials = TakePartial(ctx.workspace, plan.partial_rows, dp);
  TileScratch* scratch = ctx.workspace->Take<TileScratch>(threads);
  for (int i = 0; i < threads; ++i) scratch[i] = TakeScratch(ctx.workspace, rows, head_dim);

  const auto run = [&](int64_t index, int worker) {
    const Task task = plan.tasks[index];
    const Unit& unit = plan.units[task.unit];
    if (task.split < 0) return RunWhole(op, unit, scratch[worker]);
    const int64_t row = unit.partial_row + (task.split - unit.split_begin) * unit.tile.rows();
    TileSplit(op, unit.tile, task.split, scratch[worker], PartialAt(partials, row, dp));
  };
  if (threads == 1) {
    for (int64_t i = 0; i < plan.task_count; ++i) run(i, 0);
  } else {
    ctx.pool->ParallelFor(plan.task_count, run);
  }
  for (int64_t u = 0; u < plan.unit_count; ++u) {
    if (plan.units[u].partial_row >= 0) MergeUnit(op, plan.units[u], partials);
  }
}

int64_t PagedAttentionWorkspaceBytes(int64_t tokens, int q_heads, int kv_heads, int head_dim,
                                     int64_t max_context, int threads) {
  const int64_t group = q_heads / kv_heads;
  const int64_t splits = (max_context - 1) / kSplitEntries + 1;
  const int64_t partial_rows = std::min<int64_t>(kMaxPartialRows, tokens * q_heads * splits);
  const int64_t units = tokens * kv_heads;  // every token may be a sequence of its own
  const int64_t tasks = units + partial_rows;
  const int64_t floats = PartialFloats(partial_rows, PaddedHeadDim(head_dim)) +
                         threads * ScratchFloats(TileRows(tokens, group), head_dim);
  return floats * sizeof(float) + units * sizeof(Unit) + tasks * sizeof(Task) +
         threads * sizeof(TileScratch) + 4 * 64;  // the last: alignment of the four arrays
}

}  // namespace serval
