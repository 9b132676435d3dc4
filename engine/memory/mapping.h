// A big anonymous mapping: pages never touched cost no resident memory. Thread rule: none; owns its
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace serval {

class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(int64_t bytes);  // zero-filled; data() is null when the system refuses
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

// Bytes the process may still take: the machine's available memory, or what the control group
// leaves, whichever is less.
int64_t AvailableMemory();

}  // namespace serval
