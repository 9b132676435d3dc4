#include "engine/memory/paged_bank.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/step.h"
#include "kernels/check.h"
#include "kernels/dispatch.h"

namespace serval {
namespace {

int64_t PagesFor(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

int64_t LayerPageBytes(const AttentionShape& shape, DType dtype) {
  return int64_t{2} * shape.kv_heads * kPageTokens * RowBytes(dtype, shape.head_dim);
}

int64_t PageBytes(const BankConfig& config) {
  int64_t bytes = 0;
  for (const AttentionShape& shape : config.layers) bytes += LayerPageBytes(shape, config.kv_dtype);
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryBank>> PagedBank::Make(const BankConfig& config) {
  if (!config.options.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory kind \"paged\" takes no options, but got \"", config.options.begin()->first, "\""));
  }
  const int64_t page_bytes = PageBytes(config);
  const int64_t pages = std::min<int64_t>(
      config.bytes / page_bytes,
      std::numeric_limits<int32_t>::max() / 1024);  // slot ids stay within 32 bits
  if (pages < 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat(config.bytes, " bytes do not hold one page of \"paged\" memory (", page_bytes,
                     " bytes): raise --kv-cache-bytes"));
  }
  Mapping memory(pages * page_bytes);
  if (memory.data() == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refused to map ", pages * page_bytes,
                     " bytes of KV memory: lower --kv-cache-bytes"));
  }
  return std::unique_ptr<MemoryBank>(
      new PagedBank(config, static_cast<int32_t>(pages), page_bytes, std::move(memory)));
}

int64_t PagedBank::BytesFor(const BankConfig& config, int64_t tokens) {
  return PagesFor(tokens) * PageBytes(config);
}

PagedBank::PagedBank(const BankConfig& config, int32_t pages, int64_t page_bytes, Mapping memory)
    : index_(config.index),
      limits_(config.limits),
      dtype_(config.kv_dtype),
      page_bytes_(page_bytes),
      memory_(std::move(memory)),
      pages_(pages),
      max_pages_(PagesFor(config.limits.max_context)) {
  std::byte* base = memory_.data();
  for (const AttentionShape& shape : config.layers) {
    const int64_t slots = int64_t{pages} * shape.kv_heads;
    SERVAL_CHECK_LE(slots, std::numeric_limits<int32_t>::max());
    const int64_t bytes = LayerPageBytes(shape, dtype_);
    layers_.push_back(
        {shape, TensorView(base, dtype_, {slots, 2, kPageTokens, shape.head_dim}), base, bytes});
    base += pages * bytes;
  }
  copies_.reserve(limits_.max_sequences);
  page_table_.resize(limits_.max_sequences * max_pages_);
  query_begin_.resize(limits_.max_sequences + 1);
  past_.resize(limits_.max_sequences);
}

bool PagedBank::Reserve(Holding& holding, int64_t new_tokens) {
  const int64_t tokens = holding.tokens + new_tokens;
  if (tokens <= holding.reserved) return true;
  SERVAL_CHECK_LE(tokens, max_pages_ * kPageTokens);
  holding.pages.reserve(max_pages_);  // once: steps then allocate nothing
  const int64_t missing = PagesFor(tokens) - static_cast<int64_t>(holding.pages.size());
  if (!pages_.Take(missing, holding.pages)) return false;
  holding.reserved = static_cast<int64_t>(holding.pages.size()) * kPageTokens;
  return true;
}

void PagedBank::Commit(Holding& holding, int64_t new_tokens) {
  holding.tokens += new_tokens;
  SERVAL_CHECK_LE(holding.tokens, holding.reserved);
}

void PagedBank::Release(Holding& holding) {
  // From the end: of the pages that stay cached, a sequence's last is given up first, for it is
  // useless without those before.
  for (auto page = holding.pages.rbegin(); page != holding.pages.rend(); ++page) {
    DropCopiesTo(*page);
    pages_.Drop(*page);
  }
  holding.pages.clear();
  holding.tokens = holding.reserved = 0;
}

Holding PagedBank::Share(const Holding& holding, int64_t tokens) {
  SERVAL_CHECK_LE(tokens, holding.tokens);
  const int64_t full = tokens / kPageTokens;
  Holding other;
  other.pages.reserve(max_pages_);
  for (int64_t i = 0; i < full; ++i) {
    pages_.Hold(holding.pages[i]);
    other.pages.push_back(holding.pages[i]);
  }
  if (tokens % kPageTokens != 0) {
    if (!pages_.Take(1, other.pages)) {
      Release(other);
      other.reserved = -1;
      return other;
    }
    int32_t from = holding.pages[full];
    for (const Copy& copy : copies_) {
      if (copy.to == from) from = copy.from;  // not copied itself yet: take it from where it comes
    }
    pages_.Hold(from);
    copies_.push_back({from, other.pages.back()});
  }
  other.tokens = tokens;
  other.reserved = static_cast<int64_t>(other.pages.size()) * kPageTokens;
  return other;
}

