// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpus.h"

#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/machine/machine.h"
#include "gtest/gtest.h"
#include "kernels/accelerator/stream_kernel.h"

namespace millrace::testing {
namespace {

struct Probes {
  Mutex mu;
  Probed last ABSL_GUARDED_BY(mu);
};
Probes& TheProbes() {
  static auto* const probes = new Probes;
  return *probes;
}

Status FillWithZeros(const StreamCall& call) {
  auto* const machine = static_cast<CudaMachine*>(call.machine);
  const Tensor& out = call.outputs[0];
  return machine->driver()->Fill(out.raw_data(), 0, out.num_bytes(), machine->compute_stream());
}

class IssuedBody final : public StreamBody {
 public:
  explicit IssuedBody(TestKernel kernel) : kernel_(kernel) {}
  Status Run(const StreamCall& call) const override {
    MR_RETURN_IF_ERROR(GpusForTests().issue(static_cast<CudaMachine*>(call.machine), kernel_));
    return kernel_ == TestKernel::kSpin ? FillWithZeros(call) : OkStatus();
  }

 private:
  const TestKernel kernel_;
};

class ProbeBody final : public StreamBody {
 public:
  Status Run(const StreamCall& call) const override {
    auto* const machine = dynamic_cast<CudaMachineImpl*>(call.machine);
    if (machine == nullptr) return errors::Internal("a probe is for machines of CUDA");
    Probed probed{machine->memory(), machine->properties(), {}, SteadyNanos()};
    MR_ASSIGN_OR_RETURN(probed.driver, machine->driver()->Memory());
    {
      MutexLock lock(&TheProbes().mu);
      TheProbes().last = std::move(probed);
    }
    return FillWithZeros(call);
  }
};

template <TestKernel kernel>
std::unique_ptr<Kernel> MakeIssued(KernelConstruction& c) {
  return MakeStreamKernel(c, std::make_shared<IssuedBody>(kernel));
}
std::unique_ptr<Kernel> MakeProbe(KernelConstruction& c) {
  return MakeStreamKernel(c, std::make_shared<ProbeBody>());
}

void RegisterKernels(const OpRegistry& ops, KernelRegistry& registry) {
  GpusForTests().support->register_kernels(ops, registry);
  const auto add = [&registry](const char* label, KernelFactory factory) {
    registry.Register(KernelDef("Neg").Device("GPU").Type<float>("T").Label(label), factory);
  };
  add("bad_address", &MakeIssued<TestKernel::kBadAddress>);
  add("trap", &MakeIssued<TestKernel::kTrap>);
  add("spin", &MakeIssued<TestKernel::kSpin>);
  add("probe", &MakeProbe);
}

}  // namespace

void UseTestKernels() {
  const GpuSupport& inner = *GpusForTests().support;
  static const GpuSupport support = {inner.count, inner.factory, &RegisterKernels};
  SetGpuSupportForTest(&support);
}

Output Labelled(const Scope& scope, const std::string& label, const Input& x) {
  const std::vector<Input> inputs = {x};
  return scope.AddOp("Neg", inputs, {{"_kernel", label}}, std::source_location::current())
      .output(0);
}

Probed LastProbe() {
  MutexLock lock(&TheProbes().mu);
  return TheProbes().last;
}

int64_t LiveBlocks(const RegionAllocator& memory) {
  const std::string report = memory.Report(1);
  constexpr char kBefore[] = "Largest of ";
  const std::size_t at = report.find(kBefore);
  return at == std::string::npos ? 0 : std::atoll(report.c_str() + at + sizeof(kBefore) - 1);
}

StatusOr<CudaDriver::MemoryInfo> MemoryOf(int ordinal) {
  CudaDriver* const driver = GpusForTests().driver;
  MR_ASSIGN_OR_RETURN(void* const context, driver->RetainContext(ordinal));
  Status status = driver->SetCurrent(context);
  CudaDriver::MemoryInfo info;
  if (status.ok()) {
    const auto memory = driver->Memory();
    status = memory.status();
    if (memory.ok()) info = *memory;
  }
  driver->SetCurrent(nullptr).IgnoreError();
  driver->ReleaseContext(ordinal);
  MR_RETURN_IF_ERROR(status);
  return info;
}

}  // namespace millrace::testing
