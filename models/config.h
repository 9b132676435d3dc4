// A decoder's shape, read from GGUF metadata and checked. Families that share the decoder are rows
// of one table. Thread rule: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/rope/rope.h"
#include "models/gguf.h"

namespace serval {

// What one architecture does otherwise than the next. Its metadata keys begin with its name and a
// dot.
struct Family {
  std::string_view architecture;  // general.architecture
  RopeLayout rope_layout;
};

struct ModelConfig {
  const Family* family = nullptr;
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t context = 0;  // trained context length, tokens
  int layers = 0;
  int q_heads = 0;
  int kv_heads = 0;  // divides q_heads
  int head_dim = 0;
  int64_t feed_forward = 0;
  float rms_eps = 1e-5f;
  std::vector<float> inv_freq;  // [rotary_dim / 2] radians a token, all scaling applied

  int64_t q_dim() const { return int64_t{q_heads} * head_dim; }
  int64_t kv_dim() const { return int64_t{kv_heads} * head_dim; }
};

// Errors: INVALID_ARGUMENT (which key, expected, found; an unknown architecture names the known
// ones).
absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& file);

}  // namespace serval
