// ForRows: splits independent rows over the pool when there is work enough to pay for waking it.
// Thread rule: as ThreadPool::ParallelFor. Rows must not depend on each other, so the split never
// shows in a result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core.h"
#include "kernels/thread_pool.h"

namespace serval {

// Calls body(begin, end) over [0, rows) in pieces. `row_work` is a row's cost in element
// operations; below kInlineWork in all (a few microseconds, what a wake-up costs) the caller does
// everything itself.
template <class Body>
void ForRows(const Ctx& ctx, int64_t rows, int64_t row_work, Body&& body) {
  constexpr int64_t kInlineWork = 32768;
  constexpr int64_t kPiecesPerThread = 4;  // so that a late thread costs little
  if (rows <= 0) return;
  const int threads = ctx.pool->threads();
  if (threads == 1 || rows == 1 || rows * row_work < kInlineWork) return body(0, rows);
  const int64_t least = std::max<int64_t>(1, kInlineWork / 4 / std::max<int64_t>(1, row_work));
  const int64_t piece = std::max(least, (rows - 1) / (threads * kPiecesPerThread) + 1);
  ctx.pool->ParallelFor((rows - 1) / piece + 1, [&](int64_t task, int) {
    body(task * piece, std::min(rows, (task + 1) * piece));
  });
}

}  // namespace serval
