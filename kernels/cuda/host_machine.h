// SPDX-License-Identifier: Apache-2.0
// A CUDA machine that is the host: what a library body asks for, in host memory. For tests, whose
// libraries compute on the host too.
#ifndef KERNELS_CUDA_HOST_MACHINE_H_
#define KERNELS_CUDA_HOST_MACHINE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/cuda/driver/cuda_machine.h"
#include "gtest/gtest.h"
#include "tensor/allocator.h"

namespace millrace::testing {

// Runs operations at once.
class HostStream final : public Stream {
 public:
  void Enqueue(Operation operation) override { outcome_ = operation.run(); }
  void EnqueueCopy(RefPtr<DeviceWork>, std::string_view, void*, const void*, std::size_t,
                   bool) override {
    ADD_FAILURE() << "a library's kernel copied";
  }
  RefPtr<Event> Record() override { return {}; }
  void Wait(RefPtr<Event>) override {}
  void EnqueueCallback(RefPtr<DeviceWork>, std::string_view,
                       std::function<void(const Status&)> fn) override {
    fn(outcome_);
  }

 private:
  Status outcome_;
};

// Says how much memory a device has, and gives none.
class FullAllocator final : public Allocator {
 public:
  std::string_view name() const override { return "host"; }
  RefPtr<Buffer> Allocate(std::size_t) override {
    ADD_FAILURE() << "a library's kernel took memory for tensors";
    return {};
  }
  AllocatorStats stats() const override {
    AllocatorStats stats;
    stats.bytes_limit = limit;
    return stats;
  }
  int64_t limit = int64_t{64} << 30;
};

class HostMachine final : public CudaMachine {
 public:
  const std::string& name() const override { return name_; }
  Stream* stream(StreamKind) override { return &stream_; }
  Allocator* allocator() override { return &allocator_; }
  Allocator* staging_allocator() override { return nullptr; }
  void Post(std::function<void()> fn) override { fn(); }

  const CudaProperties& properties() const override { return properties_; }
  const CudaMathOptions& math() const override { return math_; }
  CudaDriver* driver() override { return nullptr; }
  void* compute_stream() override { return nullptr; }
  Status MakeCurrent() override { return OkStatus(); }
  StatusOr<void*> cublaslt() override { return static_cast<void*>(this); }
  StatusOr<void*> cublas() override { return static_cast<void*>(this); }
  StatusOr<void*> cudnn() override { return static_cast<void*>(this); }
  // Full of garbage, as a GPU's would be.
  StatusOr<void*> Workspace(std::size_t bytes) override {
    if (bytes > free_) return errors::ResourceExhausted("no room for ", bytes, " bytes");
    memory_.push_back(std::make_unique<std::vector<char>>(bytes + 256, '\x7b'));
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.back()->data());
    return reinterpret_cast<void*>((at + 255) / 256 * 256);
  }

  CudaProperties properties_;
  CudaMathOptions math_;
  FullAllocator allocator_;
  std::size_t free_ = std::size_t{1} << 30;  // the largest workspace that there is room for

 private:
  const std::string name_ = "host";
  HostStream stream_;
  std::vector<std::unique_ptr<std::vector<char>>> memory_;
};

}  // namespace millrace::testing

#endif  // KERNELS_CUDA_HOST_MACHINE_H_
