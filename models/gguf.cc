#include "models/gguf.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/gguf_cursor.h"
#include "models/gguf_types.h"

namespace serval {
namespace {

using Value = GgufFile::Value;
using Array = GgufFile::Array;

constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxNameBytes = 65535;
constexpr int kMaxDims = 4;

// The numbers of metadata value types, in the order of the format.
enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kValueTypes
};
constexpr int64_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

Value ReadScalar(GgufCursor& in, uint32_t type) {
  switch (type) {
    case kU8:
      return uint64_t{in.Number<uint8_t>()};
    case kI8:
      return int64_t{in.Number<int8_t>()};
    case kU16:
      return uint64_t{in.Number<uint16_t>()};
    case kI16:
      return int64_t{in.Number<int16_t>()};
    case kU32:
      return uint64_t{in.Number<uint32_t>()};
    case kI32:
      return int64_t{in.Number<int32_t>()};
    case kF32:
      return double{in.Number<float>()};
    case kBool:
      return in.Number<bool>();
    case kString:
      return in.String();
    case kU64:
      return in.Number<uint64_t>();
    case kI64:
      return in.Number<int64_t>();
    default:
      return in.Number<double>();
  }
}

Array ReadStrings(GgufCursor& in, int64_t count) {
  std::vector<std::string_view> items;
  items.reserve(count);
  for (int64_t i = 0; i < count && in.ok(); ++i) items.push_back(in.String());
  return items;
}

template <class T, class Wide>
std::vector<Wide> ReadNumbers(GgufCursor& in, int64_t count) {
  std::vector<Wide> items;
  items.reserve(count);
  for (int64_t i = 0; i < count && in.ok(); ++i) {
    const T item = in.Number<T>();
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (item > uint64_t{kMax64}) in.Fail(absl::StrCat(": element ", i, " is too large: ", item));
    }
    items.push_back(static_cast<Wide>(item));
  }
  return items;
}

Array ReadArray(GgufCursor& in) {
  const auto type = in.Number<uint32_t>();
  if (type == kArray) in.Fail(": an array of arrays, which no known key needs");
  if (type >= kValueTypes) {
    in.Fail(absl::StrCat(": element type ", type, " is unknown, expected 0 to ", kValueTypes - 1));
  }
  if (!in.ok()) return {};
  const int64_t count = in.Count("array elements", kValueBytes[type]);
  switch (type) {
    case kU8:
      return ReadNumbers<uint8_t, int64_t>(in, count);
    case kI8:
      return ReadNumbers<int8_t, int64_t>(in, count);
    case kU16:
      return ReadNumbers<uint16_t, int64_t>(in, count);
    case kI16:
      return ReadNumbers<int16_t, int64_t>(in, count);
    case kU32:
      return ReadNumbers<uint32_t, int64_t>(in, count);
    case kI32:
      return ReadNumbers<int32_t, int64_t>(in, count);
    case kF32:
      return ReadNumbers<float, double>(in, count);
    case kBool:
      return ReadNumbers<bool, int64_t>(in, count);
    case kString:
      return ReadStrings(in, count);
    case kU64:
      return ReadNumbers<uint64_t, int64_t>(in, count);
    case kI64:
      return ReadNumbers<int64_t, int64_t>(in, count);
    default:
      return ReadNumbers<double, double>(in, count);
  }
}

Value ReadValue(GgufCursor& in, uint32_t type) {
  if (type >= kValueTypes) {
    in.Fail(absl::StrCat(": value type ", type, " is unknown, expected 0 to ", kValueTypes - 1));
    return false;
  }
  if (type == kArray) return ReadArray(in);
  return ReadScalar(in, type);
}

std::string DimsText(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) absl::StrAppend(&text, text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

}  // namespace

// Fills a GgufFile from its mapping, in the order of the format: header, metadata, tensor
// descriptions, tensor data.
class GgufParser {
 public:
  explicit GgufParser(GgufFile& file)
      : file_(file), in_(file.mapping_.data(), file.mapping_.bytes()) {}

