// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_kernels.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "device/cuda/driver/cuda_machine.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/accelerator/collectives.h"
#include "kernels/accelerator/computing_ops.h"
#include "kernels/accelerator/stream_kernel.h"
#include "kernels/cuda/library_body.h"
#include "kernels/cuda/nccl_link.h"
#include "kernels/gpu/body.h"

namespace millrace {
namespace {

class CudaBody final : public gpu::BodyOnMachine {
 public:
  CudaBody(const gpu::Loops* table, std::unique_ptr<gpu::Body> loops,
           std::unique_ptr<LibraryBody> library)
      : BodyOnMachine(std::move(loops)), table_(*table), library_(std::move(library)) {}
  int64_t ScratchBytes(const StreamCall& call) const override {
    // Sizes are asked of the device.
    if (!static_cast<CudaMachine*>(call.machine)->MakeCurrent().ok()) return 0;
    return body().ScratchBytes(call, table_);
  }
  std::optional<Shape> OutputShape(const StreamCall& call, int output) const override {
    if (library_ == nullptr) return std::nullopt;
    return library_->OutputShape(call, static_cast<CudaMachine*>(call.machine), output);
  }
  Status Count(const StreamCall& call) const override {
    return body().Count(call, table_, {static_cast<CudaMachine*>(call.machine)->compute_stream()});
  }
  Status Run(const StreamCall& call) const override {
    auto* const machine = static_cast<CudaMachine*>(call.machine);
    if (library_ != nullptr) {
      MR_ASSIGN_OR_RETURN(const bool done, library_->Run(call, machine, table_));
      if (done) return OkStatus();
    }
    return body().Run(call, table_, {machine->compute_stream()});
  }

 private:
  const gpu::Loops& table_;
  const std::unique_ptr<LibraryBody> library_;
};

std::unique_ptr<Kernel> MakeCudaKernel(KernelConstruction& c) {
  // Knows what attributes may be, and says it as for the CPU.
  if (MakeCpuKernel(c) == nullptr || !c.status().ok()) return nullptr;
  const StatusOr<const gpu::Loops*> table = gpu::LoadedCudaLoops();
  if (!table.ok()) {
    c.SetError(table.status());
    return nullptr;
  }
  const gpu::BodyDef* const def = gpu::FindBody(c);
  std::unique_ptr<gpu::Body> loops = def == nullptr ? nullptr : def->make(c);
  if (loops == nullptr) {
    c.SetError(errors::Unimplemented(c.def().name(), " with these attributes is not computed on ",
                                     "GPUs"));
    return nullptr;
  }
  std::unique_ptr<LibraryBody> library = MakeMatMulLibraryBody(c);
  if (library == nullptr) library = MakeConvLibraryBody(c);
  if (library == nullptr) library = MakeBatchNormLibraryBody(c);
  return MakeStreamKernel(c,
                          std::make_shared<CudaBody>(*table, std::move(loops), std::move(library)));
}

}  // namespace

void RegisterCudaKernels(const OpRegistry& ops, KernelRegistry& registry) {
  const CpuKernels cpu = FindCpuKernels(registry);
  RegisterAcceleratorCollectives(ops, cpu, "GPU", &MakeAcceleratorCollective<&OpenNcclLink>,
                                 registry);
  RegisterAcceleratorKernels(ops, cpu, "GPU", registry);
  StringMap<const ComputingOp*> rows;
  for (const ComputingOp& row : ComputingOps()) rows[row.op] = &row;
  for (const gpu::BodyDef& body : gpu::AllBodies()) {
    const auto row = rows.find(body.op);
    if (row == rows.end()) continue;
    // After those above: of two that fit, as for int32, the first one is taken.
    Adoption adoption{"GPU", &MakeCudaKernel, row->second->host_args, {}, ""};
    adoption.types_of = body.types;
    Adopt(ops, cpu, body.op, adoption, registry);
  }
}

}  // namespace millrace
