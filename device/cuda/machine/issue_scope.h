// SPDX-License-Identifier: Apache-2.0
// What an operation may borrow while it is issued: handles of libraries and scratch memory.
#ifndef DEVICE_CUDA_MACHINE_ISSUE_SCOPE_H_
#define DEVICE_CUDA_MACHINE_ISSUE_SCOPE_H_

#include <array>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "device/cuda/machine/machine.h"
#include "tensor/allocator.h"

namespace millrace {

// Handles of NVIDIA's libraries that nobody uses; each is bound to one stream. Thread-safe.
class CudaHandlePool {
 public:
  explicit CudaHandlePool(const CudaHandles& handles) : handles_(handles) {}
  // In the current context. The error says what is missing.
  StatusOr<void*> Take(CudaHandles::Kind kind, void* stream);
  void Put(CudaHandles::Kind kind, void* stream, void* handle);
  // Makes sure that `stream` has one of each kind that `like` has had.
  Status Match(void* like, void* stream);
  // Destroys those of the stream that are here; of all streams for null. In the current context.
  void Clear(void* stream);

 private:
  struct Idle {
    CudaHandles::Kind kind;
    void* stream;
    void* handle;
  };
  const CudaHandles handles_;
  Mutex mu_;
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<CudaHandles::Kind, void*>> made_ ABSL_GUARDED_BY(mu_);  // kind, stream
};

// While it is in scope, this thread issues one operation of the device into `stream`. Scopes of
// several devices nest.
class IssueScope {
 public:
  IssueScope(const Accelerator* device, CudaHandlePool* handles, void* stream);
  ~IssueScope();
  IssueScope(const IssueScope&) = delete;
  IssueScope& operator=(const IssueScope&) = delete;

  // That of this thread for the device; null outside of one.
  static IssueScope* Current(const Accelerator* device);

  // The same one for the whole operation.
  StatusOr<void*> Handle(CudaHandles::Kind kind);
  // Until the scope ends.
  void Keep(RefPtr<Buffer> block) { scratch_.push_back(std::move(block)); }

 private:
  const Accelerator* const device_;
  CudaHandlePool* const pool_;
  void* const stream_;
  IssueScope* const before_;
  std::array<void*, CudaHandles::kNumKinds> handles_{};
  std::vector<RefPtr<Buffer>> scratch_;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_ISSUE_SCOPE_H_
