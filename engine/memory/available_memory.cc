#include "engine/memory/available_memory.h"

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
