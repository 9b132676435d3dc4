#include "engine/memory/mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace serval {
namespace {

// The first number of a file, or `fallback` ("max" in control group files means no limit).
int64_t NumberIn(const char* path, int64_t fallback) {
  std::ifstream file(path);
  int64_t value;
  return file >> value ? value : fallback;
}

}  // namespace

Mapping::Mapping(int64_t bytes) {
  if (bytes <= 0) return;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

int64_t AvailableMemory() {
  constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  int64_t available = kUnlimited;
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    int64_t kibibytes;
    if (key == "MemAvailable:" && info >> kibibytes) available = kibibytes * 1024;
    info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max", kUnlimited);
  const int64_t current = NumberIn("/sys/fs/cgroup/memory.current", 0);
  if (limit != kUnlimited) available = std::min(available, std::max<int64_t>(0, limit - current));
  return available;
}

}  // namespace serval
