#include "jit/accelerator_fused_kernel.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/capture.h"
#include "device/copy.h"
#include "jit/code_cache.h"
#include "jit/fused_layout.h"
#include "jit/fused_parts.h"
#include "jit/instruction_kernels.h"
#include "kernels/capturable_kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_source.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

using jit::CodeCache;
using jit::FusedLayout;
using jit::GridLoop;
using jit::GridSlot;
using jit::Spread;

// Layouts that are remembered; when there are more, the first one makes room.
constexpr std::size_t kMostLayouts = 16;

bool IsRecording(const KernelContext& ctx) {
  const RecordingAccelerator* const recording = RecorderOf(AcceleratorOf(ctx.device()));
  return recording != nullptr && recording->IsRecording();
}

class AcceleratorFusedKernel final : public Kernel, public CapturableKernel {
 public:
  AcceleratorFusedKernel(KernelConstruction& c, const OpRegistry& ops,
                         const jit::GridBackend& backend)
      : Kernel(c),
        ops_(ops),
        backend_(backend),
        registry_(CurrentKernelRegistry()),
        input_types_(c.input_types().begin(), c.input_types().end()),
        parts_(&program_, c.attrs().GetOr<std::vector<std::string>>("nodes", {})) {
    if (!c.attrs().GetOr<std::string>("reduce", "").empty()) {
      c.SetError(errors::Unimplemented("accelerators reduce nothing in a fused node"));
      return;
    }
    StatusOr<FusedProgram> program =
        ParseFusedProgram(c.attr<std::string>("program"), c.input_types(), c.output_types());
    if (!program.ok()) {
      c.SetError(program.status());
      return;
    }
    program_ = *std::move(program);
  }
  ~AcceleratorFusedKernel() override {
    for (const Variant& variant : variants_) variant.slot->Close();
  }
  bool IsExpensive() const override { return false; }

  Traits capture_traits() const override { return {.enqueues = true}; }
  bool IsSettled() const override {
    MutexLock lock(&mu_);
    return std::all_of(variants_.begin(), variants_.end(),
                       [](const Variant& variant) { return variant.slot->IsSettled(); });
  }

  Status Compute(KernelContext& ctx) override {
    const std::shared_ptr<const Known> known = FindLayout(ctx);
    // Before the loop is asked for: what is settled then stays.
    const bool is_settled = known->slot == nullptr || known->slot->IsSettled();
    std::shared_ptr<const GridLoop> loop;
    if (known->slot != nullptr) loop = known->slot->loop();
    const bool nothing = known->layout.is_one_loop && known->layout.count == 0;
    if (loop != nullptr || nothing) return Launch(ctx, known->layout, std::move(loop));
    if (!IsRecording(ctx)) return ComputeOneByOne(ctx);
    if (!is_settled) return errors::Unavailable("its loop is being compiled");
    MR_RETURN_IF_ERROR(ComputeOneByOne(ctx));
    if (parts_record_) return OkStatus();
    return errors::FailedPrecondition("one of the nodes that were fused cannot be recorded");
  }

 private:
  struct Variant {
    std::vector<Spread> spreads;
    std::shared_ptr<GridSlot> slot;
  };
  struct Known {
    FusedLayout layout;
    std::shared_ptr<GridSlot> slot;  // null: never one loop
  };
  // What an operation of the stream owns.
  struct Call {
    std::shared_ptr<const GridLoop> loop;
    std::vector<const void*> in;
    std::vector<void*> out;
    int64_t count = 0, period = 0;
  };

