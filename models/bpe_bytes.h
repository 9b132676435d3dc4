// The byte-level alphabet of GPT-2: each of the 256 bytes is written as one printable character, so
// that vocabularies and merges are plain text (a space is "Ġ"). Source: Radford et al. 2019,
// bytes_to_unicode. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace serval {

// The UTF-8 text of the character that stands for `byte`.
std::string_view ByteSymbol(uint8_t byte);

// The bytes that `token` stands for; a token with a character outside the alphabet stands for its
// own text.
std::string BytesOfSymbols(std::string_view token);

}  // namespace serval
