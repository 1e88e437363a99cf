// SPDX-License-Identifier: Apache-2.0
// Fused loops on the simulated accelerator: the code that PTX is made of, run by a few threads of a
// grid one after the other.
#include "jit/fake_grid.h"

#include <atomic>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "device/fake/fake_device.h"
#include "jit/accelerator_fused_kernel.h"

namespace millrace {
namespace {

// Neither a divisor of usual sizes nor one.
constexpr int64_t kThreads = 7;

std::atomic<const OpRegistry*> g_ops{nullptr};

class FakeLoop final : public jit::GridLoop {
 public:
  FakeLoop(MrJitGridFunction function, int num_inputs, int num_outputs)
      : function_(function), num_inputs_(num_inputs), num_outputs_(num_outputs) {}

  Status Launch(const void* const* in, void* const* out,
                const jit::GridSizes& sizes) const override {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (int i = 0; i < num_inputs_; ++i) from.push_back(FakeAlias(in[i]));
    for (int k = 0; k < num_outputs_; ++k) to.push_back(FakeAlias(out[k]));
    for (int64_t thread = 0; thread < kThreads; ++thread) {
      function_(from.data(), to.data(), sizes.n, sizes.period, sizes.row, thread, kThreads);
    }
    return OkStatus();
  }

 private:
  const MrJitGridFunction function_;
  const int num_inputs_, num_outputs_;
};

class FakeGrids final : public jit::GridBackend {
 public:
  StatusOr<std::string> ArchOf(const Accelerator* machine) const override { return std::string(); }
  StatusOr<std::unique_ptr<jit::GridLoop>> Load(Accelerator* machine,
                                                const jit::GridImage& image) const override {
    return std::make_unique<FakeLoop>(image.function, image.num_inputs, image.num_outputs);
  }
};

std::unique_ptr<Kernel> MakeFakeFused(KernelConstruction& c) {
  static const auto* const backend = new FakeGrids;
  return MakeAcceleratorFusedKernel(c, *g_ops.load(std::memory_order_acquire), *backend);
}

}  // namespace

void RegisterFakeFusedKernels(const OpRegistry& ops, KernelRegistry& registry) {
  g_ops.store(&ops, std::memory_order_release);
  registry.Register(KernelDef("_Fused").Device("FAKE"), &MakeFakeFused);
}

}  // namespace millrace
