// Names of blocks of 64 tokens by content: the key of a block hashes its tokens, all blocks before
// it, and the request's cache salt, so equal keys mean equal pasts. SipHash-2-4 with a 128-bit
// result under a key drawn once per process: nobody outside can aim at a collision and read another
// request's past. Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/memory/bank.h"

namespace serval {

inline constexpr int64_t kBlockTokens = 64;

// Extends `keys` (of the first keys.size() blocks of `tokens`) up to `blocks` blocks. REQUIRES:
// tokens.size() >= 64 * blocks.
void ExtendBlockKeys(std::span<const int32_t> tokens, uint64_t salt, int64_t blocks,
                     std::vector<BlockKey>& keys);

// How many leading blocks of a sequence may be taken from the cache: at least one token is always
// left to compute, because its logits are wanted.
inline int64_t ReusableBlocks(int64_t tokens) {
  return tokens <= 0 ? 0 : (tokens - 1) / kBlockTokens;
}

// SipHash-2-4-128 (Aumasson and Bernstein) of whole 64-bit words under the key {k0, k1}.
BlockKey SipHash128(std::span<const uint64_t> words, uint64_t k0, uint64_t k1);

}  // namespace serval
