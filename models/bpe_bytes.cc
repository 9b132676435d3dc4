#include "models/bpe_bytes.h"

#include <array>

namespace serval {
namespace {

constexpr int kHighestSymbol = 0x143;  // 256 + 68 bytes without a printable form of their own - 1

constexpr bool Printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> symbol;
  std::array<int16_t, kHighestSymbol + 1> byte;  // by code point; -1 = not in the alphabet

  Alphabet() {
    byte.fill(-1);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const int code = Printable(b) ? b : next++;
      byte[code] = static_cast<int16_t>(b);
      if (code < 0x80) {
        symbol[b] = {static_cast<char>(code)};
      } else {
        symbol[b] = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
      }
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string_view ByteSymbol(uint8_t byte) { return TheAlphabet().symbol[byte]; }

std::string BytesOfSymbols(std::string_view token) {
  const Alphabet& alphabet = TheAlphabet();
  std::string bytes;
  for (size_t i = 0; i < token.size(); ++i) {
    int code = static_cast<uint8_t>(token[i]);
    // The whole alphabet lies below U+0800: one byte or two.
    if (code >= 0xC2 && code <= 0xDF && i + 1 < token.size()) {
      code = (code & 0x1F) << 6 | (static_cast<uint8_t>(token[++i]) & 0x3F);
    } else if (code >= 0x80) {
      return std::string(token);
    }
    if (code > kHighestSymbol || alphabet.byte[code] < 0) return std::string(token);
    bytes.push_back(static_cast<char>(alphabet.byte[code]));
  }
  return bytes;
}

}  // namespace serval
