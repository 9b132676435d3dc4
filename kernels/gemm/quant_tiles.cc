#include <cstring>
#include <limits>

#include "kernels/gemm/tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/quant_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/gemm/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace serval::HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;
using DU8 = hn::Repartition<uint8_t, DF>;
using VI = hn::Vec<DI>;
using VU8 = hn::Vec<DU8>;

// sums[lane] += the four products of lane's bytes of `w` (unsigned, kBits wide) and the four int8
// at x.
template <int kBits>
HWY_INLINE VI Dot(VI sums, VU8 w, const std::byte* x) {
#if HWY_TARGET == HWY_AVX3_DL
  // As asm, because Highway's flags for this target leave out avx512vnni; the broadcast rides on
  // the load.
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sums.raw)
      : "v"(w.raw), "m"(*reinterpret_cast<const int32_t*>(x)));
  return sums;
#else
  const DI di;
  int32_t word;
  std::memcpy(&word, x, 4);
  const VI four = hn::Set(di, word);
#if HWY_TARGET == HWY_AVX2
  if constexpr (kBits == 4) {  // pairs stay below 2 * 15 * 127: 16 bits hold them
    const __m256i pairs = _mm256_maddubs_epi16(w.raw, four.raw);
    return hn::Add(sums, VI{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))});
  }
#endif
  // Even and odd bytes as 16-bit numbers, products of pairs summed in 32 bits: nothing can
  // saturate.
  const hn::Repartition<int16_t, DF> d16;
  const hn::Repartition<uint16_t, DF> du16;
  const auto w16 = hn::BitCast(du16, w);
  const auto x16 = hn::BitCast(d16, four);
  const auto w_even = hn::BitCast(d16, hn::And(w16, hn::Set(du16, 0xFF)));
  const auto w_odd = hn::BitCast(d16, hn::ShiftRight<8>(w16));
  const auto x_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(x16));
  const auto x_odd = hn::ShiftRight<8>(x16);
  VI rest = hn::Zero(di);  // used by targets that have no pairwise product
  sums = hn::ReorderWidenMulAccumulate(di, w_even, x_even, sums, rest);
  sums = hn::ReorderWidenMulAccumulate(di, w_odd, x_odd, sums, rest);
  return hn::Add(sums, rest);
#endif
}

// unpacked[i] holds inputs 4i .. 4i+3 of kLanes outputs, one unsigned byte each.
template <QuantFormat kFormat>
HWY_INLINE void Unpack(const std::byte* quants, VU8* HWY_RESTRICT unpacked) {
  const DU8 du8;
  const auto* bytes = reinterpret_cast<const uint8_t*>(quants);
  if constexpr (kFormat.bits == 8) {
    HWY_UNROLL(8)
    for (int g = 0; g < 8; ++g) unpacked[g] = hn::LoadU(du8, bytes + 64 * g);
  } else {
    const hn::Repartition<uint16_t, DF> du16;
    const VU8 mask = hn::Set(du8, 15);
    HWY_UNROLL(4)
    for (int g = 0; g < 4; ++g) {
      const VU8 both = hn::LoadU(du8, bytes + 64 * g);
      unpacked[g] = hn::And(both, mask);
      unpacked[4 + g] = hn::And(hn::BitCast(du8, hn::ShiftRight<4>(hn::BitCast(du16, both))), mask);
    }
  }
}

HWY_INLINE VF LoadHalves(const std::byte* from) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}

// One block of one row of the tile: sums += w_block . x_block. `x` is the tile's block.
template <QuantFormat kFormat, int kRows>
HWY_INLINE VF AddBlock(VF sums, const VU8* HWY_RESTRICT w, VF scale, VF minimum, const std::byte* x,
                       int row) {
  const DF df;
  const DI di;
  const auto* scales = reinterpret_cast<const float*>(x + kRows * 2 * kBlock);
  const auto* scaled_sums = scales + kRows;
  const auto* negated_sums = reinterpret_cast<const int32_t*>(scaled_sums + kRows);
  VI high = hn::Zero(di);
  VI low = hn::Zero(di);
  if constexpr (!kFormat.has_min) {  // sum((q - zero) * x) = sum(q * x) - zero * sum(x)
    low = hn::ShiftLeft<kFormat.zero_log2>(hn::Set(di, negated_sums[row]));
  }
  x += row * 2 * kBlock;
  HWY_UNROLL(8)
  for (int g = 0; g < 8; ++g) {
    high = Dot<kFormat.bits>(high, w[g], x + 4 * g);
    low = Dot<kFormat.bits>(low, w[g], x + kBlock + 4 * g);
  }
  const VI dot = hn::Add(hn::ShiftLeft<8>(high), low);
  sums = hn::MulAdd(hn::ConvertTo(df, dot), hn::Mul(scale, hn::Set(df, scales[row])), sums);
  if constexpr (kFormat.has_min) {
    sums = hn::MulAdd(minimum, hn::Set(df, scaled_sums[row]), sums);
  }
  return sums;
}

