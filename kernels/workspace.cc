#include "kernels/workspace.h"

#include <sys/mman.h>

#include <algorithm>

namespace serval {
namespace {

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// Anonymous pages: zero until touched, and only touched ones are resident.
Workspace::Workspace(size_t bytes) : bytes_(std::max(RoundUp(bytes), kAlignment)) {
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SERVAL_CHECK(base != MAP_FAILED, "no address space for the workspace");
  base_ = static_cast<std::byte*>(base);
}

Workspace::~Workspace() { munmap(base_, bytes_); }

void* Workspace::TakeBytes(size_t bytes) {
  const size_t size = RoundUp(bytes);
  SERVAL_CHECK_LE(size, bytes_ - used_);
  std::byte* taken = base_ + used_;
  used_ += size;
  peak_ = std::max(peak_, used_);
  return taken;
}

}  // namespace serval
