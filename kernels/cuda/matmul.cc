// Matrix products by cuBLASLt.
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

using MachineKey = std::pair<int, GemmKey>;

PlanCache<MachineKey, GemmPlan>& Plans() {
  static auto* const plans = new PlanCache<MachineKey, GemmPlan>;
  return *plans;
}

class MatMulLibraryBody final : public LibraryBody {
 public:
  MatMulLibraryBody(KernelConstruction& c, CublasLtSource source)
      : source_(source),
        transpose_a_(c.attrs().GetOr<bool>("transpose_a", false) ||
                     c.attrs().GetOr<bool>("adj_x", false)),
        transpose_b_(c.attrs().GetOr<bool>("transpose_b", false) ||
                     c.attrs().GetOr<bool>("adj_y", false)),
        broadcasts_(c.def().name() == "BatchMatMulV2"),
        batches_(c.def().name().starts_with("Batch")),
        fused_(c.def().name().starts_with("_Fused")),
        activation_(c.attrs().GetOr<std::string>("activation", "")) {}

  StatusOr<bool> Run(const StreamCall& call, CudaMachine* machine,
                     const gpu::Loops& loops) const override {
    const Tensor &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
    if (!IsFloating(out.dtype())) return false;
    MR_ASSIGN_OR_RETURN(const gpu::ProductParams product,
                        gpu::PlanProduct(a, b, transpose_a_, transpose_b_));
    MR_RETURN_IF_ERROR(gpu::CheckProduct(product, a, b, out, batches_, broadcasts_));
    if (out.num_elements() == 0) return true;
    if (product.k == 0 || product.count > kMostBatches) return false;
    const gpu::Queue queue{machine->compute_stream()};
    const Tensor* const bias = fused_ ? &call.inputs[2] : nullptr;
    if (bias != nullptr && (bias->rank() != 1 || bias->dim(0) != product.n)) {
      return errors::InvalidArgument(
          "Must provide as many biases as the channels dimension of the input tensor: ",
          bias->shape().DebugString(), " vs. ", product.n);
    }
    for (GemmCall& gemm : PlanGemmCalls(product, out.dtype())) {
      GemmKey& key = gemm.key;
      const void* const left = gpu::At(b, gemm.a);
      const void* const right = gpu::At(a, gemm.b);
      void* const to = gpu::At(out, gemm.d);
      key.tf32 = machine->math().tf32;
      if (fused_) {
        key.epilogue =
            activation_ == "Relu" ? GemmKey::Epilogue::kBiasRelu : GemmKey::Epilogue::kBias;
      }
      key.align_a = AlignmentOf(left);
      key.align_b = AlignmentOf(right);
      key.align_d = AlignmentOf(to);
      MR_ASSIGN_OR_RETURN(const bool done, Multiply(machine, key, left, right, to,
                                                    bias == nullptr ? nullptr : bias->raw_data()));
      if (!done) return false;  // the loops do all of it again
    }
    if (!fused_ || activation_ == "Relu") return true;
    MR_RETURN_IF_ERROR(gpu::Activate(loops, queue, activation_, out));
    return true;
  }

 private:
  static constexpr int64_t kMostBatches = int64_t{1} << 30;

  StatusOr<bool> Multiply(CudaMachine* machine, const GemmKey& key, const void* a, const void* b,
                          void* d, const void* bias) const {
    MR_ASSIGN_OR_RETURN(const CublasLtLibrary* const library, source_());
    MR_ASSIGN_OR_RETURN(void* const opaque, machine->cublaslt());
    auto* const handle = static_cast<cublasLtHandle_t>(opaque);
    const auto plan = Plans().Get({machine->properties().ordinal, key}, [&] {
      return GemmPlan::Make(*library, handle, key, kWorkspaceLimit);
    });
    if (errors::IsUnimplemented(plan.status())) return false;
    MR_RETURN_IF_ERROR(plan.status());
    void* workspace = nullptr;
    if ((*plan)->workspace_bytes() > 0) {
      MR_ASSIGN_OR_RETURN(workspace, machine->Workspace((*plan)->workspace_bytes()));
    }
    MR_RETURN_IF_ERROR((*plan)->Run(handle, a, b, d, bias, workspace,
                                    static_cast<cudaStream_t>(machine->compute_stream())));
    return true;
  }

  const CublasLtSource source_;
  const bool transpose_a_, transpose_b_, broadcasts_, batches_, fused_;
  const std::string activation_;
};

}  // namespace

std::unique_ptr<LibraryBody> MakeMatMulLibraryBody(KernelConstruction& c, CublasLtSource source) {
  const std::string& op = c.def().name();
  if (op != "MatMul" && op != "BatchMatMul" && op != "BatchMatMulV2" && op != "_FusedMatMul") {
    return nullptr;
  }
  return std::make_unique<MatMulLibraryBody>(c, source);
}

}  // namespace millrace
