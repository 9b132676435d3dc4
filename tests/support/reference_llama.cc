#include "tests/support/reference_llama.h"

#include <algorithm>
#include <cmath>

#include "kernels/gemm/weight.h"

namespace serval {
namespace {

void AddTo(std::vector<double>& x, const std::vector<double>& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

ReferenceLlama::Matrix ReferenceLlama::ReadMatrix(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.FindTensor(name);
  SERVAL_CHECK(tensor != nullptr, "no such tensor");
  const int64_t in = tensor->shape[0];
  const int64_t out = tensor->shape.size() > 1 ? tensor->shape[1] : 1;
  const Weight weight{tensor->data, tensor->dtype, WeightLayout::kRows, out, in};
  Matrix matrix{in, {}};
  std::vector<float> row(in);
  for (int64_t i = 0; i < out; ++i) {
    DequantiseRow(weight, i, row.data());
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  return matrix;
}

ReferenceLlama::ReferenceLlama(const GgufFile& file)
    : heads_(*file.Int("llama.attention.head_count")),
      kv_heads_(*file.Int("llama.attention.head_count_kv")),
      rotary_(*file.Int("llama.rope.dimension_count")),
      eps_(*file.Float("llama.attention.layer_norm_rms_epsilon")),
      rope_base_(*file.Float("llama.rope.freq_base")) {
  if (file.Find("llama.rope.scaling.factor"))
    rope_scale_ = *file.Float("llama.rope.scaling.factor");
  rope_factors_.assign(rotary_ / 2, 1.0);
  if (file.FindTensor("rope_freqs.weight")) {
    rope_factors_ = ReadMatrix(file, "rope_freqs.weight").values;
  }
  embedding_ = ReadMatrix(file, "token_embd.weight");
  head_ = file.FindTensor("output.weight") ? ReadMatrix(file, "output.weight") : embedding_;
  output_norm_ = ReadMatrix(file, "output_norm.weight").values;
  for (int64_t i = 0; i < *file.Int("llama.block_count"); ++i) {
    const auto read = [&](const std::string& name) {
      return ReadMatrix(file, "blk." + std::to_string(i) + "." + name + ".weight");
    };
    layers_.push_back({read("attn_norm").values, read("ffn_norm").values, read("attn_q"),
                       read("attn_k"), read("attn_v"), read("attn_output"), read("ffn_gate"),
                       read("ffn_up"), read("ffn_down")});
  }
  head_dim_ = static_cast<int64_t>(layers_[0].o.in) / heads_;
}

ReferenceLlama::Row ReferenceLlama::Matrix::operator*(const Row& x) const {
  Row y(values.size() / in);
  for (size_t row = 0; row < y.size(); ++row) {
    for (int64_t i = 0; i < in; ++i) y[row] += values[row * in + i] * x[i];
  }
  return y;
}

ReferenceLlama::Row ReferenceLlama::Norm(const Row& x, const Row& weight) const {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps_);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

// Every head of x: neighbouring pairs turn by position * base^(-2 pair / rotary).
void ReferenceLlama::Rotate(Row& x, int64_t position) const {
  for (size_t head = 0; head < x.size(); head += head_dim_) {
    for (int64_t pair = 0; pair < rotary_ / 2; ++pair) {
      const double frequency =
          std::pow(rope_base_, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_)) /
          rope_factors_[pair] / rope_scale_;
      const double angle = static_cast<double>(position) * frequency;
      double& a = x[head + 2 * pair];
      double& b = x[head + 2 * pair + 1];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }
}

ReferenceLlama::Row ReferenceLlama::Attend(const Row& q, const std::vector<Row>& keys,
                                           const std::vector<Row>& values) const {
  Row out(q.size());
  for (int64_t head = 0; head < heads_; ++head) {
    const int64_t from = head * head_dim_, kv = head / (heads_ / kv_heads_) * head_dim_;
    Row scores(keys.size());
    for (size_t t = 0; t < keys.size(); ++t) {
      for (int64_t i = 0; i < head_dim_; ++i) scores[t] += q[from + i] * keys[t][kv + i];
      scores[t] /= std::sqrt(static_cast<double>(head_dim_));
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - max);
    for (size_t t = 0; t < keys.size(); ++t) {
      for (int64_t i = 0; i < head_dim_; ++i) out[from + i] += scores[t] / sum * values[t][kv + i];
    }
  }
  return out;
}

std::vector<std::vector<double>> ReferenceLlama::Logits(std::span<const int32_t> tokens) const {
  std::vector<Row> xs;
  for (const int32_t token : tokens) {
    const auto row = embedding_.values.begin() + token * embedding_.in;
    xs.emplace_back(row, row + embedding_.in);
  }
  for (const Layer& layer : layers_) {
    std::vector<Row> keys, values;
    for (size_t t = 0; t < xs.size(); ++t) {
      Row& x = xs[t];
      const Row normed = Norm(x, layer.attention_norm);
      Row q = layer.q * normed;
      Row k = layer.k * normed;
      Rotate(q, static_cast<int64_t>(t));
      Rotate(k, static_cast<int64_t>(t));
      keys.push_back(k);
      values.push_back(layer.v * normed);
      AddTo(x, layer.o * Attend(q, keys, values));
      const Row inner = Norm(x, layer.feed_forward_norm);
      Row gated = layer.gate * inner;
      const Row up = layer.up * inner;
      for (size_t i = 0; i < up.size(); ++i)
        gated[i] = gated[i] / (1 + std::exp(-gated[i])) * up[i];
      AddTo(x, layer.down * gated);
    }
  }
  std::vector<Row> logits;
  for (const Row& x : xs) logits.push_back(head_ * Norm(x, output_norm_));
  return logits;
}

}  // namespace serval
