// Checks of the pool and the page table, shared by the ops that read or write pages.
// Thread rule: pure functions.
#pragma once

#include "kernels/paged/paged.h"

namespace serval {

// Shapes and types; reads no tensor, so it serves every device. `op` names the op in the message.
void ValidatePages(const char* op, const TensorView& pool, const PageTable& table, int64_t kv_heads,
                   int64_t head_dim);
// CPU tables only: that query_begin covers the step's tokens in order and that each sequence lists
// pages enough.
void CheckTable(const PageTable& table, int64_t tokens);

}  // namespace serval
