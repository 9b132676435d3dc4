// What the kernel tests share: a context of its own, random numbers, and the SIMD targets of this
// machine.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "hwy/highway.h"
#include "kernels/core.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace serval::testing {

struct TestCtx {
  explicit TestCtx(int threads = 2, int64_t workspace_bytes = 1 << 26)
      : pool(threads), workspace(workspace_bytes) {
    ctx.pool = &pool;
    ctx.workspace = &workspace;
  }
  ThreadPool pool;
  Workspace workspace;
  Ctx ctx;
};

inline std::vector<float> Normals(int64_t count, uint32_t seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Calls body() under every compiled SIMD target that this machine runs, then restores the best.
template <class Body>
void ForEachTarget(Body&& body) {
  const int64_t all = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t left = all; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace serval::testing
