#include "models/bpe_cache.h"

#include <algorithm>
#include <functional>

namespace serval {

BpeCache::BpeCache() : stripes_(std::make_unique<std::array<Stripe, kStripes>>()) {}

bool BpeCache::Find(std::string_view word, std::vector<int32_t>& out) {
  if (word.empty() || word.size() > kLongestWord) return false;
  const size_t hash = std::hash<std::string_view>()(word);
  Stripe& stripe = (*stripes_)[hash % kStripes];
  MutexLock lock(&stripe.mutex);
  const Slot& slot = stripe.slots[hash / kStripes % kSlotsPerStripe];
  if (std::string_view(slot.word.data(), slot.length) != word) return false;
  out.insert(out.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
  return true;
}

void BpeCache::Add(std::string_view word, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > kLongestWord || ids.size() > kMostIds) return;
  const size_t hash = std::hash<std::string_view>()(word);
  Stripe& stripe = (*stripes_)[hash % kStripes];
  MutexLock lock(&stripe.mutex);
  Slot& slot = stripe.slots[hash / kStripes % kSlotsPerStripe];
  slot.length = static_cast<uint8_t>(word.size());
  slot.count = static_cast<uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
}

}  // namespace serval
