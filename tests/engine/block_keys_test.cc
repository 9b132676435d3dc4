#include "engine/memory/block_keys.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace serval {
namespace {

// Values of OpenSSL's SIPHASH with a 16-byte result, key 00 01 … 0f, message 00 01 02 ….
TEST(BlockKeys, SipHashIsTheStandardOne) {
  std::vector<uint64_t> words{0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x1716151413121110};
  const auto hash = [&](size_t count) {
    return SipHash128(std::span(words).first(count), words[0], words[1]);
  };
  EXPECT_EQ(hash(0), (BlockKey{0xe6a825ba047f81a3, 0x930255c71472f66d}));
  EXPECT_EQ(hash(1), (BlockKey{0x61f55862baa9623b, 0xb49714f364e2830f}));
  EXPECT_EQ(hash(2), (BlockKey{0xbb54b067caa4e26e, 0x77052385bf1533fd}));
  EXPECT_EQ(hash(3), (BlockKey{0xd850bd78ae79b42d, 0xad32618a178a2a88}));
}

TEST(BlockKeys, AKeyNamesItsBlockAndAllBefore) {
  std::vector<int32_t> tokens(256);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<BlockKey> keys, grown, salted, changed;
  ExtendBlockKeys(tokens, 0, 4, keys);
  ASSERT_EQ(keys.size(), 4u);
  ExtendBlockKeys(std::span(tokens).first(130), 0, 2, grown);
  ExtendBlockKeys(tokens, 0, 4, grown);
  EXPECT_EQ(grown, keys);
  ExtendBlockKeys(tokens, 1, 4, salted);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(salted[i] == keys[i]);
  tokens[70] = -1;
  ExtendBlockKeys(tokens, 0, 4, changed);
  EXPECT_EQ(changed[0], keys[0]);
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(changed[i] == keys[i]);
}

TEST(BlockKeys, OneTokenIsAlwaysLeftToCompute) {
  EXPECT_EQ(ReusableBlocks(0), 0);
  EXPECT_EQ(ReusableBlocks(64), 0);
  EXPECT_EQ(ReusableBlocks(65), 1);
  EXPECT_EQ(ReusableBlocks(128), 1);
  EXPECT_EQ(ReusableBlocks(129), 2);
}

}  // namespace
}  // namespace serval
