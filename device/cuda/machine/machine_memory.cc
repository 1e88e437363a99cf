// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/machine_memory.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/memory_report.h"

namespace millrace {
namespace {

constexpr int64_t kReserve = int64_t{512} << 20;  // for libraries' own memory and code

// Pinned memory while there is some, then the host's.
class StagingAllocator final : public Allocator {
 public:
  explicit StagingAllocator(std::shared_ptr<RegionAllocator> pinned) : pinned_(std::move(pinned)) {}
  std::string_view name() const override { return pinned_->name(); }
  RefPtr<Buffer> Allocate(std::size_t bytes) override {
    RefPtr<Buffer> block = pinned_->Allocate(bytes);
    return block ? block : HostAllocator()->Allocate(bytes);
  }
  AllocatorStats stats() const override { return pinned_->stats(); }

 private:
  const std::shared_ptr<RegionAllocator> pinned_;
};

}  // namespace

StatusOr<std::unique_ptr<CudaMachineMemory>> CudaMachineMemory::New(
    const CudaMachineOptions& options, const CudaProperties& properties,
    const std::shared_ptr<CudaContext>& context, Accelerator* machine,
    std::function<void()> on_full) {
  std::unique_ptr<CudaMachineMemory> made(new CudaMachineMemory);
  MR_ASSIGN_OR_RETURN(const CudaDriver::MemoryInfo info, context->driver()->Memory());
  int64_t limit = options.memory_limit;
  if (limit <= 0 && options.memory_fraction > 0) {
    limit = static_cast<int64_t>(static_cast<double>(info.total) * options.memory_fraction);
  }
  if (limit <= 0) limit = info.free - std::max(kReserve, info.total / 20);
  if (limit < (1 << 20)) {
    return errors::ResourceExhausted("GPU ", options.ordinal, " (", properties.name, ") has ",
                                     HumanBytes(info.free), " of ", HumanBytes(info.total),
                                     " free: too little to compute with");
  }
  RegionOptions memory;
  memory.name = StrCat("GPU_", options.ordinal, "_memory");
  memory.limit = limit;
  memory.grows = options.allow_growth;
  memory.exact = options.exact_memory;
  made->device_ = RegionAllocator::New(memory, NewCudaMemory(context, /*pinned=*/false));
  made->device_->SetOnRegion(
      [self = made.get(), machine](void* region, std::size_t bytes, bool taken) {
        if (!taken) return RemoveDeviceMemory(region);
        AddDeviceMemory(region, bytes, machine);
        MutexLock lock(&self->mu_);
        self->regions_.push_back(region);
      });
  made->device_->SetOnFull(std::move(on_full));
  SetMemoryReport(made->device_.get(), [device = made->device_.get()] { return device->Report(); });
  RegionOptions pinned;
  pinned.name = StrCat("GPU_", options.ordinal, "_pinned_memory");
  pinned.space = MemorySpace::kHost;
  pinned.limit = options.pinned_limit;
  made->pinned_ = RegionAllocator::New(pinned, NewCudaMemory(context, /*pinned=*/true));
  made->staging_ = std::make_unique<StagingAllocator>(made->pinned_);
  return made;
}

CudaMachineMemory::~CudaMachineMemory() {
  {
    MutexLock lock(&mu_);
    for (void* const region : regions_) RemoveDeviceMemory(region);
  }
  if (device_ != nullptr) ClearMemoryReport(device_.get());
}

}  // namespace millrace
