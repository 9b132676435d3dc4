#include "models/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace serval {
namespace {

absl::Status OpenError(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(
          absl::StrCat(path, ": no such file; give the path of a .gguf file"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(path, ": not readable by this user; check the file's permissions"));
    default:
      return absl::InternalError(absl::StrCat(path, ": cannot be read: ", std::strerror(error)));
  }
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::FromDescriptor(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return OpenError(path, errno);
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory; give the path of a .gguf file in it"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  if (info.st_size == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return OpenError(path, errno);
  return MappedFile(Mapping(data, info.st_size));
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // do not wait on a pipe
  if (fd < 0) return OpenError(path, errno);
  absl::StatusOr<MappedFile> file = FromDescriptor(fd, path);
  close(fd);  // the mapping keeps the file
  return file;
}

void MappedFile::DropPages(const void* data, int64_t bytes) const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t offset = static_cast<const std::byte*>(data) - mapping_.data();
  const int64_t begin = (offset + page - 1) / page * page;
  const int64_t end = (offset + bytes) / page * page;
  if (begin < end) madvise(mapping_.data() + begin, end - begin, MADV_DONTNEED);
}

}  // namespace serval
