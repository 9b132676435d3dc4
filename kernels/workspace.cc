#include "kernels/workspace.h"

#include <algorithm>

namespace serval {
namespace {

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Workspace::Workspace(size_t bytes)
    : memory_(static_cast<int64_t>(std::max(RoundUp(bytes), kAlignment))) {
  SERVAL_CHECK(memory_.data() != nullptr, "no address space for the workspace");
}

void* Workspace::TakeBytes(size_t wanted) {
  const size_t size = RoundUp(wanted);
  SERVAL_CHECK_LE(size, bytes() - used_);
  std::byte* taken = memory_.data() + used_;
  used_ += size;
  peak_ = std::max(peak_, used_);
  return taken;
}

}  // namespace serval