  static bool Fits(const KernelContext& ctx, const FusedLayout& layout) {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (!(ctx.input(i).shape() == layout.inputs[i])) return false;
    }
    return true;
  }

  // Asks for the loop when its layout is first met: every step until it is there costs as many
  // launches as there are parts.
  std::shared_ptr<const Known> FindLayout(const KernelContext& ctx) {
    MutexLock lock(&mu_);
    for (const auto& known : layouts_) {
      if (Fits(ctx, known->layout)) return known;
    }
    std::vector<Shape> shapes;
    for (int i = 0; i < ctx.num_inputs(); ++i) shapes.push_back(ctx.input(i).shape());
    auto known = std::make_shared<Known>();
    known->layout = jit::MakeFusedLayout(program_, shapes);
    if (known->layout.is_one_loop && known->layout.count > 0) {
      known->slot = FindSlot(ctx, known->layout.spreads);
    }
    if (layouts_.size() == kMostLayouts) layouts_.erase(layouts_.begin());
    layouts_.push_back(known);
    return known;
  }

  std::shared_ptr<GridSlot> FindSlot(const KernelContext& ctx, const std::vector<Spread>& spreads)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const Variant& variant : variants_) {
      if (variant.spreads == spreads) return variant.slot;
    }
    auto slot = std::make_shared<GridSlot>(&backend_, AcceleratorOf(ctx.device()));
    variants_.push_back({spreads, slot});
    CodeCache::Global()->RequestGrid(program_, input_types_, spreads, slot);
    return slot;
  }

  Status Launch(KernelContext& ctx, const FusedLayout& layout,
                std::shared_ptr<const GridLoop> loop) {
    if (layout.count == 0) {
      for (int k = 0; k < ctx.num_outputs(); ++k) {
        MR_RETURN_IF_ERROR(ctx.AllocateOutput(k, layout.output_shapes[k]).status());
      }
      return OkStatus();
    }
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) return errors::Internal("the step keeps no account of its device's work");
    auto call = std::make_shared<Call>();
    call->loop = std::move(loop);
    call->count = layout.count;
    call->period = layout.period;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (!InDeviceMemory(ctx.input(i))) {
        return errors::Internal("input ", i, " of a fused node lies in host memory");
      }
      call->in.push_back(ctx.input(i).raw_data());
    }
    // In a recording, that nobody else has an input now says nothing about later launches.
    const bool takes_over = !IsRecording(ctx);
    for (int k = 0; k < ctx.num_outputs(); ++k) {
      const auto& from = layout.candidates[k];
      const bool is_new = from[0] < 0 || !takes_over;
      MR_ASSIGN_OR_RETURN(Tensor * out,
                          is_new ? ctx.AllocateOutput(k, layout.output_shapes[k])
                                 : ctx.ForwardOrAllocateOutput({from[0], from[1], from[2], from[3]},
                                                               k, layout.output_shapes[k]));
      call->out.push_back(out->raw_data());
    }
    AcceleratorOf(ctx.device())
        ->stream(StreamKind::kCompute)
        ->Enqueue({RefPtr<DeviceWork>::Share(work), name(), [call] {
                     return call->loop->Launch(call->in.data(), call->out.data(), call->count,
                                               call->period);
                   }});
    return OkStatus();
  }

  Status ComputeOneByOne(KernelContext& ctx) {
    return parts_.Compute(ctx, name(), [&](const FusedInstruction& part, const std::string& node) {
      return MakePart(ctx.device(), part, node);
    });
  }

  StatusOr<std::unique_ptr<Kernel>> MakePart(Device* device, const FusedInstruction& part,
                                             const std::string& node) {
    std::vector<DataType> inputs;
    for (std::size_t k = 0; k < part.args.size(); ++k) {
      inputs.push_back(OperandType(part, static_cast<int>(k)));
    }
    AttrMap attrs = jit::AttrsOf(part);
    if (FormOf(part.op) == FusedForm::kSum) attrs.Set("N", static_cast<int64_t>(inputs.size()));
    MR_ASSIGN_OR_RETURN(const OpInfo* op, ops_.Lookup(NameOf(part.op)));
    AddDefaultAttrs(op->def, &attrs);
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel,
                        registry_->Create(device, op, node, attrs, inputs, {&part.result, 1}));
    const auto* const capturable = dynamic_cast<const CapturableKernel*>(kernel.get());
    if (capturable == nullptr || capturable->capture_traits().obstacle != nullptr) {
      parts_record_ = false;
    }
    return kernel;
  }

  const OpRegistry& ops_;
  const jit::GridBackend& backend_;
  const KernelRegistry* const registry_;
  const std::vector<DataType> input_types_;
  FusedProgram program_;
  FusedParts parts_;
  std::atomic<bool> parts_record_{true};  // those that have been made
  mutable Mutex mu_;
  std::vector<std::shared_ptr<const Known>> layouts_ ABSL_GUARDED_BY(mu_);
  std::vector<Variant> variants_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Kernel> MakeAcceleratorFusedKernel(KernelConstruction& c, const OpRegistry& ops,
                                                   const jit::GridBackend& backend) {
  return std::make_unique<AcceleratorFusedKernel>(c, ops, backend);
}

}  // namespace millrace
