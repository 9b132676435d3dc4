#include "kernels/paged/pages.h"

namespace serval {

void ValidatePages(const char* op, const TensorView& pool, const PageTable& table, int64_t kv_heads,
                   int64_t head_dim) {
  SERVAL_CHECK(pool.dtype == DType::kF32 || pool.dtype == DType::kF16 || pool.dtype == DType::kBF16,
               "a pool is f32, f16 or bf16");
  CheckShape(op, "pool", pool, pool.dtype, {pool.dim(0), 2, kPageTokens, head_dim});
  SERVAL_CHECK(pool.dense());
  SERVAL_CHECK_EQ(pool.dim(0) % kv_heads, 0);
  SERVAL_CHECK_EQ(table.past.rank, 1);
  const int64_t seqs = table.past.dim(0);
  CheckShape(op, "table.past", table.past, DType::kI32, {seqs});
  CheckShape(op, "table.query_begin", table.query_begin, DType::kI32, {seqs + 1});
  CheckShape(op, "table.pages", table.pages, DType::kI32, {seqs, table.pages.dim(1)});
}

void CheckTable(const PageTable& table, int64_t tokens) {
  const int64_t seqs = table.past.dim(0);
  const int32_t* begin = table.query_begin.as<int32_t>();
  SERVAL_CHECK_EQ(begin[0], 0);
  SERVAL_CHECK_EQ(begin[seqs], tokens);
  for (int64_t s = 0; s < seqs; ++s) {
    const int64_t past = table.past.as<int32_t>()[s], queries = begin[s + 1] - begin[s];
    SERVAL_CHECK_GE(queries, 0);
    SERVAL_CHECK_GE(past, 0);
    if (queries > 0) SERVAL_CHECK_LT((past + queries - 1) / kPageTokens, table.pages.dim(1));
  }
}

}  // namespace serval
