#include "clients/common/utf8.h"

#include <cstddef>

namespace serval {
namespace {

struct Piece {
  size_t bytes;  // at least 1
  bool valid;
};

// The character, or the maximal ill-formed piece, at the start of a text that is not empty.
Piece First(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {1, true};
  size_t more = 0;
  unsigned low = 0x80, high = 0xBF;  // range of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) more = 1;
  if (lead >= 0xE0 && lead <= 0xEF) more = 2;
  if (lead >= 0xF0 && lead <= 0xF4) more = 3;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  if (more == 0) return {1, false};
  for (size_t i = 1; i <= more; ++i) {
    if (i == text.size()) return {i, false};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {more + 1, true};
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const Piece piece = First(text);
    if (!piece.valid) return false;
    text.remove_prefix(piece.bytes);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Piece piece = First(text);
    out += piece.valid ? text.substr(0, piece.bytes) : "\xEF\xBF\xBD";
    text.remove_prefix(piece.bytes);
  }
  return out;
}

}  // namespace serval
