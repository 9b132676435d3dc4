// A decoder's weights as the kernels want them: matrices in panels, vectors in f32, all in one
// mapping sized at once. Thread rule: const after LoadWeights.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/gemm/weight.h"
#include "kernels/mapping.h"
#include "kernels/thread_pool.h"
#include "models/config.h"
#include "models/gguf.h"

namespace serval {

// Matrices are [out, in].
struct LayerWeights {
  TensorView attention_norm, feed_forward_norm;  // f32 [hidden]
  Weight q;                                      // [q_heads * head_dim, hidden]
  Weight k, v;                                   // [kv_heads * head_dim, hidden]
  Weight o;                                      // [hidden, q_heads * head_dim]
  Weight gate, up;                               // [feed_forward, hidden]
  Weight down;                                   // [hidden, feed_forward]
};

struct ModelWeights {
  Weight embedding;        // [vocab, hidden]
  Weight head;             // [vocab, hidden]; the embedding itself when the file ties them
  TensorView output_norm;  // f32 [hidden]
  std::vector<LayerWeights> layers;
  int64_t parameters = 0;
  Mapping memory;  // where they all lie
};

// Checks every tensor against the config, then repacks on all workers of `pool`; the file's pages
// leave resident memory as they are done with. `progress(bytes done, bytes in all)` is called on
// this thread. Errors: INVALID_ARGUMENT (which tensor, expected, found), RESOURCE_EXHAUSTED.
absl::StatusOr<ModelWeights> LoadWeights(const GgufFile& file, const ModelConfig& config,
                                         ThreadPool& pool,
                                         const std::function<void(int64_t, int64_t)>& progress);

}  // namespace serval
