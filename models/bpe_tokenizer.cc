#include "models/bpe_tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/bpe_bytes.h"
#include "models/bpe_cache.h"
#include "models/bpe_merge.h"
#include "models/pretokenizer.h"
#include "models/tokenizer_added.h"
#include "models/tokenizer_utf8.h"

namespace serval {
namespace {

// tokenizer.ggml.token_type
enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Control tokens that end a turn or a document under whichever id; a file names one end token only.
constexpr std::array<std::string_view, 7> kEndTokens = {
    "<|im_end|>", "<|eot_id|>",    "<|eom_id|>",      "<|end|>",
    "<|eom|>",    "<|endoftext|>", "<|end_of_text|>",
};

// Unicode NFC of well-formed text.
std::string Compose(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char byte) { return static_cast<uint8_t>(byte) < 0x80; });
  if (ascii) return std::string(text);
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) return std::string(text);
  std::string result(reinterpret_cast<const char*>(composed), static_cast<size_t>(size));
  std::free(composed);
  return result;
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(Pretokenizer pretokenizer) : pretokenizer_(std::move(pretokenizer)) {}

  absl::Status Init(const BpeMetadata& metadata);

  std::vector<int32_t> Encode(std::string_view text, bool add_special) const override;
  std::string_view TokenBytes(int32_t id) const override {
    return InRange(id) ? std::string_view(bytes_[id]) : std::string_view();
  }
  bool IsSpecial(int32_t id) const override { return InRange(id) && special_[id]; }
  int32_t TokenId(std::string_view token) const override {
    const auto found = vocabulary_.find(token);
    return found == vocabulary_.end() ? -1 : found->second;
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }
  int32_t bos_id() const override { return bos_id_; }
  std::span<const int32_t> eos_ids() const override { return eos_ids_; }

 private:
  struct Work {  // of one Encode call
    BpeMerger::Scratch scratch;
    std::string symbols;
  };

  bool InRange(int64_t id) const { return id >= 0 && id < vocab_size(); }
  absl::Status AddTokens(const BpeMetadata& metadata);
  absl::Status SetEnds(const BpeMetadata& metadata);
  void EncodePlain(std::string_view text, Work& work, std::vector<int32_t>& ids) const;
  void EncodeWord(std::string_view word, Work& work, std::vector<int32_t>& ids) const;

  Pretokenizer pretokenizer_;
  std::vector<std::string> texts_;  // as in the file
  std::vector<std::string> bytes_;  // what they stand for
  std::vector<bool> special_;
  BpeMerger::Vocabulary vocabulary_;  // views into texts_
  AddedTokens added_;
  BpeMerger merger_;
  mutable BpeCache cache_;
  int32_t bos_id_ = -1;
  std::vector<int32_t> eos_ids_;
  bool add_bos_ = false;
};

absl::Status BpeTokenizer::Init(const BpeMetadata& metadata) {
  if (absl::Status status = AddTokens(metadata); !status.ok()) return status;
  if (absl::Status status = SetEnds(metadata); !status.ok()) return status;
  absl::StatusOr<BpeMerger> merger = BpeMerger::Make(vocabulary_, metadata.merges);
  if (!merger.ok()) return merger.status();
  merger_ = *std::move(merger);
  return absl::OkStatus();
}

absl::Status BpeTokenizer::AddTokens(const BpeMetadata& metadata) {
  const size_t count = metadata.tokens.size();
  const auto& types = metadata.token_types;
  if (count == 0) return absl::InvalidArgumentError("tokenizer.ggml.tokens is empty");
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError("tokenizer.ggml.tokens has more entries than ids can count");
  }
  if (!types.empty() && types.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type has ", types.size(),
                                                   " entries for ", count, " tokens"));
  }
  texts_.assign(metadata.tokens.begin(), metadata.tokens.end());
  bytes_.reserve(count);
  special_.reserve(count);
  vocabulary_.reserve(count);
  std::vector<AddedTokens::Token> added;
  for (size_t i = 0; i < count; ++i) {
    const int64_t type = types.empty() ? kNormal : types[i];
    if (type < kNormal || type > kByte) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.token_type[", i, "] is ", type, "; it can be 1 to 6"));
    }
    const int32_t id = static_cast<int32_t>(i);
    const auto [first, is_new] = vocabulary_.emplace(texts_[i], id);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.tokens[", i, "] (\"", texts_[i], "\") repeats token ", first->second));
    }
    const bool literal = type == kControl || type == kUserDefined || type == kUnknown;
    bytes_.push_back(literal ? texts_[i] : BytesOfSymbols(texts_[i]));
    special_.push_back(type == kControl || type == kUnknown);
    if ((type == kControl || type == kUserDefined) && !texts_[i].empty()) {
      added.push_back({texts_[i], id});
    }
  }
  added_ = AddedTokens(std::move(added));
  return absl::OkStatus();
}

