// A GGUF file, mapped: metadata by key, tensors by name. Format:
// github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. Every length and offset is
// checked against the file before it is used. Thread rule: const after Open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core.h"
#include "models/mapped_file.h"

namespace serval {

struct GgufTensor {
  std::string name;
  std::string_view type_name;  // "Q4_K"
  bool supported =
      true;  // false: a type that Serval cannot compute with, and `dtype` means nothing
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // as in the file: fastest dimension first
  const void* data = nullptr;  // inside the mapping
  int64_t bytes = 0;
};

class GgufFile {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (one sentence: what was expected where,
  // what was found).
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  using Array =
      std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>>;
  using Value = std::variant<int64_t, uint64_t, double, bool, std::string_view, Array>;

  // Strings and names are views into the mapping: they live as long as the file.
  const Value* Find(std::string_view key) const;
  // Typed look-ups; the error names the key, the type wanted and the type found.
  absl::StatusOr<int64_t> Int(std::string_view key) const;
  absl::StatusOr<double> Float(std::string_view key) const;
  absl::StatusOr<std::string_view> String(std::string_view key) const;
  absl::StatusOr<const std::vector<std::string_view>*> Strings(std::string_view key) const;
  absl::StatusOr<const std::vector<int64_t>*> Ints(std::string_view key) const;
  int64_t IntOr(std::string_view key, int64_t fallback) const;
  bool BoolOr(std::string_view key, bool fallback) const;

  const GgufTensor* FindTensor(std::string_view name) const;
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }
  int64_t bytes() const { return mapping_.bytes(); }
  // Tells the kernel that these bytes of the mapping are no longer needed (their repacked copy is).
  void DropPages(const void* data, int64_t bytes) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  std::string path_;
  MappedFile mapping_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
  std::unordered_map<std::string_view, Value> values_;
};

}  // namespace serval
