// SPDX-License-Identifier: Apache-2.0
// Batch normalization in training, and its gradient, by cuDNN. With statistics that are given, our
// own loops move as little memory as anybody could.
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/cuda/batch_norm_plan.h"
#include "kernels/cuda/library_body.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/gpu/batch_norm_call.h"
#include "kernels/gpu/body.h"

namespace millrace {
namespace {

using MachineKey = std::pair<int, BatchNormKey>;
using SharedPlan = std::shared_ptr<const BatchNormPlan>;

LibraryPlanCache<MachineKey, BatchNormPlan>& Plans() {
  static auto* const plans = new LibraryPlanCache<MachineKey, BatchNormPlan>;
  return *plans;
}

constexpr int kKeptOutput = 5, kKeptInput = 5;

class BatchNormLibraryBody final : public LibraryBody {
 public:
  BatchNormLibraryBody(KernelConstruction& c, CudnnSource source)
      : source_(source), attrs_(c), keeps_(c.def().name().ends_with("V3")) {}

  StatusOr<bool> Run(const StreamCall& call, CudaMachine* machine,
                     const gpu::Loops& loops) const override {
    MR_ASSIGN_OR_RETURN(const gpu::BatchNormParams p, gpu::PlanBatchNorm(attrs_, call));
    if (!IsForLibrary(p)) return false;
    MR_ASSIGN_OR_RETURN(const SharedPlan plan, FindPlan(machine, KeyOf(call)));
    if (plan == nullptr || plan->refused()) return false;
    void* workspace = nullptr;
    if (const std::size_t bytes = plan->workspace_bytes(attrs_.is_gradient); bytes > 0) {
      MR_ASSIGN_OR_RETURN(workspace, machine->Workspace(bytes));
    }
    const Status status = attrs_.is_gradient ? Backward(call, machine, loops, p, *plan, workspace)
                                             : Forward(call, machine, loops, p, *plan, workspace);
    if (errors::IsUnimplemented(status)) return false;
    MR_RETURN_IF_ERROR(status);
    return true;
  }

  // How much the library keeps is asked in a turn of its own, once for each geometry.
  std::optional<Shape> OutputShape(const StreamCall& call, CudaMachine* machine,
                                   int output) const override {
    if (attrs_.is_gradient || !keeps_ || output != kKeptOutput) return std::nullopt;
    const StatusOr<gpu::BatchNormParams> p = gpu::PlanBatchNormSizes(attrs_, call.inputs[0]);
    if (!p.ok() || !IsForLibrary(*p)) return std::nullopt;
    const BatchNormKey key = KeyOf(call);
    SharedPlan plan = Plans().Find({machine->properties().ordinal, key});
    if (plan == nullptr) {
      machine->stream(StreamKind::kCompute)
          ->Enqueue({MakeRef<DeviceWork>(), "batch normalization", [&] {
                       MR_ASSIGN_OR_RETURN(plan, FindPlan(machine, key));
                       return OkStatus();
                     }});
    }
    if (plan == nullptr || plan->refused() || plan->kept_bytes() == 0) return std::nullopt;
    const auto bytes = static_cast<int64_t>(plan->kept_bytes());
    return Shape({(bytes + 3) / 4});  // floats
  }

 private:
  // One element has no variance that an estimate could be made of.
  bool IsForLibrary(const gpu::BatchNormParams& p) const {
    return p.training && p.outer * p.inner > 1 && p.channels > 0 &&
           static_cast<double>(p.epsilon) >= CUDNN_BN_MIN_EPSILON;
  }
  BatchNormKey KeyOf(const StreamCall& call) const {
    const Tensor& x = call.inputs[attrs_.is_gradient ? 1 : 0];
    return MakeBatchNormKey(x.shape(), x.dtype(), attrs_.channels_first, keeps_);
  }

