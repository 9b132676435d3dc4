// Exact keys and values in pages of 64 tokens. One page id spans all layers of the bank: in layer
// l's pool, page p is the slots p * kv_heads .. p * kv_heads + kv_heads - 1. Full pages are shared
// between sequences; a page that will be written on has one holder, so Share copies the last,
// partly filled one (at the next Begin, which is before anything is written). Thread rule:
// MemoryBank's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/memory/bank.h"
#include "engine/memory/bank_config.h"
#include "engine/memory/page_pool.h"
#include "kernels/mapping.h"
#include "kernels/paged/paged.h"

namespace serval {

class PagedBank final : public MemoryBank {
 public:
  // Errors: INVALID_ARGUMENT (an option: this kind takes none), RESOURCE_EXHAUSTED (no room for one
  // page).
  static absl::StatusOr<std::unique_ptr<MemoryBank>> Make(const BankConfig& config);
  // Bytes of `tokens` tokens in such a bank.
  static int64_t BytesFor(const BankConfig& config, int64_t tokens);

  std::string_view kind() const override { return "paged"; }

  bool Reserve(Holding& holding, int64_t new_tokens) override;
  void Commit(Holding& holding, int64_t new_tokens) override;
  void Release(Holding& holding) override;
  Holding Share(const Holding& holding, int64_t tokens) override;

  int64_t Match(std::span<const BlockKey> keys) const override;
  void Adopt(Holding& holding, std::span<const BlockKey> keys, int64_t tokens) override;
  void Publish(const Holding& holding, std::span<const BlockKey> keys) override;

  Bytes Used() const override { return {pages_.held() * page_bytes_}; }
  Bytes Free() const override { return {pages_.available() * page_bytes_}; }
  Bytes Capacity() const override { return {pages_.total() * page_bytes_}; }
  Bytes Need(int64_t tokens) const override;
  void CheckConservation(bool idle) const override;
  int64_t WorkspaceBytes(int threads) const override;

  void Begin(const Ctx& ctx, const StepBatch& batch) override;
  void Mix(const Ctx& ctx, int layer, const MixInput& in, TensorView out) override;
  void End(const Ctx& ctx, const StepBatch& batch) override {}

  absl::Status Save(const Holding& holding, ByteSink& sink) override;
  absl::StatusOr<Holding> Load(ByteSource& source) override;

 private:
  struct LayerPool {
    AttentionShape shape;
    TensorView pool;  // [slots, 2, 64, head_dim]
    std::byte* base = nullptr;
    int64_t page_bytes = 0;  // of one page in this layer
  };
  struct Copy {
    int32_t from, to;  // `from` is held by the copy until it is done
  };
  struct Header;

  PagedBank(const BankConfig& config, int32_t pages, int64_t page_bytes, Mapping memory);
  void RunCopies();
  void DropCopiesTo(int32_t page);
  Header HeaderFor(int64_t tokens) const;
  // Calls visit(bytes) for each run of the first `tokens` tokens' bytes, in file order, until one
  // fails.
  template <class Visit>
  absl::Status VisitRuns(const Holding& holding, int64_t tokens, Visit visit);

  const int index_;
  const StepLimits limits_;
  const DType dtype_;
  const int64_t page_bytes_;  // of one page in all layers
  Mapping memory_;
  std::vector<LayerPool> layers_;
  PagePool pages_;
  std::vector<Copy> copies_;  // pending since the last Begin
  // The step's tables, flattened by Begin. Sized at start.
  int64_t max_pages_;  // of one sequence
  std::vector<int32_t> page_table_, query_begin_, past_;
  PageTable table_;
};

}  // namespace serval