void PagedBank::DropCopiesTo(int32_t page) {
  if (pages_.holders(page) > 1) return;  // someone else still wants it
  std::erase_if(copies_, [&](const Copy& copy) {
    if (copy.to != page) return false;
    pages_.Drop(copy.from);
    return true;
  });
}

int64_t PagedBank::Match(std::span<const BlockKey> keys) const {
  int64_t blocks = 0;
  for (const BlockKey& key : keys) {
    if (pages_.Find(key) < 0) break;
    ++blocks;
  }
  return blocks * kPageTokens;
}

void PagedBank::Adopt(Holding& holding, std::span<const BlockKey> keys, int64_t tokens) {
  SERVAL_CHECK(holding.pages.empty(), "only an empty holding adopts");
  SERVAL_CHECK_EQ(tokens % kPageTokens, 0);
  holding.pages.reserve(max_pages_);
  for (int64_t i = 0; i < tokens / kPageTokens; ++i) {
    const int32_t page = pages_.Find(keys[i]);
    SERVAL_CHECK_GE(page, 0);
    pages_.Hold(page);
    holding.pages.push_back(page);
  }
  holding.tokens = holding.reserved = tokens;
}

void PagedBank::Publish(const Holding& holding, std::span<const BlockKey> keys) {
  SERVAL_CHECK_LE(static_cast<int64_t>(keys.size()) * kPageTokens, holding.tokens);
  for (size_t i = 0; i < keys.size(); ++i) pages_.Publish(holding.pages[i], keys[i]);
}

Bytes PagedBank::Need(int64_t tokens) const { return {PagesFor(tokens) * page_bytes_}; }

void PagedBank::CheckConservation(bool idle) const {
  pages_.CheckConservation();
  if (!idle) return;
  SERVAL_CHECK_EQ(pages_.held(), 0);
  SERVAL_CHECK(copies_.empty(), "copies wait though no sequence is alive");
}

int64_t PagedBank::WorkspaceBytes(int threads) const {
  int64_t most = 0;
  for (const LayerPool& layer : layers_) {
    most = std::max(most, PagedAttentionWorkspaceBytes(limits_.max_tokens, layer.shape.q_heads,
                                                       layer.shape.kv_heads, layer.shape.head_dim,
                                                       max_pages_ * kPageTokens, threads));
  }
  return most;
}

void PagedBank::RunCopies() {
  for (const Copy& copy : copies_) {
    for (const LayerPool& layer : layers_) {
      std::memcpy(layer.base + copy.to * layer.page_bytes,
                  layer.base + copy.from * layer.page_bytes, layer.page_bytes);
    }
    pages_.Drop(copy.from);
  }
  copies_.clear();
}

void PagedBank::Begin(const Ctx& ctx, const StepBatch& batch) {
  RunCopies();
  const auto sequences = static_cast<int64_t>(batch.sequences.size());
  SERVAL_CHECK_LE(sequences, limits_.max_sequences);
  int64_t width = 1;  // of the table: no wider than this step needs
  for (const StepSequence& sequence : batch.sequences) {
    width = std::max(width, PagesFor(sequence.past + sequence.token_count));
  }
  SERVAL_CHECK_LE(width, max_pages_);
  for (int64_t s = 0; s < sequences; ++s) {
    const StepSequence& sequence = batch.sequences[s];
    const Holding& holding = sequence.holdings[index_];
    SERVAL_CHECK_EQ(holding.tokens, sequence.past);
    SERVAL_CHECK_LE(sequence.past + sequence.token_count, holding.reserved);
    const int64_t used = PagesFor(sequence.past + sequence.token_count);
    for (int64_t i = sequence.past / kPageTokens; i < used; ++i) {
      SERVAL_CHECK_EQ(pages_.holders(holding.pages[i]), 1);  // nobody else may see what is written
    }
    int32_t* row = page_table_.data() + s * width;
    std::fill(std::copy_n(holding.pages.begin(), used, row), row + width, 0);
    query_begin_[s] = sequence.token_begin;
    past_[s] = static_cast<int32_t>(sequence.past);
  }
  query_begin_[sequences] = static_cast<int32_t>(batch.tokens.size());
  table_.pages = TensorView(page_table_.data(), DType::kI32, {sequences, width});
  table_.query_begin = TensorView(query_begin_.data(), DType::kI32, {sequences + 1});
  table_.past = TensorView(past_.data(), DType::kI32, {sequences});
}

void PagedBank::Mix(const Ctx& ctx, int layer, const MixInput& in, TensorView out) {
  const LayerPool& pool = layers_[layer];
  Run(ctx, PagedAppend{.k = in.k, .v = in.v, .pool = pool.pool, .table = table_});
  Run(ctx, PagedAttention{.q = in.q,
                          .pool = pool.pool,
                          .table = table_,
                          .out = out,
                          .kv_heads = pool.shape.kv_heads,
                          .scale = in.scale,
                          .window = in.window});
}

}  // namespace serval
