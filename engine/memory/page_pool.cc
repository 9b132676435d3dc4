#include "engine/memory/page_pool.h"

#include <bit>

#include "kernels/check.h"

namespace serval {

PagePool::PagePool(int32_t pages) : nodes_(pages) {
  free_.reserve(pages);
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
  buckets_.assign(std::bit_ceil(static_cast<size_t>(pages) + 1), kNone);
}

bool PagePool::Take(int64_t count, std::vector<int32_t>& pages) {
  if (count > available()) return false;
  for (int64_t i = 0; i < count; ++i) {
    int32_t page;
    if (!free_.empty()) {
      page = free_.back();
      free_.pop_back();
    } else {
      page = oldest_;
      Unlink(page);
      Forget(page);
    }
    nodes_[page].holders = 1;
    ++held_;
    pages.push_back(page);
  }
  return true;
}

void PagePool::Hold(int32_t page) {
  Node& node = nodes_[page];
  if (node.holders == 0) {
    SERVAL_CHECK(node.keyed, "a free page cannot be shared");
    Unlink(page);
    ++held_;
  }
  ++node.holders;
}

void PagePool::Drop(int32_t page) {
  Node& node = nodes_[page];
  SERVAL_CHECK_GT(node.holders, 0);
  if (--node.holders > 0) return;
  --held_;
  if (!node.keyed) {
    free_.push_back(page);
    return;
  }
  node.older = newest_;
  node.newer = kNone;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = page;
  newest_ = page;
  ++cached_;
}

int32_t PagePool::Find(const BlockKey& key) const {
  int32_t page = buckets_[Bucket(key)];
  while (page != kNone && !(nodes_[page].key == key)) page = nodes_[page].chain;
  return page;
}

void PagePool::Publish(int32_t page, const BlockKey& key) {
  Node& node = nodes_[page];
  SERVAL_CHECK_GT(node.holders, 0);
  if (node.keyed || Find(key) != kNone) return;
  node.key = key;
  node.keyed = true;
  node.chain = buckets_[Bucket(key)];
  buckets_[Bucket(key)] = page;
}

void PagePool::Unlink(int32_t page) {
  Node& node = nodes_[page];
  (node.older == kNone ? oldest_ : nodes_[node.older].newer) = node.newer;
  (node.newer == kNone ? newest_ : nodes_[node.newer].older) = node.older;
  node.older = node.newer = kNone;
  --cached_;
}

void PagePool::Forget(int32_t page) {
  int32_t* link = &buckets_[Bucket(nodes_[page].key)];
  while (*link != page) link = &nodes_[*link].chain;
  *link = nodes_[page].chain;
  nodes_[page].chain = kNone;
  nodes_[page].keyed = false;
}

void PagePool::CheckConservation() const {
  int32_t held = 0, cached = 0;
  for (const Node& node : nodes_) {
    held += node.holders > 0;
    cached += node.holders == 0 && node.keyed;
  }
  SERVAL_CHECK_EQ(held, held_);
  SERVAL_CHECK_EQ(cached, cached_);
  SERVAL_CHECK_EQ(held + cached + static_cast<int32_t>(free_.size()), total());
  int32_t listed = 0;
  for (int32_t page = oldest_; page != kNone; page = nodes_[page].newer) ++listed;
  SERVAL_CHECK_EQ(listed, cached_);
}

}  // namespace serval
