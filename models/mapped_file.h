// A file read in place, through mmap. Thread rule: const after Open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/mapping.h"

namespace serval {

class MappedFile {
 public:
  // The whole file, read-only. It must not shrink while it is mapped (the system then stops the
  // process at the next read). Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory,
  // an empty file), INTERNAL.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;

  const std::byte* data() const { return mapping_.data(); }
  int64_t bytes() const { return mapping_.bytes(); }
  // The whole pages inside [data, data + bytes) leave resident memory; they are read again when
  // touched.
  void DropPages(const void* data, int64_t bytes) const;

 private:
  explicit MappedFile(Mapping mapping) : mapping_(std::move(mapping)) {}
  static absl::StatusOr<MappedFile> FromDescriptor(int fd, const std::string& path);

  Mapping mapping_;
};

}  // namespace serval
