// A memory bank without pages for the decoder's tests: each sequence's keys and values in plain
// vectors, attention by the formula in float64. Sequences are told apart by their place in the
// step. Thread rule: the step's.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "engine/memory/bank.h"
#include "engine/step.h"

namespace serval {

class PlainMemory : public MemoryBank {
 public:
  explicit PlainMemory(int layers) : layers_(layers) {}

  std::string_view kind() const override { return "plain"; }
  bool Reserve(Holding&, int64_t) override { return true; }
  void Commit(Holding&, int64_t) override {}
  void Release(Holding&) override {}
  Holding Share(const Holding& holding, int64_t) override { return holding; }
  Bytes Used() const override { return {}; }
  Bytes Free() const override { return {}; }
  Bytes Capacity() const override { return {}; }
  Bytes Need(int64_t) const override { return {}; }
  void CheckConservation(bool) const override {}
  absl::Status Save(const Holding&, ByteSink&) override { return absl::OkStatus(); }
  absl::StatusOr<Holding> Load(ByteSource&) override { return Holding{}; }

  void Begin(const Ctx&, const StepBatch& batch) override {
    sequences_.assign(batch.sequences.begin(), batch.sequences.end());
    for (Layer& layer : layers_) layer.resize(std::max(layer.size(), sequences_.size()));
  }
  void End(const Ctx&, const StepBatch&) override {}

  void Mix(const Ctx&, int layer, const MixInput& in, TensorView out) override {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      Past& past = layers_[layer][s];
      const int64_t width = in.k.dim(1) * in.k.dim(2);
      for (int i = 0; i < sequences_[s].token_count; ++i) {
        const int64_t token = sequences_[s].token_begin + i;
        past.keys.insert(past.keys.end(), in.k.row<float>(token), in.k.row<float>(token) + width);
        past.values.insert(past.values.end(), in.v.row<float>(token),
                           in.v.row<float>(token) + width);
        Attend(past, in, token, width, out);
      }
    }
  }

 private:
  struct Past {
    std::vector<float> keys, values;  // [tokens, kv_heads, head_dim]
  };
  using Layer = std::vector<Past>;

  static void Attend(const Past& past, const MixInput& in, int64_t token, int64_t width,
                     TensorView out) {
    const int64_t entries = static_cast<int64_t>(past.keys.size()) / width, dim = in.q.dim(2);
    const int64_t group = in.q.dim(1) / in.k.dim(1);
    for (int64_t head = 0; head < in.q.dim(1); ++head) {
      const float* q = in.q.row<float>(token) + head * dim;
      std::vector<double> weights(entries);
      for (int64_t e = 0; e < entries; ++e) {
        const float* k = past.keys.data() + e * width + head / group * dim;
        for (int64_t i = 0; i < dim; ++i) weights[e] += double{q[i]} * k[i];
        weights[e] *= in.scale;
      }
      const double max = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (int64_t i = 0; i < dim; ++i) {
        double mixed = 0;
        for (int64_t e = 0; e < entries; ++e) {
          mixed += weights[e] * past.values[e * width + head / group * dim + i];
        }
        out.row<float>(token)[head * dim + i] = static_cast<float>(mixed / sum);
      }
    }
  }

  std::vector<Layer> layers_;  // [layer][sequence]
  std::vector<StepSequence> sequences_;
};

}  // namespace serval
