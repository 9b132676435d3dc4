// Reads a GGUF header front to back. The first error sticks: later reads give zeros, so that
// callers check once a step. Thread rule: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace serval {

class GgufCursor {
 public:
  GgufCursor(const std::byte* base, int64_t size) : base_(base), size_(size) {}

  bool ok() const { return error_.empty(); }
  int64_t position() const { return position_; }
  int64_t left() const { return size_ - position_; }
  // What is being read, for messages: "metadata entry 3 of 33".
  void set_subject(std::string subject) { subject_ = std::move(subject); }
  absl::Status status() const {
    return ok() ? absl::OkStatus() : absl::InvalidArgumentError(error_);
  }
  void Fail(const std::string& what) {
    if (ok()) error_ = absl::StrCat(subject_, what);
  }

  // A number of type T (bool: one byte, 0 or 1).
  template <class T>
  T Number() {
    T value{};
    if (!Need(sizeof(T))) return value;
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = std::to_integer<unsigned>(base_[position_]);
      if (byte > 1) Fail(absl::StrCat(": a bool must be 0 or 1, found ", byte));
      value = byte == 1;
    } else {
      std::memcpy(&value, base_ + position_, sizeof(T));
    }
    position_ += sizeof(T);
    return value;
  }

  // A 64-bit count of things of at least `least_bytes` each: refused when the rest of the file
  // could not hold them.
  int64_t Count(const char* things, int64_t least_bytes) {
    const auto count = Number<uint64_t>();
    if (ok() && count > static_cast<uint64_t>(left() / least_bytes)) {
      Fail(absl::StrCat(": ", count, " ", things, " announced at byte ", position_ - 8,
                        ", but only ", left(), " bytes follow"));
    }
    return ok() ? static_cast<int64_t>(count) : 0;
  }

  // A length and as many bytes; the view is into the file.
  std::string_view String() {
    const int64_t length = Count("bytes of text", 1);
    if (!ok()) return {};
    const std::string_view text(reinterpret_cast<const char*>(base_ + position_), length);
    position_ += length;
    return text;
  }

 private:
  bool Need(int64_t bytes) {
    if (ok() && left() < bytes) {
      Fail(absl::StrCat(": the file ends at byte ", size_, ", expected ", bytes,
                        " more bytes at byte ", position_));
    }
    return ok();
  }

  const std::byte* base_;
  int64_t size_;
  int64_t position_ = 0;
  std::string subject_;
  std::string error_;
};

}  // namespace serval