template <QuantFormat kFormat, int kRows>
void MultiplyQuants(const std::byte* HWY_RESTRICT tile, const std::byte* HWY_RESTRICT panel,
                    int64_t blocks, const TileOut& out) {
  const DF df;
  for (int lane = 0; lane < std::min(kPanelRows, out.columns); lane += kLanes) {
    VF sums[kRows];
    HWY_UNROLL(8)
    for (int row = 0; row < kRows; ++row) sums[row] = hn::Zero(df);
    const std::byte* w = panel;
    const std::byte* x = tile;
    for (int64_t block = 0; block < blocks; ++block) {
      for (int line = 0; line < kFormat.block_bytes(); line += 64) {
        __builtin_prefetch(w + kPrefetchBytes + line);
      }
      VU8 unpacked[8];
      Unpack<kFormat>(w + kFormat.scale_bytes() + 4 * lane, unpacked);
      const VF scale = LoadHalves(w + 2 * lane);
      const VF minimum = kFormat.has_min ? LoadHalves(w + 2 * (kPanelRows + lane)) : hn::Zero(df);
      HWY_UNROLL(8)
      for (int row = 0; row < kRows; ++row) {
        sums[row] = AddBlock<kFormat, kRows>(sums[row], unpacked, scale, minimum, x, row);
      }
      w += kFormat.block_bytes();
      x += kRows * kTileRowBlockBytes;
    }
    HWY_UNROLL(8)
    for (int row = 0; row < kRows; ++row) StoreSums(sums[row], out, row, lane);
  }
}

// 127 * 256: its high byte is 127, so no low byte can carry it over.
constexpr float kLargestQuant = 32512.0f;

struct QuantisedBlock {
  float scale;
  int32_t sum;
};

// 32 floats to 16-bit integers by their largest magnitude / 32512, as bytes: the high ones, then
// the low ones, x = 256 high + low with both signed. What is not finite makes the scale NaN, so
// that it reaches the output.
HWY_INLINE QuantisedBlock QuantiseBlock(const float* HWY_RESTRICT x, int8_t* HWY_RESTRICT to) {
  const DF df;
  const DI di;
  const hn::Rebind<int8_t, DF> d8;
  VF largest = hn::Zero(df);
  VF total = hn::Zero(df);
  for (int i = 0; i < kBlock; i += kLanes) {
    const VF values = hn::LoadU(df, x + i);
    largest = hn::Max(hn::Abs(values), largest);
    total = hn::Add(total, hn::Sub(values, values));  // 0, or NaN
  }
  const float amax = hn::GetLane(hn::MaxOfLanes(df, largest));
  if (!hn::AllFalse(df, hn::IsNaN(total))) {
    std::memset(to, 0, 2 * kBlock);
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  // Below 1e-30 the quotient could overflow; such a block is zero.
  const VF inverse = hn::Set(df, amax > 1e-30f ? kLargestQuant / amax : 0.0f);
  VI sum = hn::Zero(di);
  for (int i = 0; i < kBlock; i += kLanes) {
    const VI quants = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse));
    sum = hn::Add(sum, quants);
    const VI high = hn::ShiftRight<8>(hn::Add(quants, hn::Set(di, 128)));
    hn::StoreU(hn::DemoteTo(d8, high), d8, to + i);
    hn::StoreU(hn::DemoteTo(d8, hn::Sub(quants, hn::ShiftLeft<8>(high))), d8, to + kBlock + i);
  }
  return {amax / kLargestQuant, hn::GetLane(hn::SumOfLanes(di, sum))};
}

void QuantiseTile(const float* x, int64_t x_stride, int rows, int64_t in, std::byte* tile) {
  for (int64_t block = 0; block < in / kBlock; ++block, tile += rows * kTileRowBlockBytes) {
    auto* quants = reinterpret_cast<int8_t*>(tile);
    auto* scales = reinterpret_cast<float*>(tile + rows * 2 * kBlock);
    auto* negated_sums = reinterpret_cast<int32_t*>(scales + 2 * rows);
    for (int row = 0; row < rows; ++row) {
      const auto [scale, sum] =
          QuantiseBlock(x + row * x_stride + block * kBlock, quants + row * 2 * kBlock);
      scales[row] = scale;
      scales[rows + row] = scale * static_cast<float>(sum);
      negated_sums[row] = -sum;
    }
  }
}

template <QuantFormat kFormat>
constexpr QuantTiles::ByRows TilesOf() {
  QuantTiles::ByRows tiles{MultiplyQuants<kFormat, 1>, MultiplyQuants<kFormat, 2>,
                           MultiplyQuants<kFormat, 3>, MultiplyQuants<kFormat, 4>};
  if constexpr (kTileRows == 8) {
    tiles[4] = MultiplyQuants<kFormat, 5>;
    tiles[5] = MultiplyQuants<kFormat, 6>;
    tiles[6] = MultiplyQuants<kFormat, 7>;
    tiles[7] = MultiplyQuants<kFormat, 8>;
  }
  return tiles;
}

const QuantTiles& QuantTable() {
  static constexpr QuantTiles kTiles{kTileRows, QuantiseTile, TilesOf<kQ4_0Format>(),
                                     TilesOf<kQ4_1Format>(), TilesOf<kQ8_0Format>()};
  return kTiles;
}

}  // namespace serval::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(QuantTable);
const QuantTiles& BestQuantTiles() { return HWY_DYNAMIC_DISPATCH(QuantTable)(); }

}  // namespace serval
#endif
