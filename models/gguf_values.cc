// Typed look-ups of a GGUF file's metadata.
#include <limits>

#include "absl/strings/str_cat.h"
#include "models/gguf.h"
#include "models/gguf_types.h"

namespace serval {
namespace {

const char* TypeName(const GgufFile::Value& value) {
  static constexpr const char* kScalars[] = {"an integer", "an integer", "a float", "a bool",
                                             "a string"};
  static constexpr const char* kArrays[] = {"an array of integers", "an array of floats",
                                            "an array of strings"};
  if (const auto* array = std::get_if<GgufFile::Array>(&value)) return kArrays[array->index()];
  return kScalars[value.index()];
}

absl::Status WrongType(const GgufFile& file, std::string_view key, const char* wanted,
                       const GgufFile::Value* found) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": key ", Quoted(key),
                   found == nullptr ? std::string(" is missing, expected ")
                                    : absl::StrCat(" is ", TypeName(*found), ", expected "),
                   wanted));
}

template <class T>
const std::vector<T>* ArrayOf(const GgufFile::Value* value) {
  const auto* array = value ? std::get_if<GgufFile::Array>(value) : nullptr;
  return array ? std::get_if<std::vector<T>>(array) : nullptr;
}

}  // namespace

const GgufFile::Value* GgufFile::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::StatusOr<int64_t> GgufFile::Int(std::string_view key) const {
  const Value* value = Find(key);
  if (value != nullptr) {
    if (const auto* number = std::get_if<int64_t>(value)) return *number;
    if (const auto* number = std::get_if<uint64_t>(value)) {
      if (*number <= uint64_t{std::numeric_limits<int64_t>::max()}) {
        return static_cast<int64_t>(*number);
      }
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": key ", Quoted(key), " is too large: ", *number));
    }
  }
  return WrongType(*this, key, "an integer", value);
}

absl::StatusOr<double> GgufFile::Float(std::string_view key) const {
  const Value* value = Find(key);
  const auto* number = value ? std::get_if<double>(value) : nullptr;
  if (number == nullptr) return WrongType(*this, key, "a float", value);
  return *number;
}

absl::StatusOr<std::string_view> GgufFile::String(std::string_view key) const {
  const Value* value = Find(key);
  const auto* text = value ? std::get_if<std::string_view>(value) : nullptr;
  if (text == nullptr) return WrongType(*this, key, "a string", value);
  return *text;
}

absl::StatusOr<const std::vector<std::string_view>*> GgufFile::Strings(std::string_view key) const {
  const Value* value = Find(key);
  const auto* items = ArrayOf<std::string_view>(value);
  if (items == nullptr) return WrongType(*this, key, "an array of strings", value);
  return items;
}

absl::StatusOr<const std::vector<int64_t>*> GgufFile::Ints(std::string_view key) const {
  const Value* value = Find(key);
  const auto* items = ArrayOf<int64_t>(value);
  if (items == nullptr) return WrongType(*this, key, "an array of integers", value);
  return items;
}

int64_t GgufFile::IntOr(std::string_view key, int64_t fallback) const {
  const absl::StatusOr<int64_t> value = Int(key);
  return value.ok() ? *value : fallback;
}

bool GgufFile::BoolOr(std::string_view key, bool fallback) const {
  const Value* value = Find(key);
  const auto* flag = value ? std::get_if<bool>(value) : nullptr;
  return flag ? *flag : fallback;
}

}  // namespace serval
