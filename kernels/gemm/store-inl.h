// Writing a tile's sums, for each SIMD target. Included inside foreach_target passes.
#if defined(SERVAL_KERNELS_GEMM_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERVAL_KERNELS_GEMM_STORE_INL_H_
#undef SERVAL_KERNELS_GEMM_STORE_INL_H_
#else
#define SERVAL_KERNELS_GEMM_STORE_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/gemm/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace serval::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most one panel wide; narrower vectors go over the panel in several passes.
using DF = hn::CappedTag<float, kPanelRows>;
using VF = hn::Vec<DF>;
inline constexpr int kLanes = HWY_LANES(float) < kPanelRows ? HWY_LANES(float) : kPanelRows;
// Eight sums beside the unpacked block need 32 registers; four fit into 16.
inline constexpr int kTileRows = kLanes == kPanelRows ? 8 : 4;

// Columns [lane, lane + kLanes) of one row of y.
HWY_INLINE void StoreSums(VF sums, const TileOut& out, int row, int lane) {
  const DF df;
  float* y = out.y + row * out.stride + lane;
  const int columns = std::min(kLanes, out.columns - lane);
  if (columns == kLanes) {
    hn::StoreU(out.accumulate ? hn::Add(hn::LoadU(df, y), sums) : sums, df, y);
    return;
  }
  HWY_ALIGN float values[kLanes];
  hn::Store(sums, df, values);
  for (int i = 0; i < columns; ++i) y[i] = out.accumulate ? y[i] + values[i] : values[i];
}

}  // namespace serval::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
