// A CUDA machine that is the host: what a library body asks for, in host memory. For tests, whose
// libraries compute on the host too.
#ifndef KERNELS_CUDA_HOST_MACHINE_H_
#define KERNELS_CUDA_HOST_MACHINE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "device/cuda/cuda_machine.h"

namespace millrace::testing {

class HostMachine final : public CudaMachine {
 public:
  const std::string& name() const override { return name_; }
  Stream* stream(StreamKind) override { return nullptr; }
  Allocator* allocator() override { return nullptr; }
  Allocator* staging_allocator() override { return nullptr; }
  void Post(std::function<void()> fn) override { fn(); }

  const CudaProperties& properties() const override { return properties_; }
  const CudaMathOptions& math() const override { return math_; }
  CudaDriver* driver() override { return nullptr; }
  void* compute_stream() override { return nullptr; }
  Status MakeCurrent() override { return OkStatus(); }
  StatusOr<void*> cublaslt() override { return static_cast<void*>(this); }
  StatusOr<void*> cublas() override { return errors::Unimplemented("no cublas"); }
  StatusOr<void*> cudnn() override { return static_cast<void*>(this); }
  // Full of garbage, as a GPU's would be.
  StatusOr<void*> Workspace(std::size_t bytes) override {
    memory_.push_back(std::make_unique<std::vector<char>>(bytes + 256, '\x7b'));
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.back()->data());
    return reinterpret_cast<void*>((at + 255) / 256 * 256);
  }

  CudaProperties properties_;
  CudaMathOptions math_;

 private:
  const std::string name_ = "host";
  std::vector<std::unique_ptr<std::vector<char>>> memory_;
};

}  // namespace millrace::testing

#endif  // KERNELS_CUDA_HOST_MACHINE_H_
