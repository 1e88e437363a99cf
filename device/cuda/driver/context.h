// SPDX-License-Identifier: Apache-2.0
// A device's primary context and what lives in it: memory and events.
#ifndef DEVICE_CUDA_DRIVER_CONTEXT_H_
#define DEVICE_CUDA_DRIVER_CONTEXT_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/cuda/driver/cuda_driver.h"
#include "device/cuda/driver/region_allocator.h"
#include "device/stream.h"

namespace millrace {

// A share of the primary context. Thread-safe.
class CudaContext {
 public:
  static StatusOr<std::shared_ptr<CudaContext>> Retain(CudaDriver* driver, int ordinal);
  ~CudaContext() { driver_->ReleaseContext(ordinal_); }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  CudaDriver* driver() const { return driver_; }
  void* handle() const { return handle_; }
  int ordinal() const { return ordinal_; }
  Status MakeCurrent() const { return driver_->SetCurrent(handle_); }

 private:
  CudaContext(CudaDriver* driver, int ordinal, void* handle)
      : driver_(driver), ordinal_(ordinal), handle_(handle) {}
  CudaDriver* const driver_;
  const int ordinal_;
  void* const handle_;
};

// Memory of the device, or pinned memory of the host.
std::shared_ptr<RawMemory> NewCudaMemory(std::shared_ptr<CudaContext> context, bool pinned);

// Events are used again. Thread-safe.
class CudaEventPool {
 public:
  explicit CudaEventPool(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  ~CudaEventPool();
  // The context must be current.
  StatusOr<void*> Get();
  void Put(void* event);
  const CudaContext& context() const { return *context_; }

 private:
  const std::shared_ptr<CudaContext> context_;
  Mutex mu_;
  std::vector<void*> free_ ABSL_GUARDED_BY(mu_);
};

// An event that was recorded; null if it could not be, and then it has happened.
class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<CudaEventPool> pool, void* event)
      : pool_(std::move(pool)), event_(event) {}
  ~CudaEvent() override {
    if (event_ != nullptr) pool_->Put(event_);
  }
  // Also after an error: nothing will come any more.
  bool HasHappened() const override;
  void* handle() const { return event_; }

 private:
  const std::shared_ptr<CudaEventPool> pool_;
  void* const event_;
  mutable std::atomic<bool> happened_{false};
};

}  // namespace millrace

#endif  // DEVICE_CUDA_DRIVER_CONTEXT_H_