  absl::Status Parse() {
    ReadHeader();
    for (int64_t i = 0; i < values_ && in_.ok(); ++i) ReadEntry(i);
    if (in_.ok()) ReadAlignment();
    file_.tensors_.reserve(tensors_);
    for (int64_t i = 0; i < tensors_ && in_.ok(); ++i) ReadTensor(i);
    if (in_.ok()) PlaceTensors();
    return in_.status();
  }

 private:
  void ReadHeader() {
    in_.set_subject("header");
    const auto magic = in_.Number<uint32_t>();
    if (in_.ok() && magic != 0x46554747u) {  // "GGUF"
      in_.Fail(": not a GGUF file: its first four bytes are not \"GGUF\"");
    }
    const auto version = in_.Number<uint32_t>();
    if (in_.ok() && version != 0 && (version & 0xFFFFu) == 0) {
      in_.Fail(": a big-endian GGUF file; convert it to little-endian");
    }
    if (in_.ok() && version != 2 && version != 3) {
      in_.Fail(absl::StrCat(": GGUF version ", version, ", expected 2 or 3"));
    }
    // The shortest description: a name of one byte, one dimension, type, offset. The shortest
    // entry: a key of one byte, a bool.
    tensors_ = in_.Count("tensors", 8 + 1 + 4 + 8 + 4 + 8);
    values_ = in_.Count("metadata entries", 8 + 1 + 4 + 1);
  }

  std::string_view ReadName(const char* what) {
    const std::string_view name = in_.String();
    if (in_.ok() && (name.empty() || name.size() > kMaxNameBytes)) {
      in_.Fail(absl::StrCat(": its ", what, " has ", name.size(), " bytes, expected 1 to ",
                            kMaxNameBytes));
    }
    return name;
  }

  void ReadEntry(int64_t index) {
    in_.set_subject(absl::StrCat("metadata entry ", index + 1, " of ", values_));
    const std::string_view key = ReadName("key");
    if (!in_.ok()) return;
    in_.set_subject("key " + Quoted(key));
    Value value = ReadValue(in_, in_.Number<uint32_t>());
    if (in_.ok() && !file_.values_.emplace(key, std::move(value)).second) {
      in_.Fail(": occurs twice");
    }
  }

  void ReadAlignment() {
    const Value* value = file_.Find("general.alignment");
    if (value == nullptr) return;
    in_.set_subject("key \"general.alignment\"");
    const auto* number = std::get_if<uint64_t>(value);
    if (number == nullptr || *number < 8 || *number > 65536 || (*number & (*number - 1)) != 0) {
      in_.Fail(absl::StrCat(": must be a power of two from 8 to 65536, found ",
                            number ? std::to_string(*number) : "another type"));
      return;
    }
    alignment_ = static_cast<int64_t>(*number);
  }

  void ReadTensor(int64_t index) {
    in_.set_subject(absl::StrCat("tensor ", index + 1, " of ", tensors_));
    const std::string_view name = ReadName("name");
    if (!in_.ok()) return;
    in_.set_subject("tensor " + Quoted(name));
    GgufTensor tensor;
    tensor.name = std::string(name);
    ReadShape(tensor);
    ReadType(tensor);
    const auto offset = in_.Number<uint64_t>();
    if (in_.ok() && offset % alignment_ != 0) {
      in_.Fail(absl::StrCat(": its offset ", offset, " is not a multiple of the alignment ",
                            alignment_));
    }
    if (in_.ok() && offset > static_cast<uint64_t>(file_.mapping_.bytes())) {
      in_.Fail(absl::StrCat(": its offset ", offset, " is beyond the file's ",
                            file_.mapping_.bytes(), " bytes"));
    }
    if (!in_.ok()) return;
    if (!file_.tensor_index_.emplace(name, file_.tensors_.size()).second) {
      in_.Fail(": occurs twice");
    }
    offsets_.push_back(static_cast<int64_t>(offset));
    file_.tensors_.push_back(std::move(tensor));
  }

