// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/issue_scope.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

thread_local IssueScope* current_scope = nullptr;

}  // namespace

StatusOr<void*> CudaHandlePool::Take(CudaHandles::Kind kind, void* stream) {
  {
    MutexLock lock(&mu_);
    for (auto it = idle_.rbegin(); it != idle_.rend(); ++it) {
      if (it->kind != kind || it->stream != stream) continue;
      void* const handle = it->handle;
      idle_.erase(std::next(it).base());
      return handle;
    }
  }
  if (handles_.make == nullptr) {
    return errors::Unimplemented("this build has no libraries for GPUs");
  }
  MR_ASSIGN_OR_RETURN(void* const handle, handles_.make(kind, stream));
  MutexLock lock(&mu_);
  made_.emplace(kind, stream);
  return handle;
}

Status CudaHandlePool::Match(void* like, void* stream) {
  std::vector<CudaHandles::Kind> missing;
  {
    MutexLock lock(&mu_);
    for (const auto& [kind, of] : made_) {
      if (of == like && !made_.contains({kind, stream})) missing.push_back(kind);
    }
  }
  for (const CudaHandles::Kind kind : missing) {
    MR_ASSIGN_OR_RETURN(void* const handle, Take(kind, stream));
    Put(kind, stream, handle);
  }
  return OkStatus();
}

void CudaHandlePool::Put(CudaHandles::Kind kind, void* stream, void* handle) {
  MutexLock lock(&mu_);
  idle_.push_back({kind, stream, handle});
}

void CudaHandlePool::Clear(void* stream) {
  std::vector<Idle> gone;
  {
    MutexLock lock(&mu_);
    std::erase_if(idle_, [&](const Idle& idle) {
      if (stream != nullptr && idle.stream != stream) return false;
      gone.push_back(idle);
      return true;
    });
  }
  for (const Idle& idle : gone) handles_.destroy(idle.kind, idle.handle);
}

IssueScope::IssueScope(const Accelerator* device, CudaHandlePool* handles, void* stream)
    : device_(device),
      pool_(handles),
      stream_(stream),
      before_(std::exchange(current_scope, this)) {}

IssueScope::~IssueScope() {
  current_scope = before_;
  for (int kind = 0; kind < CudaHandles::kNumKinds; ++kind) {
    if (handles_[kind] == nullptr) continue;
    pool_->Put(static_cast<CudaHandles::Kind>(kind), stream_, handles_[kind]);
  }
}

IssueScope* IssueScope::Current(const Accelerator* device) {
  return current_scope != nullptr && current_scope->device_ == device ? current_scope : nullptr;
}

StatusOr<void*> IssueScope::Handle(CudaHandles::Kind kind) {
  void*& handle = handles_[kind];
  if (handle == nullptr) {
    MR_ASSIGN_OR_RETURN(handle, pool_->Take(kind, stream_));
  }
  return handle;
}

}  // namespace millrace
