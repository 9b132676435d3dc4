// Writes GGUF files for tests, good ones and, by naming wrong counts, types and offsets, bad ones;
// and a small llama with random weights. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace serval {

// Numbers of the format.
enum GgufValueType : uint32_t {
  kGgufU8,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufString,
  kGgufArray,
  kGgufU64,
  kGgufI64,
  kGgufF64
};
enum GgmlTypeNumber : uint32_t {
  kGgmlF32 = 0,
  kGgmlF16 = 1,
  kGgmlQ4_0 = 2,
  kGgmlQ4_1 = 3,
  kGgmlQ8_0 = 8,
  kGgmlQ4_K = 12,
  kGgmlI32 = 26,
  kGgmlBF16 = 30
};

// A number's bytes, little-endian; a string with its length before it.
template <class T>
std::string RawNumber(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
std::string RawString(std::string_view text);

struct GgufWriter {
  struct Value {
    std::string key;
    uint32_t type;
    std::string raw;  // as in the file, after the type
  };
  struct Tensor {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> shape;
    std::string data;
    std::optional<uint64_t> offset;  // in place of the right one
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::optional<uint64_t> tensor_count, value_count;  // in place of the right ones
  std::vector<Value> values;
  std::vector<Tensor> tensors;

  void U32(const std::string& key, uint32_t value) {
    values.push_back({key, kGgufU32, RawNumber(value)});
  }
  void F32(const std::string& key, float value) {
    values.push_back({key, kGgufF32, RawNumber(value)});
  }
  void Bool(const std::string& key, bool value) {
    values.push_back({key, kGgufBool, RawNumber(value)});
  }
  void Text(const std::string& key, std::string_view value) {
    values.push_back({key, kGgufString, RawString(value)});
  }
  void Texts(const std::string& key, const std::vector<std::string>& items);
  void I32s(const std::string& key, const std::vector<int32_t>& items);

  // The entry or tensor of that name, to spoil it. Fatal when there is none.
  Value& value(std::string_view key);
  Tensor& tensor(std::string_view name);
  void Remove(std::string_view key_or_name);

  std::string Bytes() const;  // the whole file
};

struct TinyLlama {
  int layers = 2, hidden = 64, heads = 4, kv_heads = 2, head_dim = 16, feed_forward = 96;
  int rotary = 0;   // 0 = the whole head
  int vocab = 261;  // at least 257: an end token and the 256 bytes
  uint32_t matrices = kGgmlF32;
  uint32_t embedding = kGgmlF32;
  bool tied = true;
  bool rope_factors = false;
  float linear_scaling = 0;  // 0 = no key
  uint32_t seed = 1;
};
GgufWriter WriteTinyLlama(const TinyLlama& model);

// A file in the test's own temporary folder, removed with this.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }
  void Write(const std::string& bytes) const;

 private:
  std::string path_;
};

}  // namespace serval
