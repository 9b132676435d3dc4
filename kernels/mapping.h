// Memory taken from the system in whole pages and given back by scope: pages never touched cost no
// resident memory. Thread rule: none; owns its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace serval {

class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(int64_t bytes);  // zero-filled; data() is null when the system refuses
  // Takes over what mmap returned.
  Mapping(void* data, int64_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace serval
