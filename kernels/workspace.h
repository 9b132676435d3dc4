// Scratch memory of a step: one block taken at start, handed out by bumping, given back by scope.
// Thread rule: one thread (the step's). Kernels take what they need before they fan out.
#pragma once

#include <cstddef>

#include "kernels/check.h"
#include "kernels/mapping.h"

namespace serval {

class Workspace {
 public:
  explicit Workspace(size_t bytes);  // fatal when the system refuses them
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // 64-byte aligned, uninitialised. Fatal when the declared size was too small: that is our bug.
  template <class T>
  T* Take(size_t count) {
    return static_cast<T*>(TakeBytes(count * sizeof(T)));
  }
  size_t bytes() const { return static_cast<size_t>(memory_.bytes()); }
  size_t peak() const { return peak_; }

 private:
  friend class WorkspaceScope;
  void* TakeBytes(size_t wanted);
  Mapping memory_;
  size_t used_ = 0, peak_ = 0;
};

// Everything taken while this lives is given back when it ends.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(Workspace* workspace) : workspace_(workspace), mark_(workspace->used_) {}
  ~WorkspaceScope() { workspace_->used_ = mark_; }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

 private:
  Workspace* workspace_;
  size_t mark_;
};

}  // namespace serval
