// Save and Load of the paged bank: a header that names the geometry, then the stored entries and
// nothing else (the unused end of the last page may hold another sequence's past).
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/memory/block_keys.h"
#include "engine/memory/paged_bank.h"

namespace serval {

// All fields little-endian, as on every machine Serval runs on.
struct PagedBank::Header {
  std::array<char, 8> magic{'S', 'V', 'P', 'A', 'G', 'E', 'D', '1'};
  uint64_t geometry = 0;  // hash of element type and layer shapes
  int64_t tokens = 0;
  uint64_t check = 0;  // hash of the fields above
};

PagedBank::Header PagedBank::HeaderFor(int64_t tokens) const {
  std::vector<uint64_t> words{static_cast<uint64_t>(dtype_), kPageTokens};
  for (const LayerPool& layer : layers_) {
    words.push_back(layer.shape.kv_heads);
    words.push_back(layer.shape.head_dim);
  }
  Header header;
  header.geometry = SipHash128(words, 0, 0).lo;
  header.tokens = tokens;
  const std::array<uint64_t, 2> fields{header.geometry, static_cast<uint64_t>(tokens)};
  header.check = SipHash128(fields, 0, 0).hi;
  return header;
}

template <class Visit>
absl::Status PagedBank::VisitRuns(const Holding& holding, int64_t tokens, Visit visit) {
  for (const LayerPool& layer : layers_) {
    const int64_t row = RowBytes(dtype_, layer.shape.head_dim);
    const int64_t half = row * kPageTokens;  // the keys, or the values, of one slot
    for (int64_t i = 0; i * kPageTokens < tokens; ++i) {
      const int64_t entries = std::min<int64_t>(kPageTokens, tokens - i * kPageTokens);
      std::byte* page = layer.base + holding.pages[i] * layer.page_bytes;
      for (std::byte* at = page; at < page + layer.page_bytes; at += half) {
        absl::Status status = visit(std::span<std::byte>(at, entries * row));
        if (!status.ok()) return status;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PagedBank::Save(const Holding& holding, ByteSink& sink) {
  RunCopies();
  const Header header = HeaderFor(holding.tokens);
  absl::Status status = sink.Write(std::as_bytes(std::span(&header, 1)));
  if (!status.ok()) return status;
  return VisitRuns(holding, holding.tokens,
                   [&](std::span<const std::byte> bytes) { return sink.Write(bytes); });
}

absl::StatusOr<Holding> PagedBank::Load(ByteSource& source) {
  RunCopies();  // a page that waits to be copied must not be overwritten first
  Header header;
  absl::Status status = source.Read(std::as_writable_bytes(std::span(&header, 1)));
  if (!status.ok()) return status;
  if (header.magic != Header().magic) {
    return absl::InvalidArgumentError("the snapshot does not begin with the mark of paged memory");
  }
  const Header expected = HeaderFor(header.tokens);
  if (header.geometry != expected.geometry) {
    return absl::InvalidArgumentError(
        "the snapshot was taken of another model or with another --kv-cache-dtype");
  }
  if (header.check != expected.check || header.tokens < 0) {
    return absl::InvalidArgumentError("the snapshot's header is damaged");
  }
  if (header.tokens > limits_.max_context) {
    return absl::OutOfRangeError(absl::StrCat("the snapshot holds ", header.tokens,
                                              " tokens, more than --max-model-len ",
                                              limits_.max_context));
  }
  Holding holding;
  if (!Reserve(holding, header.tokens)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the snapshot's ", header.tokens, " tokens now"));
  }
  status = VisitRuns(holding, header.tokens,
                     [&](std::span<std::byte> bytes) { return source.Read(bytes); });
  if (!status.ok()) {
    Release(holding);
    return status;
  }
  Commit(holding, header.tokens);
  return holding;
}

}  // namespace serval
