#include <gtest/gtest.h>

#include <bit>

#include "tests/kernels/paged_cache.h"

namespace serval::testing {
namespace {

float Narrowed(float x, DType dtype) {
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(x));
  if (dtype == DType::kBF16) return BF16ToF32(F32ToBF16(x));
  return x;
}

TEST(PagedAppend, PutsEveryTokenInItsPlaceRoundedToTheType) {
  TestCtx test;
  ForEachTarget([&](const char* target) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int dim : {8, 20, 64}) {
        PagedCache cache({3, 3, dim}, {1, 63, 65, 130}, dtype);
        cache.Step(test.ctx, {{0, 0, 1}, {1, 0, 60}, {3, 0, 129}});
        cache.Step(test.ctx, {{1, 60, 3}, {2, 0, 65}, {3, 129, 1}});
        for (int s = 0; s < 4; ++s) {
          for (int64_t i = 0; i < static_cast<int64_t>(cache.keys(s).size()); ++i) {
            const int position = i / (3 * dim), head = i / dim % 3, element = i % dim;
            ASSERT_EQ(cache.Stored(s, position, head, 0, element),
                      Narrowed(cache.keys(s)[i], dtype))
                << target << Name(dtype) << " seq " << s << " position " << position;
            ASSERT_EQ(cache.Stored(s, position, head, 1, element),
                      Narrowed(cache.values(s)[i], dtype));
          }
        }
      }
    }
  });
}

TEST(PagedAppend, RoundsToNearestEvenAndKeepsSpecialValues) {
  TestCtx test;
  // Ties of both types, overflow of f16, subnormals, infinities.
  std::vector<float> values = {1.00390625f, 1.01171875f, 1.00048828125f, 1.00146484375f,
                               65520.0f,    1e-7f,       1e-40f,         -0.0f};
  values.insert(values.end(),
                {INFINITY, -INFINITY, 3.3e38f, -65519.0f, 5.9e-8f, 0.1f, 7.0f, 2e-45f});
  const int dim = 16;
  std::vector<int32_t> pages = {0}, begin = {0, 1}, past = {0};
  ForEachTarget([&](const char* target) {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      std::vector<uint16_t> pool(2 * kPageTokens * dim);
      PagedAppend op;
      op.k = op.v = TensorView(values.data(), DType::kF32, {1, 1, dim});
      op.pool = TensorView(pool.data(), dtype, {1, 2, kPageTokens, dim});
      op.table.pages = TensorView(pages.data(), DType::kI32, {1, 1});
      op.table.query_begin = TensorView(begin.data(), DType::kI32, {2});
      op.table.past = TensorView(past.data(), DType::kI32, {1});
      serval::Run(test.ctx, op);
      for (int i = 0; i < dim; ++i) {
        EXPECT_EQ(pool[i], dtype == DType::kF16 ? F32ToF16(values[i]) : F32ToBF16(values[i]))
            << target << Name(dtype) << " of " << values[i];
      }
      values[3] = std::bit_cast<float>(0x7F800001u);  // a NaN whose high bits say infinity
      serval::Run(test.ctx, op);
      EXPECT_TRUE(std::isnan(dtype == DType::kF16 ? F16ToF32(pool[3]) : BF16ToF32(pool[3])));
      values[3] = 1.00146484375f;
    }
  });
}

}  // namespace
}  // namespace serval::testing
