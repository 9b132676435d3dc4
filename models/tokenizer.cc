#include "models/tokenizer.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "models/bpe_tokenizer.h"
#include "models/gguf.h"
#include "models/tokenizer_utf8.h"

namespace serval {
namespace {

// The id under `key`, -1 when there is none.
absl::Status ReadId(const GgufFile& file, std::string_view key, int64_t& id) {
  id = -1;
  if (file.Find(key) == nullptr) return absl::OkStatus();
  const absl::StatusOr<int64_t> value = file.Int(key);
  if (!value.ok()) return value.status();
  if (*value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(key), " is ", *value, "; a token id is never negative"));
  }
  id = *value;
  return absl::OkStatus();
}

absl::Status ReadEnds(const GgufFile& file, BpeMetadata& metadata) {
  if (absl::Status status = ReadId(file, "tokenizer.ggml.bos_token_id", metadata.bos_id);
      !status.ok()) {
    return status;
  }
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    int64_t id = -1;
    if (absl::Status status = ReadId(file, key, id); !status.ok()) return status;
    metadata.eos_ids.push_back(id);
  }
  constexpr const char* kAddBos = "tokenizer.ggml.add_bos_token";
  if (const GgufFile::Value* value = file.Find(kAddBos)) {
    const bool* add_bos = std::get_if<bool>(value);
    if (add_bos == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(kAddBos, " is not true or false"));
    }
    metadata.add_bos = *add_bos;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  const auto model = file.String("tokenizer.ggml.model");
  if (!model.ok()) return model.status();
  if (*model != "gpt2") {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.model is \"", std::string(*model),
                     "\"; only \"gpt2\" (byte-level BPE) is supported"));
  }
  const auto tokens = file.Strings("tokenizer.ggml.tokens");
  if (!tokens.ok()) return tokens.status();
  const auto merges = file.Strings("tokenizer.ggml.merges");
  if (!merges.ok()) return merges.status();
  BpeMetadata metadata;
  metadata.tokens = **tokens;
  metadata.merges = **merges;
  if (file.Find("tokenizer.ggml.token_type") != nullptr) {
    const auto types = file.Ints("tokenizer.ggml.token_type");
    if (!types.ok()) return types.status();
    metadata.token_types = **types;
  }
  if (file.Find("tokenizer.ggml.pre") != nullptr) {
    const auto pre = file.String("tokenizer.ggml.pre");
    if (!pre.ok()) return pre.status();
    metadata.pre = *pre;
  }
  if (absl::Status status = ReadEnds(file, metadata); !status.ok()) return status;
  return MakeBpeTokenizer(metadata);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special || !IsSpecial(id)) bytes += TokenBytes(id);
  }
  std::string text;
  AppendValidUtf8(bytes, false, text);
  return text;
}

}  // namespace serval
