// A tokenizer whose tokens are bytes: id = byte for 0 … 255, then a few longer and special ones.
// Thread rule: const.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer.h"

namespace serval {

class FakeTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kEnd = 256;    // "<|end|>", special, the model's end of sequence
  static constexpr int32_t kBegin = 257;  // "<|begin|>", special
  static constexpr int32_t kHello = 258;  // "hello": a token of several bytes
  static constexpr int32_t kVocab = 259;

  FakeTokenizer() {
    for (int i = 0; i < 256; ++i) bytes_[i] = static_cast<char>(i);
  }
  std::vector<int32_t> Encode(std::string_view text, bool add_special) const override {
    std::vector<int32_t> ids;
    if (add_special) ids.push_back(kBegin);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string_view TokenBytes(int32_t id) const override {
    if (id >= 0 && id < 256) return {&bytes_[id], 1};
    if (id == kEnd) return "<|end|>";
    if (id == kBegin) return "<|begin|>";
    return id == kHello ? "hello" : "";
  }
  bool IsSpecial(int32_t id) const override { return id == kEnd || id == kBegin; }
  int32_t TokenId(std::string_view token) const override {
    for (int32_t id = 0; id < kVocab; ++id) {
      if (TokenBytes(id) == token) return id;
    }
    return -1;
  }
  int32_t vocab_size() const override { return kVocab; }
  int32_t bos_id() const override { return kBegin; }
  std::span<const int32_t> eos_ids() const override { return eos_; }

 private:
  std::array<char, 256> bytes_;
  std::array<int32_t, 1> eos_ = {kEnd};
};

}  // namespace serval
