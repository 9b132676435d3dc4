#include "engine/executor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/check.h"
#include "kernels/dispatch.h"

namespace serval {

Executor::Executor(Model* model, std::vector<MemoryBank*> banks, const StepLimits& limits,
                   int threads, bool exact)
    : model_(model),
      banks_(std::move(banks)),
      limits_(limits),
      pool_(threads),
      workspace_(WorkspaceBytes(*model, banks_, limits, pool_.threads())),
      logits_(limits.max_logit_rows * model->info().vocab * static_cast<int64_t>(sizeof(float))) {
  SERVAL_CHECK(logits_.data() != nullptr, "no memory for the logits");
  ctx_.pool = &pool_;
  ctx_.workspace = &workspace_;
  ctx_.exact = exact;
}

int64_t Executor::WorkspaceBytes(const Model& model, const std::vector<MemoryBank*>& banks,
                                 const StepLimits& limits, int threads) {
  // A memory mixes while its block holds scratch, so the two add up; sampling comes when both are
  // given back.
  int64_t memory = 0;
  for (const MemoryBank* bank : banks) memory = std::max(memory, bank->WorkspaceBytes(threads));
  return std::max(model.WorkspaceBytes(limits, threads) + memory,
                  SampleWorkspaceBytes(model.info().vocab, threads));
}

void Executor::Run(Step& step) {
  const StepBatch batch = step.batch();
  SERVAL_CHECK_LE(static_cast<int64_t>(step.tokens.size()), limits_.max_tokens);
  for (MemoryBank* bank : banks_) bank->Begin(ctx_, batch);
  const TensorView hidden = model_->Forward(ctx_, batch);
  const auto rows = static_cast<int64_t>(step.rows.size());
  SERVAL_CHECK_LE(rows, static_cast<int64_t>(step.results.size()));
  for (int64_t begin = 0; begin < rows; begin += limits_.max_logit_rows) {
    const int64_t count = std::min(limits_.max_logit_rows, rows - begin);
    const TensorView wanted(step.rows.data() + begin, DType::kI32, {count});
    const TensorView logits(logits_.data(), DType::kF32, {count, model_->info().vocab});
    model_->Logits(ctx_, hidden, wanted, logits);
    serval::Run(ctx_, Sample{.logits = logits,
                             .rows = std::span(step.samples).subspan(begin, count),
                             .results = std::span(step.results).subspan(begin, count)});
  }
  for (MemoryBank* bank : banks_) bank->End(ctx_, batch);
}

}  // namespace serval
