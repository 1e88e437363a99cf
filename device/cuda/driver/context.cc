// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver/context.h"

#include <utility>

#include "base/status_macros.h"

namespace millrace {
namespace {

class CudaMemory final : public RawMemory {
 public:
  CudaMemory(std::shared_ptr<CudaContext> context, bool pinned)
      : context_(std::move(context)), pinned_(pinned) {}

  StatusOr<void*> Take(std::size_t bytes) override {
    MR_RETURN_IF_ERROR(context_->MakeCurrent());
    CudaDriver* const driver = context_->driver();
    return pinned_ ? driver->AllocatePinned(bytes) : driver->Allocate(bytes);
  }
  void Give(void* region, std::size_t) override {
    if (!context_->MakeCurrent().ok()) return;
    CudaDriver* const driver = context_->driver();
    pinned_ ? driver->FreePinned(region) : driver->Free(region);
  }

 private:
  const std::shared_ptr<CudaContext> context_;
  const bool pinned_;
};

}  // namespace

StatusOr<std::shared_ptr<CudaContext>> CudaContext::Retain(CudaDriver* driver, int ordinal) {
  MR_ASSIGN_OR_RETURN(void* const handle, driver->RetainContext(ordinal));
  return std::shared_ptr<CudaContext>(new CudaContext(driver, ordinal, handle));
}

std::shared_ptr<RawMemory> NewCudaMemory(std::shared_ptr<CudaContext> context, bool pinned) {
  return std::make_shared<CudaMemory>(std::move(context), pinned);
}

CudaEventPool::~CudaEventPool() {
  if (!context_->MakeCurrent().ok()) return;
  for (void* const event : free_) context_->driver()->DeleteEvent(event);
}

StatusOr<void*> CudaEventPool::Get() {
  {
    MutexLock lock(&mu_);
    if (!free_.empty()) {
      void* const event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  return context_->driver()->NewEvent();
}

void CudaEventPool::Put(void* event) {
  MutexLock lock(&mu_);
  free_.push_back(event);
}

bool CudaEvent::HasHappened() const {
  if (event_ == nullptr || happened_.load(std::memory_order_acquire)) return true;
  if (!pool_->context().MakeCurrent().ok()) return true;
  const StatusOr<bool> happened = pool_->context().driver()->Query(event_);
  if (happened.ok() && !*happened) return false;
  happened_.store(true, std::memory_order_release);
  return true;
}

}  // namespace millrace
