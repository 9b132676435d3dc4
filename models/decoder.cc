#include "models/decoder.h"

#include <algorithm>
#include <utility>

#include "kernels/dispatch.h"
#include "kernels/embed/embed.h"
#include "kernels/norm/rms_norm.h"
#include "models/projection.h"

namespace serval {
namespace {

// A batch's numbers as an op's input; ops do not write to them.
TensorView ViewOf(std::span<const int32_t> numbers) {
  return TensorView(const_cast<int32_t*>(numbers.data()), DType::kI32,
                    {static_cast<int64_t>(numbers.size())});
}

ModelInfo InfoOf(const ModelConfig& config, const ModelWeights& weights) {
  ModelInfo info;
  info.architecture = std::string(config.family->architecture);
  info.vocab = config.vocab;
  info.hidden = config.hidden;
  info.context = config.context;
  info.parameters = weights.parameters;
  info.weight_bytes = weights.memory.bytes();
  info.layers.assign(config.layers, {config.q_heads, config.kv_heads, config.head_dim});
  return info;
}

}  // namespace

Decoder::Decoder(ModelConfig config, ModelWeights weights, std::vector<int32_t> eos_tokens)
    : config_(std::move(config)), weights_(std::move(weights)), info_(InfoOf(config_, weights_)) {
  info_.eos_tokens = std::move(eos_tokens);
}

void Decoder::Bind(std::vector<LayerMemory> memories, const StepLimits& limits) {
  SERVAL_CHECK_EQ(memories.size(), weights_.layers.size());
  memories_ = std::move(memories);
  limits_ = limits;
  TakeBuffers();
}

// One block of memory, dealt out twice: first on paper to learn its size, then in earnest.
void Decoder::TakeBuffers() {
  int64_t used = 0;
  const auto take = [&](int64_t rows, int64_t width) {
    std::byte* data = buffers_.data() == nullptr ? nullptr : buffers_.data() + used;
    used += (rows * width * 4 + 63) / 64 * 64;
    return TensorView(data, DType::kF32, {rows, width});
  };
  const auto deal = [&] {
    used = 0;
    const int64_t tokens = limits_.max_tokens;
    all_.x = take(tokens, config_.hidden);
    all_.normed = take(tokens, config_.hidden);
    all_.q = take(tokens, config_.q_dim());
    all_.k = take(tokens, config_.kv_dim());
    all_.v = take(tokens, config_.kv_dim());
    all_.mixed = take(tokens, config_.q_dim());
    all_.gate = take(tokens, config_.feed_forward);
    all_.up = take(tokens, config_.feed_forward);
    gathered_ = take(limits_.max_logit_rows, config_.hidden);
  };
  buffers_ = Mapping();
  deal();
  buffers_ = Mapping(used);
  SERVAL_CHECK(buffers_.data() != nullptr, "no memory for a step's activations");
  deal();
}

int64_t Decoder::WorkspaceBytes(const StepLimits& limits, int threads) const {
  const int64_t widest = std::max({config_.hidden, config_.q_dim(), config_.feed_forward});
  const int64_t rows = std::max(limits.max_tokens, limits.max_logit_rows);
  return MatMulWorkspaceBytes(rows, widest, threads);
}

Activations Decoder::ActivationsOf(const StepBatch& batch) const {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  SERVAL_CHECK_GE(tokens, 1);
  SERVAL_CHECK_LE(tokens, limits_.max_tokens);
  SERVAL_CHECK_EQ(batch.positions.size(), batch.tokens.size());
  Activations a = all_;
  a.positions = ViewOf(batch.positions);
  for (TensorView* view : {&a.x, &a.normed, &a.q, &a.k, &a.v, &a.mixed, &a.gate, &a.up}) {
    *view = view->Rows(0, tokens);
  }
  return a;
}

TensorView Decoder::Forward(const Ctx& ctx, const StepBatch& batch) {
  const Activations a = ActivationsOf(batch);
  Run(ctx, Embed{ViewOf(batch.tokens), weights_.embedding, a.x});
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    RunBlock(ctx, config_, weights_.layers[layer], memories_[layer], a);
  }
  return a.x;
}

void Decoder::Logits(const Ctx& ctx, TensorView hidden, TensorView rows, TensorView logits) {
  const TensorView x = gathered_.Rows(0, rows.dim(0));
  Run(ctx, GatherRows{hidden, rows, x});
  Run(ctx, RmsNorm{x, weights_.output_norm, x, config_.rms_eps});
  Project(ctx, x, {{weights_.head, logits}});
}

}  // namespace serval
