#include "kernels/sample/scan.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sample/scan.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace serval {
namespace HWY_NAMESPACE {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

float RowMax(const float* logits, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  auto max = hn::Set(d, kMinusInf);
  auto nan = hn::Zero(d);
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    const auto x = hn::LoadU(d, logits + i);
    max = hn::Max(max, x);
    nan = hn::Or(nan, hn::VecFromMask(d, hn::IsNaN(x)));
  }
  float top = hn::GetLane(hn::MaxOfLanes(d, max));
  bool bad = !hn::AllFalse(d, hn::MaskFromVec(nan));
  for (; i < count; ++i) {
    top = std::max(top, logits[i]);
    bad |= logits[i] != logits[i];
  }
  return bad ? std::numeric_limits<float>::quiet_NaN() : top;
}

int64_t FirstEqual(const float* logits, int64_t count, float value) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  const auto wanted = hn::Set(d, value);
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    const int64_t at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, logits + i), wanted));
    if (at >= 0) return i + at;
  }
  while (i < count && logits[i] != value) ++i;
  return i;
}

int64_t CountBefore(const float* logits, int64_t count, int64_t id) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  const float value = logits[id];
  const auto mine = hn::Set(d, value);
  int64_t before = 0, i = 0;
  for (; i + n <= id; i += n) before += hn::CountTrue(d, hn::Ge(hn::LoadU(d, logits + i), mine));
  for (; i < id; ++i) before += logits[i] >= value;
  for (; i + n <= count; i += n) before += hn::CountTrue(d, hn::Gt(hn::LoadU(d, logits + i), mine));
  for (; i < count; ++i) before += logits[i] > value;
  return before;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Weights(D d, V logits, float max, float inv_temperature) {
  return Exp(d, hn::Mul(hn::Sub(logits, hn::Set(d, max)), hn::Set(d, inv_temperature)));
}

float Weight(float logit, float max, float inv_temperature) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(Weights(d, hn::Set(d, logit), max, inv_temperature));
}

double SumExp(const float* logits, int64_t count, float max, float inv_temperature,
              double* blocks) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kSumBlock) {
    const int64_t end = std::min(count, begin + kSumBlock);
    auto a = hn::Zero(d), b = a;
    int64_t i = begin;
    for (; i + 2 * n <= end; i += 2 * n) {
      a = hn::Add(a, Weights(d, hn::LoadU(d, logits + i), max, inv_temperature));
      b = hn::Add(b, Weights(d, hn::LoadU(d, logits + i + n), max, inv_temperature));
    }
    double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
    for (; i < end; ++i) sum += Weight(logits[i], max, inv_temperature);
    if (blocks != nullptr) blocks[begin / kSumBlock] = sum;
    total += sum;
  }
  return total;
}

int64_t CollectCandidates(const float* logits, int64_t count, float threshold, uint64_t* keys) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  const float least = std::max(threshold, std::numeric_limits<float>::lowest());
  const auto bound = hn::Set(d, least);
  int64_t found = 0, i = 0;
  const auto take = [&](int64_t id) {  // no branch: found <= id, so the slot exists either way
    keys[found] = CandidateKey(logits[id], static_cast<uint32_t>(id));
    found += logits[id] >= least;
  };
  for (; i + n <= count; i += n) {  // most vectors hold none
    if (hn::AllFalse(d, hn::Ge(hn::LoadU(d, logits + i), bound))) continue;
    for (int64_t id = i; id < i + n; ++id) take(id);
  }
  for (; i < count; ++i) take(i);
  return found;
}

double CandidateWeights(const uint64_t* keys, int64_t count, float max, float inv_temperature,
                        float* weights) {
  const hn::ScalableTag<float> d;
  const int64_t n = hn::Lanes(d);
  for (int64_t i = 0; i < count; ++i) weights[i] = CandidateLogit(keys[i]);
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreU(Weights(d, hn::LoadU(d, weights + i), max, inv_temperature), d, weights + i);
  }
  for (; i < count; ++i) weights[i] = Weight(weights[i], max, inv_temperature);
  double sum = 0;
  for (i = 0; i < count; ++i) sum += weights[i];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace serval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace serval {

HWY_EXPORT(RowMax);
HWY_EXPORT(FirstEqual);
HWY_EXPORT(CountBefore);
HWY_EXPORT(SumExp);
HWY_EXPORT(Weight);
HWY_EXPORT(CollectCandidates);
HWY_EXPORT(CandidateWeights);

float RowMax(const float* logits, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(RowMax)(logits, count);
}
int64_t FirstEqual(const float* logits, int64_t count, float value) {
  return HWY_DYNAMIC_DISPATCH(FirstEqual)(logits, count, value);
}
int64_t CountBefore(const float* logits, int64_t count, int64_t id) {
  return HWY_DYNAMIC_DISPATCH(CountBefore)(logits, count, id);
}
double SumExp(const float* logits, int64_t count, float max, float inv_temperature,
              double* blocks) {
  return HWY_DYNAMIC_DISPATCH(SumExp)(logits, count, max, inv_temperature, blocks);
}
float Weight(float logit, float max, float inv_temperature) {
  return HWY_DYNAMIC_DISPATCH(Weight)(logit, max, inv_temperature);
}
int64_t CollectCandidates(const float* logits, int64_t count, float threshold, uint64_t* keys) {
  return HWY_DYNAMIC_DISPATCH(CollectCandidates)(logits, count, threshold, keys);
}
double CandidateWeights(const uint64_t* keys, int64_t count, float max, float inv_temperature,
                        float* weights) {
  return HWY_DYNAMIC_DISPATCH(CandidateWeights)(keys, count, max, inv_temperature, weights);
}

}  // namespace serval
#endif  // HWY_ONCE
