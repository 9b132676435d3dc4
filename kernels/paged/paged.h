// Exact softmax attention over pages, and the append that fills them.
// A page holds 64 tokens of one layer: kv_heads slots, slot h of page p has index p * kv_heads + h
// in the layer's pool. A slot is K [64, head_dim] followed by V [64, head_dim] in the pool's dtype.
// Source: mechanisms section 1: split state {acc, max, den}, merged in order of fixed splits of
// kSplitEntries keys, so that a query's result does not depend on how many queries or sequences
// share the step.
#pragma once

#include "kernels/core.h"

namespace serval {

inline constexpr int kPageTokens = 64;
inline constexpr int kSplitEntries = 512;

// Which entries each sequence of the step sees. All i32.
struct PageTable {
  TensorView pages;        // [seqs, max_pages]; row s lists the pages of sequence s in order
  TensorView query_begin;  // [seqs + 1]; sequence s has the step's tokens from [s] up to [s + 1]
  TensorView past;         // [seqs]; tokens of sequence s stored before this step
};

struct PagedAppend {
  TensorView k, v;  // f32 [tokens, kv_heads, head_dim]
  TensorView pool;  // f32|f16|bf16 [slots, 2, 64, head_dim], output at the tokens' places
  PageTable table;
};

struct PagedAttention {
  TensorView q;     // f32 [tokens, q_heads, head_dim]
  TensorView pool;  // f32|f16|bf16 [slots, 2, 64, head_dim]; holds the step's own tokens already
  PageTable table;  // the i-th token of a sequence sees [max(0, p - window + 1), p], p = past + i
  TensorView out;   // f32 [tokens, q_heads, head_dim], output
  int kv_heads = 1;
  float scale = 1.0f;
  int window = 0;  // 0 = all
};

void Validate(const PagedAppend& op);
void RunOnCpu(const Ctx& ctx, const PagedAppend& op);
void Validate(const PagedAttention& op);
void RunOnCpu(const Ctx& ctx, const PagedAttention& op);
// Worst case over all steps of at most `tokens` queries.
int64_t PagedAttentionWorkspaceBytes(int64_t tokens, int q_heads, int kv_heads, int head_dim,
                                     int64_t max_context, int threads);

}  // namespace serval
