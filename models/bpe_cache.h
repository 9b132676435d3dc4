// Words already merged: a fixed-size, direct-mapped table from the bytes of a short word to its
// token ids. A new word takes the place of the one that hashed to the same slot, so the table never
// grows. Thread rule: any thread; slots are locked in stripes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/mutex.h"

namespace serval {

class BpeCache {
 public:
  BpeCache();

  // Appends the ids of `word` to `out`; false when the word is not known.
  bool Find(std::string_view word, std::vector<int32_t>& out);
  void Add(std::string_view word, std::span<const int32_t> ids);

 private:
  static constexpr size_t kLongestWord = 30;
  static constexpr size_t kMostIds = 8;
  static constexpr size_t kStripes = 64;
  static constexpr size_t kSlotsPerStripe = 256;

  struct Slot {          // one cache line
    uint8_t length = 0;  // 0 = empty
    uint8_t count = 0;
    std::array<char, kLongestWord> word;
    std::array<int32_t, kMostIds> ids;
  };
  struct Stripe {
    Mutex mutex;
    std::array<Slot, kSlotsPerStripe> slots SERVAL_GUARDED_BY(mutex);
  };

  std::unique_ptr<std::array<Stripe, kStripes>> stripes_;
};

}  // namespace serval
