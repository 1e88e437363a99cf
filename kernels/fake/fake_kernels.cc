// SPDX-License-Identifier: Apache-2.0
#include "kernels/fake/fake_kernels.h"

#include <atomic>
#include <string>
#include <utility>

#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/accelerator/computing_ops.h"
#include "kernels/fake/cpu_body.h"

namespace millrace {
namespace {

std::atomic<FakeBodySource> body_source{nullptr};

std::unique_ptr<Kernel> MakeFakeKernel(KernelConstruction& c) {
  std::shared_ptr<StreamBody> body;
  if (const FakeBodySource source = body_source.load(); source != nullptr) body = source(c);
  if (body == nullptr && c.status().ok()) body = MakeCpuBody(c);
  if (body == nullptr || !c.status().ok()) return nullptr;
  return MakeStreamKernel(c, std::move(body));
}

}  // namespace

void SetFakeBodies(FakeBodySource source) { body_source.store(source); }

void RegisterFakeKernels(const OpRegistry& ops, KernelRegistry& registry) {
  const CpuKernels cpu = FindCpuKernels(registry);
  RegisterAcceleratorKernels(ops, cpu, "FAKE", registry);
  for (const ComputingOp& row : ComputingOps()) {
    // After those above: of two that fit, as for int32, the first one is taken.
    Adopt(ops, cpu, std::string(row.op),
          {"FAKE", &MakeFakeKernel, row.host_args, DeviceTypes(), ""}, registry);
  }
}

}  // namespace millrace
