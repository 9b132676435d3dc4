#include <algorithm>

#include "kernels/paged/pages.h"
#include "kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/paged/append.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Round to nearest even, as F32ToBF16 does, in a form that vectorises.
void Narrow(const float* in, int64_t count, hwy::bfloat16_t* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const int64_t n = hn::Lanes(d);
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    const auto x = hn::LoadU(d, in + i);
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));  // a NaN stays one
    const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
    hn::StoreU(hn::TruncateTo(dh, hn::ShiftRight<16>(chosen)), dh,
               reinterpret_cast<uint16_t*>(out + i));
  }
  for (; i < count; ++i) out[i].bits = F32ToBF16(in[i]);
}

void Narrow(const float* in, int64_t count, hwy::float16_t* out) {
  int64_t i = 0;
#if HWY_MAX_BYTES >= 32
  // The conversion instruction rounds to nearest even; its emulation below AVX2 does not promise
  // to.
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const int64_t n = hn::Lanes(d);
  for (; i + n <= count; i += n) hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, in + i)), dh, out + i);
#endif
  for (; i < count; ++i) out[i].bits = F32ToF16(in[i]);
}

void Narrow(const float* in, int64_t count, float* out) { std::copy_n(in, count, out); }

template <class T>
void AppendToken(const PagedAppend& op, int64_t token, int64_t page, int64_t entry) {
  const int64_t kv_heads = op.k.dim(1), head_dim = op.k.dim(2);
  for (int64_t h = 0; h < kv_heads; ++h) {
    T* slot = op.pool.as<T>() + (page * kv_heads + h) * 2 * kPageTokens * head_dim;
    Narrow(op.k.row<float>(token) + h * op.k.stride[1], head_dim, slot + entry * head_dim);
    Narrow(op.v.row<float>(token) + h * op.v.stride[1], head_dim,
           slot + (kPageTokens + entry) * head_dim);
  }
}

void AppendTokens(const PagedAppend& op, int64_t begin, int64_t end) {
  const int32_t* query_begin = op.table.query_begin.as<int32_t>();
  int64_t seq = 0;
  for (int64_t token = begin; token < end; ++token) {
    while (query_begin[seq + 1] <= token) ++seq;
    const int64_t position = op.table.past.as<int32_t>()[seq] + token - query_begin[seq];
    const int64_t page = op.table.pages.row<int32_t>(seq)[position / kPageTokens];
    const int64_t entry = position % kPageTokens;
    switch (op.pool.dtype) {
      case DType::kF32:
        AppendToken<float>(op, token, page, entry);
        break;
      case DType::kF16:
        AppendToken<hwy::float16_t>(op, token, page, entry);
        break;
      default:
        AppendToken<hwy::bfloat16_t>(op, token, page, entry);
        break;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(AppendTokens);

void Validate(const PagedAppend& op) {
  SERVAL_CHECK_EQ(op.k.rank, 3);
  const int64_t tokens = op.k.dim(0), kv_heads = op.k.dim(1), head_dim = op.k.dim(2);
  CheckShape("PagedAppend.k", op.k, DType::kF32, {tokens, kv_heads, head_dim});
  CheckShape("PagedAppend.v", op.v, DType::kF32, {tokens, kv_heads, head_dim});
  ValidatePages("PagedAppend", op.pool, op.table, kv_heads, head_dim);
}

void RunOnCpu(const Ctx& ctx, const PagedAppend& op) {
  CheckTable(op.table, op.k.dim(0));
  ForRows(ctx, op.k.dim(0), op.k.dim(1) * op.k.dim(2), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AppendTokens)(op, begin, end);
  });
}

}  // namespace serval
#endif  // HWY_ONCE
