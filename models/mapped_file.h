// A file read in place, through mmap. Thread rule: const after Open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace serval {

class MappedFile {
 public:
  // The whole file, read-only. It must not shrink while it is mapped (the system then stops the
  // process at the next read). Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory,
  // an empty file), INTERNAL.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // The whole pages inside [data, data + bytes) leave resident memory; they are read again when
  // touched.
  void DropPages(const void* data, int64_t bytes) const;

 private:
  MappedFile(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  static absl::StatusOr<MappedFile> FromDescriptor(int fd, const std::string& path);

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace serval
