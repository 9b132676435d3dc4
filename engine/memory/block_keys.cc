#include "engine/memory/block_keys.h"

#include <array>
#include <bit>
#include <cstring>
#include <random>

#include "kernels/check.h"

namespace serval {
namespace {

struct SipState {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void Absorb(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
  uint64_t Finish() {
    for (int i = 0; i < 4; ++i) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

std::array<uint64_t, 2> ProcessKey() {
  static const std::array<uint64_t, 2> key = [] {
    std::random_device random;
    const auto word = [&] { return (static_cast<uint64_t>(random()) << 32) | random(); };
    return std::array<uint64_t, 2>{word(), word()};
  }();
  return key;
}

}  // namespace

BlockKey SipHash128(std::span<const uint64_t> words, uint64_t k0, uint64_t k1) {
  SipState state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261,
                 k1 ^ 0x7465646279746573};
  for (const uint64_t word : words) state.Absorb(word);
  state.Absorb((words.size() * 8) << 56);
  BlockKey key;
  state.v2 ^= 0xee;
  key.lo = state.Finish();
  state.v1 ^= 0xdd;
  key.hi = state.Finish();
  return key;
}

void ExtendBlockKeys(std::span<const int32_t> tokens, uint64_t salt, int64_t blocks,
                     std::vector<BlockKey>& keys) {
  SERVAL_CHECK_LE(blocks * kBlockTokens, static_cast<int64_t>(tokens.size()));
  const auto [k0, k1] = ProcessKey();
  std::array<uint64_t, 2 + kBlockTokens / 2> words;
  while (static_cast<int64_t>(keys.size()) < blocks) {
    // The first block's predecessor is the salt; a chain hash never has this form but by a 2^-64
    // accident.
    words[0] = keys.empty() ? salt : keys.back().lo;
    words[1] = keys.empty() ? 0 : keys.back().hi;
    std::memcpy(&words[2], tokens.data() + keys.size() * kBlockTokens,
                kBlockTokens * sizeof(int32_t));
    keys.push_back(SipHash128(words, k0, k1));
  }
}

}  // namespace serval
