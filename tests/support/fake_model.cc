#include "tests/support/fake_model.h"

#include <cmath>
#include <limits>
#include <thread>
#include <utility>

namespace serval {
namespace {

// A number in [-1, 1) that looks random, of two integers.
float Noise(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xc2b2ae3d27d4eb4f + 1;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 32)) * 0x94d049bb133111eb;
  return static_cast<float>(static_cast<int64_t>(x >> 40)) / static_cast<float>(1 << 23) - 1.0f;
}

}  // namespace

FakeModel::FakeModel(FakeModelOptions options) : options_(std::move(options)) {
  info_.architecture = "fake";
  info_.vocab = options_.vocab;
  info_.hidden = int64_t{options_.q_heads} * options_.head_dim;
  info_.context = options_.context;
  info_.layers.assign(options_.layers, {options_.q_heads, options_.kv_heads, options_.head_dim, 0});
  info_.eos_tokens = options_.eos_tokens;
}

void FakeModel::Bind(std::vector<LayerMemory> memories, const StepLimits& limits) {
  memories_ = std::move(memories);
  hidden_.resize(limits.max_tokens * info_.hidden);
  out_.resize(hidden_.size());
  k_.resize(limits.max_tokens * options_.kv_heads * options_.head_dim);
  v_.resize(k_.size());
}

TensorView FakeModel::Forward(const Ctx& ctx, const StepBatch& batch) {
  std::this_thread::sleep_for(options_.delay);
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  const int64_t hidden = info_.hidden, kv = int64_t{options_.kv_heads} * options_.head_dim;
  for (int64_t i = 0; i < tokens * hidden; ++i) {
    const int64_t t = i / hidden;
    hidden_[i] = Noise(batch.tokens[t] * 1000 + i % hidden, 7) +
                 0.5f * Noise(batch.positions[t] * 1000 + i % hidden, 8);
  }
  for (const LayerMemory& memory : memories_) {
    for (int64_t i = 0; i < tokens * kv; ++i) {
      const float* row = hidden_.data() + i / kv * hidden;
      k_[i] = row[(i % kv * 7 + 3) % hidden];
      v_[i] = row[(i % kv * 5 + 1) % hidden];
    }
    const int64_t d = options_.head_dim;
    const TensorView q(hidden_.data(), DType::kF32, {tokens, options_.q_heads, d});
    const TensorView k(k_.data(), DType::kF32, {tokens, options_.kv_heads, d});
    const TensorView v(v_.data(), DType::kF32, {tokens, options_.kv_heads, d});
    memory.bank->Mix(ctx, memory.layer, {q, k, v, 1.0f, 0},
                     TensorView(out_.data(), DType::kF32, {tokens, options_.q_heads, d}));
    for (int64_t i = 0; i < tokens * hidden; ++i) hidden_[i] = hidden_[i] * 0.5f + out_[i] * 2.0f;
  }
  for (int64_t t = 0; t < tokens; ++t) {
    if (batch.tokens[t] == options_.poison) {
      hidden_[t * hidden] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return TensorView(hidden_.data(), DType::kF32, {tokens, hidden});
}

void FakeModel::Logits(const Ctx&, TensorView hidden, TensorView rows, TensorView logits) {
  for (int64_t r = 0; r < rows.dim(0); ++r) {
    const float* x = hidden.row<float>(rows.as<int32_t>()[r]);
    for (int64_t id = 0; id < info_.vocab; ++id) {
      float sum = 0;
      for (int64_t i = 0; i < info_.hidden; ++i) sum += x[i] * Noise(id, i + 100);
      logits.row<float>(r)[id] = sum;
    }
  }
}

}  // namespace serval
