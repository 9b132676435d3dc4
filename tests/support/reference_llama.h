// The llama decoder in float64, written plainly from the formulas, over the dequantised weights of
// a GGUF file: what the decoder is held to. Slow; for tiny models. Source: Touvron et al. (2023);
// Su et al., RoFormer (2021). Thread rule: const.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/gguf.h"

namespace serval {

class ReferenceLlama {
 public:
  explicit ReferenceLlama(const GgufFile& file);

  // logits[t][v] after each token of one sequence.
  std::vector<std::vector<double>> Logits(std::span<const int32_t> tokens) const;

 private:
  using Row = std::vector<double>;
  struct Matrix {
    int64_t in = 0;
    std::vector<double> values;  // [out, in]
    Row operator*(const Row& x) const;
  };
  struct Layer {
    Row attention_norm, feed_forward_norm;
    Matrix q, k, v, o, gate, up, down;
  };

  static Matrix ReadMatrix(const GgufFile& file, const std::string& name);
  Row Norm(const Row& x, const Row& weight) const;
  void Rotate(Row& x, int64_t position) const;
  Row Attend(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values) const;

  int64_t head_dim_ = 0, heads_ = 0, kv_heads_ = 0, rotary_ = 0;
  double eps_ = 0, rope_base_ = 0, rope_scale_ = 1;
  Row rope_factors_;
  Matrix embedding_, head_;
  Row output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace serval