absl::Status BpeTokenizer::SetEnds(const BpeMetadata& metadata) {
  const auto out_of_range = [&](std::string_view what, int64_t id) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer's ", std::string(what),
                                                   " token id is ", id, "; the vocabulary ends at ",
                                                   vocab_size() - 1));
  };
  if (metadata.bos_id != -1 && !InRange(metadata.bos_id)) {
    return out_of_range("begin-of-sequence", metadata.bos_id);
  }
  bos_id_ = static_cast<int32_t>(metadata.bos_id);
  add_bos_ = metadata.add_bos.value_or(pretokenizer_.traits().add_bos && bos_id_ >= 0);
  if (add_bos_ && bos_id_ < 0) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing");
  }
  for (const int64_t id : metadata.eos_ids) {
    if (id == -1) continue;
    if (!InRange(id)) return out_of_range("end", id);
    eos_ids_.push_back(static_cast<int32_t>(id));
  }
  for (const std::string_view text : kEndTokens) {
    const int32_t id = TokenId(text);
    if (id >= 0 && special_[id]) eos_ids_.push_back(id);
  }
  std::sort(eos_ids_.begin(), eos_ids_.end());
  eos_ids_.erase(std::unique(eos_ids_.begin(), eos_ids_.end()), eos_ids_.end());
  return absl::OkStatus();
}

std::vector<int32_t> BpeTokenizer::Encode(std::string_view text, bool add_special) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);
  if (add_special && add_bos_) ids.push_back(bos_id_);
  std::string repaired;
  text = ToValidUtf8(text, repaired);
  Work work;
  size_t pos = 0;
  while (pos < text.size()) {
    const AddedTokens::Match match = added_.Find(text, pos);
    const size_t end = match.id < 0 ? text.size() : match.begin;
    if (end > pos) EncodePlain(text.substr(pos, end - pos), work, ids);
    if (match.id < 0) break;
    ids.push_back(match.id);
    pos = match.end;
  }
  return ids;
}

void BpeTokenizer::EncodePlain(std::string_view text, Work& work, std::vector<int32_t>& ids) const {
  std::string composed;
  if (pretokenizer_.traits().nfc) text = composed = Compose(text);
  pretokenizer_.Split(text, [&](std::string_view word) { EncodeWord(word, work, ids); });
}

void BpeTokenizer::EncodeWord(std::string_view word, Work& work, std::vector<int32_t>& ids) const {
  if (cache_.Find(word, ids)) return;
  if (pretokenizer_.traits().ignore_merges) {
    work.symbols.clear();
    for (const char byte : word) work.symbols += ByteSymbol(static_cast<uint8_t>(byte));
    if (const int32_t id = TokenId(work.symbols); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  const size_t before = ids.size();
  merger_.Encode(word, work.scratch, ids);
  cache_.Add(word, std::span<const int32_t>(ids).subspan(before));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(const BpeMetadata& metadata) {
  absl::StatusOr<Pretokenizer> pretokenizer = Pretokenizer::Make(metadata.pre);
  if (!pretokenizer.ok()) return pretokenizer.status();
  auto tokenizer = std::make_unique<BpeTokenizer>(*std::move(pretokenizer));
  if (absl::Status status = tokenizer->Init(metadata); !status.ok()) return status;
  return tokenizer;
}

}  // namespace serval
