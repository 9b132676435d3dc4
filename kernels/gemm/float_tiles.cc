#include "kernels/gemm/tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/float_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/gemm/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace serval::HWY_NAMESPACE {

template <class T>
HWY_INLINE VF LoadWeights(const T* from) {
  const DF df;
  if constexpr (std::is_same_v<T, float>) {
    return hn::LoadU(df, from);
  } else {
    return hn::PromoteTo(df, hn::LoadU(hn::Rebind<T, DF>(), from));
  }
}

template <class T, int kRows>
void MultiplyFloats(const float* HWY_RESTRICT x, int64_t x_stride, const std::byte* panel,
                    int64_t in, const TileOut& out) {
  const DF df;
  for (int lane = 0; lane < std::min(kPanelRows, out.columns); lane += kLanes) {
    const T* HWY_RESTRICT weights = reinterpret_cast<const T*>(panel) + lane;
    VF sums[kRows];
    HWY_UNROLL(8)
    for (int row = 0; row < kRows; ++row) sums[row] = hn::Zero(df);
    // Block by block: a rounding error grows with the length of its chain of additions.
    for (int64_t begin = 0; begin < in; begin += kBlock) {
      VF block[kRows];
      HWY_UNROLL(8)
      for (int row = 0; row < kRows; ++row) block[row] = hn::Zero(df);
      const int64_t end = std::min<int64_t>(begin + kBlock, in);
      for (int64_t i = begin; i < end; ++i, weights += kPanelRows) {
        __builtin_prefetch(reinterpret_cast<const std::byte*>(weights) + kPrefetchBytes);
        const VF w = LoadWeights(weights);
        HWY_UNROLL(8)
        for (int row = 0; row < kRows; ++row) {
          block[row] = hn::MulAdd(hn::Set(df, x[row * x_stride + i]), w, block[row]);
        }
      }
      HWY_UNROLL(8)
      for (int row = 0; row < kRows; ++row) sums[row] = hn::Add(sums[row], block[row]);
    }
    HWY_UNROLL(8)
    for (int row = 0; row < kRows; ++row) StoreSums(sums[row], out, row, lane);
  }
}

template <class T>
constexpr FloatTiles::ByRows TilesOf() {
  FloatTiles::ByRows tiles{MultiplyFloats<T, 1>, MultiplyFloats<T, 2>, MultiplyFloats<T, 3>,
                           MultiplyFloats<T, 4>};
  if constexpr (kTileRows == 8) {
    tiles[4] = MultiplyFloats<T, 5>;
    tiles[5] = MultiplyFloats<T, 6>;
    tiles[6] = MultiplyFloats<T, 7>;
    tiles[7] = MultiplyFloats<T, 8>;
  }
  return tiles;
}

const FloatTiles& FloatTable() {
  static constexpr FloatTiles kTiles{kTileRows, TilesOf<float>(), TilesOf<hwy::float16_t>(),
                                     TilesOf<hwy::bfloat16_t>()};
  return kTiles;
}

}  // namespace serval::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(FloatTable);
const FloatTiles& BestFloatTiles() { return HWY_DYNAMIC_DISPATCH(FloatTable)(); }

}  // namespace serval
#endif
