#include "models/tokenizer_utf8.h"

#include <cstring>

namespace serval {
namespace {

// The lead byte settles the length and the range of the second byte; all later bytes are 80..BF.
struct Lead {
  size_t bytes;
  uint8_t low, high;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // no overlong forms
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // nothing above U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  const Lead lead = LeadOf(static_cast<uint8_t>(text[0]));
  if (lead.bytes == 0) return {Utf8Step::kInvalid, 1};
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Utf8Step::kIncomplete, i};
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Step::kInvalid, i};
  }
  return {Utf8Step::kValid, lead.bytes};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    uint64_t eight = 0;
    if (text.size() - pos >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + pos, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        pos += sizeof(eight);
        continue;
      }
    }
    const Utf8Step step = NextUtf8(text.substr(pos));
    if (step.kind != Utf8Step::kValid) break;
    pos += step.bytes;
  }
  return pos;
}

size_t AppendValidUtf8(std::string_view text, bool more, std::string& out) {
  while (true) {
    const size_t good = ValidUtf8Prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return 0;
    const Utf8Step step = NextUtf8(text);
    if (step.kind == Utf8Step::kIncomplete && more) return step.bytes;
    out.append(kReplacement);
    text.remove_prefix(step.bytes);
  }
}

std::string_view ToValidUtf8(std::string_view text, std::string& storage) {
  if (ValidUtf8Prefix(text) == text.size()) return text;
  storage.clear();
  AppendValidUtf8(text, false, storage);
  return storage;
}

}  // namespace serval
