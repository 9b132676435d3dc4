// Runs a planned step on the model: memories, layers, logits of the wanted rows in turns of
// max_logit_rows, sampling. Thread rule: the engine thread's. Takes every byte at construction.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/memory/bank.h"
#include "engine/model.h"
#include "engine/step.h"
#include "kernels/core.h"
#include "kernels/mapping.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace serval {

class Executor {
 public:
  // The model is bound to its memories already. `threads` 0 = the physical cores.
  Executor(Model* model, std::vector<MemoryBank*> banks, const StepLimits& limits, int threads,
           bool exact);

  // Fills step.results[0 … step.rows.size()). REQUIRES: not empty, within the limits.
  void Run(Step& step);

 private:
  static int64_t WorkspaceBytes(const Model& model, const std::vector<MemoryBank*>& banks,
                                const StepLimits& limits, int threads);

  Model* const model_;
  const std::vector<MemoryBank*> banks_;
  const StepLimits limits_;
  ThreadPool pool_;
  Workspace workspace_;
  Mapping logits_;  // f32 [max_logit_rows, vocab]
  Ctx ctx_;
};

}  // namespace serval
