// Which pages of a pool are free, held, or kept for reuse under the key of the block they store.
// Ids and counts only: no bytes. A page is free (no key, no holder), held (by one holding or more),
// or cached (a key, no holder): cached pages wait in least-recently-used order and count as free,
// because they are given up when room is needed. Thread rule: the engine thread's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/memory/bank.h"

namespace serval {

class PagePool {
 public:
  explicit PagePool(int32_t pages);

  // Appends `count` page ids, each held once, to `pages`: all or nothing. False = no room.
  bool Take(int64_t count, std::vector<int32_t>& pages);
  // One holder more, one holder fewer. A page without holders becomes cached when it has a key,
  // else free.
  void Hold(int32_t page);
  void Drop(int32_t page);
  int32_t holders(int32_t page) const { return nodes_[page].holders; }

  // The page that stores this block, or -1.
  int32_t Find(const BlockKey& key) const;
  // Makes a held page findable. Ignored when the key already names a page, or the page already has
  // a key.
  void Publish(int32_t page, const BlockKey& key);

  int32_t total() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t available() const { return static_cast<int32_t>(free_.size()) + cached_; }
  int32_t held() const { return held_; }
  int32_t cached() const { return cached_; }

  // Fatal unless every page is exactly one of free, held, cached.
  void CheckConservation() const;

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    BlockKey key;
    int32_t holders = 0;
    bool keyed = false;
    int32_t chain = kNone;                 // next of the same hash bucket
    int32_t older = kNone, newer = kNone;  // neighbours in the cached list
  };

  size_t Bucket(const BlockKey& key) const { return key.lo & (buckets_.size() - 1); }
  void Unlink(int32_t page);  // out of the cached list
  void Forget(int32_t page);  // out of the index

  std::vector<Node> nodes_;
  std::vector<int32_t> free_;     // a stack: pages touched already are taken first
  std::vector<int32_t> buckets_;  // chained through the nodes: publishing allocates nothing
  int32_t oldest_ = kNone, newest_ = kNone;
  int32_t held_ = 0, cached_ = 0;
};

}  // namespace serval
