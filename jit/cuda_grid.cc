// SPDX-License-Identifier: Apache-2.0
#include "jit/cuda_grid.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "device/cuda/driver/cuda_driver.h"
#include "device/cuda/driver/cuda_machine.h"
#include "jit/accelerator_fused_kernel.h"

namespace millrace {
namespace jit {
namespace {

// More blocks than run at once hide that some threads have a group more than others.
constexpr int64_t kBlocksPerMultiprocessor = 32;

class CudaLoop final : public GridLoop {
 public:
  static StatusOr<std::unique_ptr<GridLoop>> Load(CudaMachine* machine, const GridImage& image) {
    MR_RETURN_IF_ERROR(machine->MakeCurrent());
    auto loop = std::unique_ptr<CudaLoop>(new CudaLoop(machine, image));
    MR_ASSIGN_OR_RETURN(loop->module_, machine->driver()->LoadModule(image.ptx.c_str()));
    MR_ASSIGN_OR_RETURN(loop->function_,
                        machine->driver()->FindFunction(loop->module_, kMrJitGridEntry));
    return loop;
  }
  ~CudaLoop() override {
    if (module_ != nullptr && machine_->MakeCurrent().ok()) {
      machine_->driver()->UnloadModule(module_);
    }
  }

  Status Launch(const void* const* in, void* const* out, const GridSizes& sizes) const override {
    // The driver copies what the arguments point to before it returns.
    std::vector<void*> arguments;
    arguments.reserve(static_cast<std::size_t>(num_inputs_ + num_outputs_ + 3));
    GridSizes passed = sizes;
    for (int i = 0; i < num_inputs_; ++i) arguments.push_back(const_cast<const void**>(in + i));
    for (int k = 0; k < num_outputs_; ++k) arguments.push_back(const_cast<void**>(out + k));
    arguments.push_back(&passed.n);
    arguments.push_back(&passed.period);
    if (reduces_) arguments.push_back(&passed.row);
    const int64_t groups = reduces_ ? sizes.n * kMrJitTeam : (sizes.n + lanes_ - 1) / lanes_;
    const int64_t blocks =
        std::min((groups + kMrJitGridBlock - 1) / kMrJitGridBlock,
                 kBlocksPerMultiprocessor * machine_->properties().num_multiprocessors);
    return machine_->driver()->LaunchKernel(function_, {static_cast<unsigned>(blocks), 1, 1},
                                            {kMrJitGridBlock, 1, 1}, 0, machine_->compute_stream(),
                                            arguments.data());
  }

 private:
  CudaLoop(CudaMachine* machine, const GridImage& image)
      : machine_(machine),
        lanes_(image.lanes),
        num_inputs_(image.num_inputs),
        num_outputs_(image.num_outputs),
        reduces_(image.reduces) {}

  CudaMachine* const machine_;
  const int lanes_, num_inputs_, num_outputs_;
  const bool reduces_;
  void* module_ = nullptr;
  void* function_ = nullptr;
};

class CudaBackend final : public GridBackend {
 public:
  // The latest that the machine and the compiler know: PTX is compiled further by the driver, for
  // machines that came later, too.
  StatusOr<std::string> ArchOf(const Accelerator* machine) const override {
    const CudaProperties& gpu = static_cast<const CudaMachine*>(machine)->properties();
    constexpr std::pair<int, const char*> kArchs[] = {{90, "sm_90"}, {89, "sm_89"}, {87, "sm_87"},
                                                      {86, "sm_86"}, {80, "sm_80"}, {75, "sm_75"}};
    for (const auto& [capability, arch] : kArchs) {
      // 8.7 is a branch of its own.
      if (capability == 87 && gpu.compute_capability != 87) continue;
      if (gpu.compute_capability >= capability) return std::string(arch);
    }
    return errors::Unimplemented(gpu.name, " has compute capability ", gpu.compute_capability / 10,
                                 ".", gpu.compute_capability % 10,
                                 "; loops are compiled for 7.5 and later");
  }
  StatusOr<std::unique_ptr<GridLoop>> Load(Accelerator* machine,
                                           const GridImage& image) const override {
    return CudaLoop::Load(static_cast<CudaMachine*>(machine), image);
  }
};

}  // namespace

const GridBackend& CudaGrids() {
  static const auto* const backend = new CudaBackend;
  return *backend;
}

}  // namespace jit

namespace {

std::atomic<const OpRegistry*> g_ops{nullptr};

std::unique_ptr<Kernel> MakeGpuFused(KernelConstruction& c) {
  return MakeAcceleratorFusedKernel(c, *g_ops.load(std::memory_order_acquire), jit::CudaGrids());
}

}  // namespace

void RegisterGpuFusedKernels(const OpRegistry& ops, KernelRegistry& registry) {
  g_ops.store(&ops, std::memory_order_release);
  registry.Register(KernelDef("_Fused").Device("GPU"), &MakeGpuFused);
}

}  // namespace millrace