  void ReadShape(GgufTensor& tensor) {
    const auto dims = in_.Number<uint32_t>();
    if (in_.ok() && (dims < 1 || dims > kMaxDims)) {
      in_.Fail(absl::StrCat(": has ", dims, " dimensions, expected 1 to ", kMaxDims));
    }
    for (uint32_t i = 0; i < dims && in_.ok(); ++i) {
      const auto dim = in_.Number<uint64_t>();
      if (in_.ok() && (dim < 1 || dim > uint64_t{kMax64})) {
        in_.Fail(absl::StrCat(": dimension ", i, " is ", dim, ", expected 1 or more"));
      }
      tensor.shape.push_back(static_cast<int64_t>(dim));
    }
  }

  // The element type, and with it the bytes: all sizes stay below the file's, so nothing overflows.
  void ReadType(GgufTensor& tensor) {
    const auto number = in_.Number<uint32_t>();
    if (!in_.ok()) return;
    const GgmlType* type = FindGgmlType(number);
    if (type == nullptr) {
      return in_.Fail(absl::StrCat(": element type ", number, " is unknown; Serval reads ",
                                   SupportedGgmlTypes()));
    }
    tensor.type_name = type->name;
    tensor.supported = type->supported;
    tensor.dtype = type->dtype;
    if (tensor.shape[0] % type->block_elements != 0) {
      return in_.Fail(absl::StrCat(": its rows have ", tensor.shape[0],
                                   " elements, expected a multiple of ", type->block_elements,
                                   " for ", std::string(type->name)));
    }
    const int64_t limit = file_.mapping_.bytes() / type->block_bytes;
    int64_t blocks = tensor.shape[0] / type->block_elements;
    bool fits = blocks <= limit;
    for (size_t i = 1; i < tensor.shape.size() && fits; ++i) {
      fits = tensor.shape[i] <= limit / blocks;
      blocks *= fits ? tensor.shape[i] : 1;
    }
    if (!fits) {
      return in_.Fail(absl::StrCat(": its shape ", DimsText(tensor.shape), " of ",
                                   std::string(type->name), " needs more bytes than the file's ",
                                   file_.mapping_.bytes()));
    }
    tensor.bytes = blocks * type->block_bytes;
  }

  // Every tensor lies inside the data section, and no two share a byte.
  void PlaceTensors() {
    const int64_t size = file_.mapping_.bytes();
    const int64_t begin = (in_.position() + alignment_ - 1) / alignment_ * alignment_;
    std::vector<size_t> order(file_.tensors_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    const GgufTensor* before = nullptr;
    int64_t end = 0;
    for (const size_t i : order) {
      GgufTensor& tensor = file_.tensors_[i];
      in_.set_subject("tensor " + Quoted(tensor.name));
      if (before != nullptr && offsets_[i] < end) {
        return in_.Fail(absl::StrCat(": begins at offset ", offsets_[i], ", inside tensor ",
                                     Quoted(before->name), ", which ends at ", end));
      }
      if (tensor.bytes > size - begin - offsets_[i]) {
        return in_.Fail(absl::StrCat(": expected ", tensor.bytes, " bytes at byte ",
                                     begin + offsets_[i], ", but the file ends at byte ", size,
                                     "; it is truncated"));
      }
      tensor.data = file_.mapping_.data() + begin + offsets_[i];
      before = &tensor;
      end = offsets_[i] + tensor.bytes;
    }
  }

  GgufFile& file_;
  GgufCursor in_;
  int64_t tensors_ = 0;
  int64_t values_ = 0;
  int64_t alignment_ = 32;
  std::vector<int64_t> offsets_;  // of each tensor in the data section
};

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  absl::StatusOr<MappedFile> mapping = MappedFile::Open(path);
  if (!mapping.ok()) return mapping.status();
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  file->mapping_ = *std::move(mapping);
  const absl::Status status = GgufParser(*file).Parse();
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  return file;
}

void GgufFile::DropPages(const void* data, int64_t bytes) const { mapping_.DropPages(data, bytes); }

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace serval
