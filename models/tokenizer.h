// Text <-> token ids: byte-level BPE as GGUF and Hugging Face carry it. Encode gives the ids the
// Python `tokenizers` gives. Thread rule: const after construction; all calls from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace serval {

class GgufFile;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From the tokenizer.ggml.* metadata. Errors: INVALID_ARGUMENT naming the key that is missing or
  // wrong.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file);

  // Special and added tokens in the text become their ids (as in Hugging Face); begin-of-sequence
  // is added when the model asks for it and `add_special` is set. Bytes that are not UTF-8 are read
  // as U+FFFD, as Python's tokenizers sees them.
  virtual std::vector<int32_t> Encode(std::string_view text, bool add_special = true) const = 0;
  // The bytes of one token; special tokens give their text. Empty for ids out of range.
  virtual std::string_view TokenBytes(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // -1 when there is no such token.
  virtual int32_t TokenId(std::string_view token) const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t bos_id() const = 0;  // -1 = none
  virtual std::span<const int32_t> eos_ids() const = 0;

  // The whole text; incomplete UTF-8 becomes U+FFFD.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = true) const;
};

}  // namespace serval
