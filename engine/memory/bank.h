// A MemoryBank holds one kind's bytes for all layers of that kind. The host side makes every
// decision, from counts alone; the device side makes none. A Holding is one sequence's share of one
// bank. Thread rule: everything here is the engine thread's; Begin, Mix and End run on ctx (the
// executor), the rest does no device work.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core.h"

namespace serval {

struct StepBatch;

// What one sequence holds in one bank. Plain data, written by its bank only.
struct Holding {
  int64_t tokens = 0;          // committed: their past is stored
  int64_t reserved = 0;        // tokens for which there is room (>= tokens)
  std::vector<int32_t> pages;  // kinds over pages: page ids in token order
  std::vector<int32_t> slots;  // kinds over constant-size states
};

struct Bytes {
  int64_t value = 0;
  friend auto operator<=>(const Bytes&, const Bytes&) = default;
};

// Chained hash of a full block of 64 prompt tokens, its predecessors and the request's cache salt.
struct BlockKey {
  uint64_t lo = 0, hi = 0;
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

struct MixInput {
  TensorView q;  // f32 [tokens, q_heads, head_dim], after RoPE
  TensorView k;  // f32 [tokens, kv_heads, head_dim], after RoPE
  TensorView v;  // f32 [tokens, kv_heads, head_dim]
  float scale = 1.0f;
  int window = 0;  // sliding window of this layer, 0 = none
};

// Where snapshots go and come from (engine thread; may buffer, must not block on the network).
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual absl::Status Write(std::span<const std::byte> bytes) = 0;
};
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual absl::Status Read(std::span<std::byte> bytes) = 0;
};

class MemoryBank {
 public:
  virtual ~MemoryBank() = default;
  virtual std::string_view kind() const = 0;

  // --- engine thread, no device work ---
  // Room for `new_tokens` beyond holding.tokens: all or nothing. False = no room now.
  virtual bool Reserve(Holding& holding, int64_t new_tokens) = 0;
  // The step is done: advance by new_tokens, give back what it replaced. REQUIRES: reserved.
  virtual void Commit(Holding& holding, int64_t new_tokens) = 0;
  // Gives everything back and empties the holding.
  virtual void Release(Holding& holding) = 0;
  // A second holding of the first `tokens` tokens (n > 1): full pages are shared, what will be
  // written on is copied (at the next Begin). Empty optional-like: reserved == -1 when there is no
  // room for the copies.
  virtual Holding Share(const Holding& holding, int64_t tokens) = 0;

  // Prefix reuse. Match: the longest multiple of 64 tokens, at most 64 * keys.size(), whose past is
  // stored under these keys. Adopt: fills an empty holding with exactly `tokens` of it (REQUIRES:
  // tokens <= Match). Publish: makes the full pages of the first 64 * keys.size() committed tokens
  // findable; they stay so after Release until the room is needed.
  virtual int64_t Match(std::span<const BlockKey> keys) const { return 0; }
  virtual void Adopt(Holding& holding, std::span<const BlockKey> keys, int64_t tokens) {}
  virtual void Publish(const Holding& holding, std::span<const BlockKey> keys) {}

  virtual Bytes Used() const = 0;      // held by sequences
  virtual Bytes Free() const = 0;      // available now, evictable prefix pages included
  virtual Bytes Capacity() const = 0;  // the whole pool
  // What a sequence of `tokens` tokens holds at most: admission counts with it.
  virtual Bytes Need(int64_t tokens) const = 0;
  // Fatal unless free + held == total and, with no sequence alive, held == 0. Called whenever the
  // engine runs dry.
  virtual void CheckConservation(bool idle) const = 0;

  // Workspace that Begin, Mix or End takes at most, bytes.
  virtual int64_t WorkspaceBytes(int threads) const { return 0; }

  // --- executor only ---
  virtual void Begin(const Ctx& ctx, const StepBatch& batch) = 0;
  // Stores the step's k, v in `layer` (index within this bank) and mixes: out [tokens, q_heads,
  // head_dim].
  virtual void Mix(const Ctx& ctx, int layer, const MixInput& in, TensorView out) = 0;
  virtual void End(const Ctx& ctx, const StepBatch& batch) = 0;

  // --- engine thread, between steps ---
  virtual absl::Status Save(const Holding& holding, ByteSink& sink) = 0;
  virtual absl::StatusOr<Holding> Load(ByteSource& source) = 0;
};

// A block's whole knowledge of memory.
struct LayerMemory {
  MemoryBank* bank = nullptr;
  int layer = 0;  // index within the bank
};

}  // namespace serval
