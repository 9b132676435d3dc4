#include "models/block.h"

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/mlp/silu_gate.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "models/projection.h"

namespace serval {

void RunBlock(const Ctx& ctx, const ModelConfig& config, const LayerWeights& weights,
              const LayerMemory& memory, const Activations& a) {
  const int64_t tokens = a.x.dim(0);
  const auto heads = [&](const TensorView& view, int64_t count) {
    return view.Reshape({tokens, count, config.head_dim});
  };
  const TensorView q = heads(a.q, config.q_heads), k = heads(a.k, config.kv_heads),
                   v = heads(a.v, config.kv_heads), mixed = heads(a.mixed, config.q_heads);
  const TensorView inv_freq(const_cast<float*>(config.inv_freq.data()), DType::kF32,
                            {static_cast<int64_t>(config.inv_freq.size())});
  const RopeLayout layout = config.family->rope_layout;
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));

  Run(ctx, RmsNorm{a.x, weights.attention_norm, a.normed, config.rms_eps});
  Project(ctx, a.normed, {{weights.q, a.q}, {weights.k, a.k}, {weights.v, a.v}});
  Run(ctx, Rope{q, a.positions, inv_freq, layout});
  Run(ctx, Rope{k, a.positions, inv_freq, layout});
  memory.bank->Mix(ctx, memory.layer, {q, k, v, scale}, mixed);
  Project(ctx, a.mixed, {{weights.o, a.x}}, Store::kAdd);

  Run(ctx, RmsNorm{a.x, weights.feed_forward_norm, a.normed, config.rms_eps});
  Project(ctx, a.normed, {{weights.gate, a.gate}, {weights.up, a.up}});
  Run(ctx, SiluGate{a.gate, a.up, a.gate});
  Project(ctx, a.gate, {{weights.down, a.x}}, Store::kAdd);
}

}  // namespace serval
