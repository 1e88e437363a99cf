// SPDX-License-Identifier: Apache-2.0
// The memory of a CUDA machine: of the device, and pinned memory of the host for copies.
#ifndef DEVICE_CUDA_MACHINE_MACHINE_MEMORY_H_
#define DEVICE_CUDA_MACHINE_MACHINE_MEMORY_H_

#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/region_allocator.h"
#include "device/cuda/machine/machine.h"
#include "device/stream.h"

namespace millrace {

// Thread-safe. Tensors may outlive it; then they lie in nobody's memory.
class CudaMachineMemory {
 public:
  // Announces the regions of `machine`, whose context is current. `on_full` is called before an
  // allocation fails for want of memory. ResourceExhausted if there is too little to begin with.
  static StatusOr<std::unique_ptr<CudaMachineMemory>> New(
      const CudaMachineOptions& options, const CudaProperties& properties,
      const std::shared_ptr<CudaContext>& context, Accelerator* machine,
      std::function<void()> on_full);
  ~CudaMachineMemory();
  CudaMachineMemory(const CudaMachineMemory&) = delete;
  CudaMachineMemory& operator=(const CudaMachineMemory&) = delete;

  const std::shared_ptr<RegionAllocator>& device() const { return device_; }
  const std::shared_ptr<RegionAllocator>& pinned() const { return pinned_; }
  // Pinned memory while there is some, then the host's.
  Allocator* staging() const { return staging_.get(); }

 private:
  CudaMachineMemory() = default;

  std::shared_ptr<RegionAllocator> device_, pinned_;
  std::unique_ptr<Allocator> staging_;
  Mutex mu_;
  std::vector<void*> regions_ ABSL_GUARDED_BY(mu_);  // all that there ever were
};

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_MACHINE_MEMORY_H_
