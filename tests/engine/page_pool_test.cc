#include "engine/memory/page_pool.h"

#include <gtest/gtest.h>

#include <random>

namespace serval {
namespace {

BlockKey Key(uint64_t n) { return {n, ~n}; }

TEST(PagePool, TakesAllOrNothing) {
  PagePool pool(4);
  std::vector<int32_t> pages;
  EXPECT_TRUE(pool.Take(3, pages));
  EXPECT_EQ(pages, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_FALSE(pool.Take(2, pages));
  EXPECT_EQ(pages.size(), 3u);
  EXPECT_EQ(pool.available(), 1);
  for (const int32_t page : pages) pool.Drop(page);
  EXPECT_EQ(pool.available(), 4);
  pool.CheckConservation();
}

TEST(PagePool, PageIsFreeAfterItsLastHolder) {
  PagePool pool(1);
  std::vector<int32_t> pages;
  ASSERT_TRUE(pool.Take(1, pages));
  pool.Hold(pages[0]);
  EXPECT_EQ(pool.holders(pages[0]), 2);
  pool.Drop(pages[0]);
  EXPECT_EQ(pool.available(), 0);
  pool.Drop(pages[0]);
  EXPECT_EQ(pool.available(), 1);
}

TEST(PagePool, PublishedPagesStayUntilRoomIsNeededOldestFirst) {
  PagePool pool(3);
  std::vector<int32_t> pages;
  ASSERT_TRUE(pool.Take(3, pages));
  for (int i = 0; i < 3; ++i) pool.Publish(pages[i], Key(i));
  for (const int i : {1, 0, 2}) pool.Drop(pages[i]);
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(pool.cached(), 3);
  pool.Hold(pages[1]);  // used again: now the youngest
  pool.Drop(pages[1]);
  std::vector<int32_t> taken;
  ASSERT_TRUE(pool.Take(2, taken));
  EXPECT_EQ(taken, (std::vector<int32_t>{pages[0], pages[2]}));
  EXPECT_EQ(pool.Find(Key(0)), -1);
  EXPECT_EQ(pool.Find(Key(1)), pages[1]);
  EXPECT_EQ(pool.Find(Key(2)), -1);
  pool.CheckConservation();
}

TEST(PagePool, TheFirstPageOfAKeyKeepsIt) {
  PagePool pool(2);
  std::vector<int32_t> pages;
  ASSERT_TRUE(pool.Take(2, pages));
  pool.Publish(pages[0], Key(7));
  pool.Publish(pages[1], Key(7));
  pool.Publish(pages[0], Key(8));
  EXPECT_EQ(pool.Find(Key(7)), pages[0]);
  EXPECT_EQ(pool.Find(Key(8)), -1);
  pool.Drop(pages[1]);
  EXPECT_EQ(pool.cached(), 0);
  pool.Drop(pages[0]);
  EXPECT_EQ(pool.cached(), 1);
}

TEST(PagePool, RandomUseKeepsEveryPageAccountedFor) {
  PagePool pool(37);
  std::mt19937 random(1);
  std::vector<int32_t> held;
  for (int i = 0; i < 20000; ++i) {
    switch (random() % 4) {
      case 0:
        pool.Take(random() % 4, held);
        break;
      case 1:
        if (held.empty()) break;
        std::swap(held[random() % held.size()], held.back());
        pool.Drop(held.back());
        held.pop_back();
        break;
      case 2:
        if (!held.empty()) pool.Publish(held[random() % held.size()], Key(random() % 64));
        break;
      case 3:
        if (const int32_t page = pool.Find(Key(random() % 64)); page >= 0) {
          pool.Hold(page);
          held.push_back(page);
        }
        break;
    }
    if (i % 100 == 0) pool.CheckConservation();
  }
  for (const int32_t page : held) pool.Drop(page);
  EXPECT_EQ(pool.available(), 37);
  EXPECT_EQ(pool.held(), 0);
  pool.CheckConservation();
}

TEST(PagePoolDeathTest, DroppingAFreePageIsFatal) {
  EXPECT_DEATH(
      {
        PagePool pool(2);
        pool.Drop(0);
      },
      "holders > 0");
}

}  // namespace
}  // namespace serval