  // Null if the library knows no way. Within a turn of the machine.
  StatusOr<SharedPlan> FindPlan(CudaMachine* machine, const BatchNormKey& key) const {
    MR_ASSIGN_OR_RETURN(const CudnnLibrary* const library, source_());
    MR_ASSIGN_OR_RETURN(void* const handle, machine->cudnn());
    StatusOr<SharedPlan> plan = Plans().Get({machine->properties().ordinal, key}, [&] {
      return BatchNormPlan::Make(*library, static_cast<cudnnHandle_t>(handle), key);
    });
    if (errors::IsUnimplemented(plan.status())) return SharedPlan();
    return plan;
  }

  Status Forward(const StreamCall& call, CudaMachine* machine, const gpu::Loops& loops,
                 const gpu::BatchNormParams& p, const BatchNormPlan& plan, void* workspace) const {
    const gpu::Queue queue{machine->compute_stream()};
    void* kept = nullptr;
    if (plan.kept_bytes() > 0) {
      const Tensor& output = call.outputs[kKeptOutput];
      // The plan was not there yet when the output was allocated.
      if (!HasRoom(output, plan)) return errors::Unimplemented("no room for what cuDNN keeps");
      kept = output.raw_data();
    } else if (call.outputs.size() > kKeptOutput) {
      MR_RETURN_IF_ERROR(gpu::FillZeros(loops, queue, call.outputs[kKeptOutput]));
    }
    // The running statistics are changed in place. Those that do not count must be numbers still.
    for (const int i : {1, 2}) {
      MR_RETURN_IF_ERROR(p.factor == 1.0f
                             ? gpu::FillZeros(loops, queue, call.outputs[i])
                             : gpu::MoveAll(loops, queue, call.inputs[2 + i], call.outputs[i]));
    }
    MR_ASSIGN_OR_RETURN(void* const handle, machine->cudnn());
    gpu::BatchNormParams asked = p;
    MR_ASSIGN_OR_RETURN(asked.batch_variance, Floats(machine, p.channels));
    MR_RETURN_IF_ERROR(plan.Forward(static_cast<cudnnHandle_t>(handle), asked, kept, workspace));
    return gpu::ToStatus(loops.Spread(
        queue, {false, asked.batch_variance, p.batch_variance, p.channels, p.epsilon}));
  }

  Status Backward(const StreamCall& call, CudaMachine* machine, const gpu::Loops& loops,
                  const gpu::BatchNormParams& p, const BatchNormPlan& plan, void* workspace) const {
    void* kept = nullptr;
    if (plan.kept_bytes() > 0) {
      // Somebody else, or our loops, made the step forwards.
      if (!HasRoom(call.inputs[kKeptInput], plan)) return errors::Unimplemented("nothing was kept");
      kept = call.inputs[kKeptInput].raw_data();
    }
    MR_ASSIGN_OR_RETURN(void* const handle, machine->cudnn());
    MR_ASSIGN_OR_RETURN(float* const inverse, Floats(machine, p.channels));
    MR_RETURN_IF_ERROR(gpu::ToStatus(loops.Spread(
        {machine->compute_stream()}, {true, p.old_variance, inverse, p.channels, p.epsilon})));
    gpu::BatchNormParams asked = p;
    asked.old_variance = inverse;
    return plan.Backward(static_cast<cudnnHandle_t>(handle), asked, kept, workspace);
  }

  static bool HasRoom(const Tensor& t, const BatchNormPlan& plan) {
    return t.num_elements() * 4 >= static_cast<int64_t>(plan.kept_bytes());
  }
  static StatusOr<float*> Floats(CudaMachine* machine, int64_t n) {
    MR_ASSIGN_OR_RETURN(void* const memory,
                        machine->Workspace(static_cast<std::size_t>(n) * sizeof(float)));
    return static_cast<float*>(memory);
  }

  const CudnnSource source_;
  const gpu::BatchNormAttrs attrs_;
  const bool keeps_;
};

}  // namespace

std::unique_ptr<LibraryBody> MakeBatchNormLibraryBody(KernelConstruction& c, CudnnSource source) {
  if (!c.def().name().starts_with("FusedBatchNorm")) return nullptr;
  return std::make_unique<BatchNormLibraryBody>(c, source);
}

}  // namespace millrace
