// The C++ side of tokenizer_oracle.py.
// tokenize_lines MODEL.gguf
//   stdin: lines, each a little-endian uint32 length and that many bytes;
//   stdout: for each a uint32 count and that many int32 token ids.
// tokenize_lines MODEL.gguf --time
//   stdin: text; stdout: the best speed of five runs over it, on one core.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "models/gguf.h"
#include "models/tokenizer.h"

namespace {

std::string ReadAll() {
  std::string all;
  char buffer[1 << 16];
  size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0) all.append(buffer, got);
  return all;
}

int Time(const serval::Tokenizer& tokenizer, const std::string& text) {
  double best = 1e30;
  size_t count = 0;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    count = tokenizer.Encode(text).size();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count());
  }
  std::printf("%zu bytes, %zu tokens, %.4f s, %.1f MB/s\n", text.size(), count, best,
              static_cast<double>(text.size()) / best / 1e6);
  return 0;
}

int Lines(const serval::Tokenizer& tokenizer, const std::string& all) {
  size_t pos = 0;
  uint32_t length = 0;
  while (all.size() - pos >= sizeof(length)) {
    std::memcpy(&length, all.data() + pos, sizeof(length));
    pos += sizeof(length);
    if (all.size() - pos < length) break;
    const auto ids = tokenizer.Encode(std::string_view(all).substr(pos, length));
    pos += length;
    const uint32_t count = static_cast<uint32_t>(ids.size());
    std::fwrite(&count, sizeof(count), 1, stdout);
    std::fwrite(ids.data(), sizeof(ids[0]), ids.size(), stdout);
  }
  if (pos == all.size()) return 0;
  std::fprintf(stderr, "tokenize_lines: the input ends inside a line\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tokenize_lines MODEL.gguf [--time] < input\n");
    return 2;
  }
  const auto file = serval::GgufFile::Open(argv[1]);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
    return 1;
  }
  const auto tokenizer = serval::Tokenizer::FromGguf(**file);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  const bool time = argc > 2 && std::strcmp(argv[2], "--time") == 0;
  return time ? Time(**tokenizer, ReadAll()) : Lines(**tokenizer, ReadAll());
}
