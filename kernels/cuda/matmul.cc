// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt: with bias and activation where it has a way for that, else without
// them; by cuBLAS where it has none at all.
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/cuda/library_body.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/gpu/products.h"

namespace millrace {
namespace {

// What NVIDIA recommends for Hopper; older parts need less.
constexpr std::size_t kWorkspaceLimit = std::size_t{32} << 20;
// Of cuBLAS, which takes as much by itself on most parts.
constexpr std::size_t kPlainWorkspace = std::size_t{4} << 20;

using MachineKey = std::pair<int, GemmKey>;

LibraryPlanCache<MachineKey, GemmPlan>& Plans() {
  static auto* const plans = new LibraryPlanCache<MachineKey, GemmPlan>;
  return *plans;
}

class MatMulLibraryBody final : public LibraryBody {
 public:
  MatMulLibraryBody(KernelConstruction& c, CublasLtSource source, CublasSource plain_source)
      : source_(source),
        plain_source_(plain_source),
        attrs_(c),
        fused_(c.def().name().starts_with("_Fused")),
        activation_(c.attrs().GetOr<std::string>("activation", "")) {}

  StatusOr<bool> Run(const StreamCall& call, CudaMachine* machine,
                     const gpu::Loops& loops) const override {
    const Tensor &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
    if (!IsFloating(out.dtype())) return false;
    MR_ASSIGN_OR_RETURN(const gpu::ProductParams product, gpu::PlanProduct(attrs_, a, b, out));
    if (out.num_elements() == 0) return true;
    if (product.k == 0 || product.count > kMostBatches) return false;
    if (fused_) MR_RETURN_IF_ERROR(gpu::CheckBias(call.inputs[2], out));
    // Of a fused product, which is one call.
    Epilogue done = Epilogue::kNone;
    for (GemmCall& gemm : PlanGemmCalls(product, out.dtype())) {
      GemmKey& key = gemm.key;
      Operands o{gpu::At(b, gemm.a), gpu::At(a, gemm.b), gpu::At(out, gemm.d)};
      if (fused_) o.bias = call.inputs[2].raw_data();
      key.tf32 = machine->math().tf32;
      key.align_a = AlignmentOf(o.a);
      key.align_b = AlignmentOf(o.b);
      key.align_d = AlignmentOf(o.d);
      MR_ASSIGN_OR_RETURN(const std::optional<Epilogue> with, Multiply(machine, key, o));
      if (!with.has_value()) return false;  // the loops do all of it again
      done = *with;
    }
    MR_RETURN_IF_ERROR(Finish(call, loops, {machine->compute_stream()}, done));
    return true;
  }

 private:
  using Epilogue = GemmKey::Epilogue;
  static constexpr int64_t kMostBatches = int64_t{1} << 30;
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    void* d = nullptr;
    const void* bias = nullptr;
  };

  // What the libraries left of the bias and the activation.
  Status Finish(const StreamCall& call, const gpu::Loops& loops, gpu::Queue queue,
                Epilogue done) const {
    if (!fused_ || done == Epilogue::kBiasRelu) return OkStatus();
    const Tensor& out = call.outputs[0];
    if (done == Epilogue::kBias) return gpu::Activate(loops, queue, activation_, out);
    return gpu::AddBiasAndActivate(loops, queue, call.inputs[2], activation_, out);
  }

  // With which epilogue the product was made; nothing if the libraries know no way.
  StatusOr<std::optional<Epilogue>> Multiply(CudaMachine* machine, GemmKey key,
                                             const Operands& o) const {
    if (fused_) {
      key.epilogue = activation_ == "Relu" ? Epilogue::kBiasRelu : Epilogue::kBias;
      MR_ASSIGN_OR_RETURN(const bool done, MultiplyByLt(machine, key, o));
      if (done) return std::optional(key.epilogue);
      key.epilogue = Epilogue::kNone;
    }
    MR_ASSIGN_OR_RETURN(bool done, MultiplyByLt(machine, key, o));
    if (!done) {
      MR_ASSIGN_OR_RETURN(done, MultiplyPlainly(machine, key, o));
    }
    return done ? std::optional(Epilogue::kNone) : std::nullopt;
  }

  // False if cuBLASLt knows no way.
  StatusOr<bool> MultiplyByLt(CudaMachine* machine, const GemmKey& key, const Operands& o) const {
    MR_ASSIGN_OR_RETURN(const CublasLtLibrary* const library, source_());
    MR_ASSIGN_OR_RETURN(void* const opaque, machine->cublaslt());
    auto* const handle = static_cast<cublasLtHandle_t>(opaque);
    MR_ASSIGN_OR_RETURN(const auto plan, Plans().Get({machine->properties().ordinal, key}, [&] {
      return GemmPlan::Make(*library, handle, key, kWorkspaceLimit);
    }));
    if (plan->refused()) return false;
    void* workspace = nullptr;
    if (plan->workspace_bytes() > 0) {
      MR_ASSIGN_OR_RETURN(workspace, machine->Workspace(plan->workspace_bytes()));
    }
    return IsDone(plan->Run(handle, o.a, o.b, o.d, o.bias, workspace,
                            static_cast<cudaStream_t>(machine->compute_stream())));
  }

  // False if cuBLAS knows no way, or is not there.
  StatusOr<bool> MultiplyPlainly(CudaMachine* machine, const GemmKey& key,
                                 const Operands& o) const {
    const StatusOr<const CublasLibrary*> library = plain_source_();
    if (!library.ok()) return false;
    MR_ASSIGN_OR_RETURN(void* const handle, machine->cublas());
    MR_ASSIGN_OR_RETURN(void* const workspace, machine->Workspace(kPlainWorkspace));
    return IsDone(MultiplyByCublas(**library, static_cast<cublasHandle_t>(handle), key, o.a, o.b,
                                   o.d, workspace, kPlainWorkspace));
  }
  static StatusOr<bool> IsDone(Status status) {
    if (errors::IsUnimplemented(status)) return false;
    MR_RETURN_IF_ERROR(std::move(status));
    return true;
  }

  const CublasLtSource source_;
  const CublasSource plain_source_;
  const gpu::ProductAttrs attrs_;
  const bool fused_;
  const std::string activation_;
};

}  // namespace

std::unique_ptr<LibraryBody> MakeMatMulLibraryBody(KernelConstruction& c, CublasLtSource source,
                                                   CublasSource plain_source) {
  const std::string& op = c.def().name();
  if (op != "MatMul" && op != "BatchMatMul" && op != "BatchMatMulV2" && op != "_FusedMatMul") {
    return nullptr;
  }
  return std::make_unique<MatMulLibraryBody>(c, source, plain_source);
}

}  // namespace millrace
