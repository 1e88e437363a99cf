// SPDX-License-Identifier: Apache-2.0
#include "jit/accelerator_fused_kernel.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
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
using jit::GridSizes;
using jit::GridSlot;
using jit::Spread;

// Rows of up to so many elements take a team of threads no longer than another launch would.
constexpr int64_t kShortRow = 256;
// Longer rows are written to memory and reduced by the kernel of the node, which has more threads
// for each.
constexpr int64_t kLongestRow = 4096;

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
    StatusOr<FusedProgram> program =
        ParseFusedProgram(c.attr<std::string>("program"), c.input_types(), c.output_types());
    if (!program.ok()) {
      c.SetError(program.status());
      return;
    }
    program_ = *std::move(program);
    ReadReduction(c);
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
    if (reduce_.empty() || known->rows) return ComputeLoop(ctx, *known);
    return ReduceAfterwards(ctx, [&](KernelContext& inner) { return ComputeLoop(inner, *known); });
  }

 private:
  struct Variant {
    std::vector<Spread> spreads;
    bool reduces;
    std::shared_ptr<GridSlot> slot;
  };
  struct Known {
    FusedLayout layout;
    std::optional<jit::FusedRows> rows;  // that the loop reduces
    std::shared_ptr<GridSlot> slot;      // null: never one loop
  };
  // What an operation of the stream owns.
  struct Call {
    std::shared_ptr<const GridLoop> loop;
    std::vector<const void*> in;
    std::vector<void*> out;
    GridSizes sizes;
  };

  void ReadReduction(KernelConstruction& c) {
    reduce_ = c.attrs().GetOr<std::string>("reduce", "");
    if (reduce_.empty()) return;
    axes_ = c.attrs().GetOr<std::vector<int64_t>>("axes", {});
    keep_dims_ = c.attrs().GetOr<bool>("keep_dims", false);
    const auto nodes = c.attrs().GetOr<std::vector<std::string>>("nodes", {});
    reduction_name_ = nodes.empty() ? name() : nodes.back();
    constexpr std::pair<std::string_view, int32_t> kReductions[] = {
        {"Sum", kMrJitSum}, {"Mean", kMrJitMean}, {"Max", kMrJitMax}, {"Min", kMrJitMin}};
    for (const auto& [op, number] : kReductions) {
      if (op == reduce_) reduction_ = number;
    }
    const DataType type = c.output_types()[0];
    if (reduction_ == kMrJitNoReduction || program_.outputs.size() != 1 ||
        (type != kFloat && type != kDouble)) {
      c.SetError(errors::InvalidArgument("a fused node cannot end with ", reduce_, " of ",
                                         program_.outputs.size(), " output(s) of ",
                                         DataTypeName(type)));
    }
  }
  DataType ReducedType() const { return program_.instructions[program_.outputs[0]].result; }

  // In one launch, if its loop is there.
  Status ComputeLoop(KernelContext& ctx, const Known& known) {
    // Before the loop is asked for: what is settled then stays.
    const bool is_settled = known.slot == nullptr || known.slot->IsSettled();
    std::shared_ptr<const GridLoop> loop;
    if (known.slot != nullptr) loop = known.slot->loop();
    const bool nothing = known.layout.is_one_loop && known.layout.count == 0;
    if (loop != nullptr || nothing) return Launch(ctx, known, std::move(loop));
    if (IsRecording(ctx) && !is_settled) return errors::Unavailable("its loop is being compiled");
    if (!known.rows) return ComputeOneByOne(ctx);
    return ReduceAfterwards(ctx, [this](KernelContext& inner) { return ComputeOneByOne(inner); });
  }

  // What `map` gives, reduced by the kernel that the node had.
  Status ReduceAfterwards(KernelContext& ctx, absl::FunctionRef<Status(KernelContext&)> map) {
    EdgeValue in[kMaxFusedInputs], mapped[2], result;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      in[i].value = ctx.input(i);
      in[i].kind = EdgeValue::Kind::kValue;
    }
    const DataType type = ReducedType();
    KernelContext inner(this, ctx.device(), &ctx.env(),
                        {in, static_cast<std::size_t>(ctx.num_inputs())}, {mapped, 1}, {&type, 1});
    inner.set_allocator(ctx.allocator());
    MR_RETURN_IF_ERROR(map(inner));
    const auto axes = std::span<const int64_t>(axes_);
    mapped[1].value = Tensor::FromValues<int64_t>(axes, Shape({static_cast<int64_t>(axes.size())}));
    mapped[0].kind = mapped[1].kind = EdgeValue::Kind::kValue;
    MR_ASSIGN_OR_RETURN(Kernel * reduction, FindReduction(ctx.device()));
    KernelContext last(reduction, ctx.device(), &ctx.env(), {mapped, 2}, {&result, 1}, {&type, 1});
    last.set_allocator(ctx.allocator());
    if (Status status = reduction->Compute(last); !status.ok()) {
      if (reduction->name() == name()) return status;
      return Annotate(status, StrCat("\n\t [[{{node ", reduction->name(), "}}]]"));
    }
    ctx.SetOutput(0, std::move(result.value));
    return CheckParts(ctx);
  }

  StatusOr<Kernel*> FindReduction(Device* device) {
    MutexLock lock(&mu_);
    if (reduction_kernel_ != nullptr) return reduction_kernel_.get();
    const DataType type = ReducedType();
    AttrMap attrs;
    attrs.Set("T", type);
    attrs.Set("Tidx", kInt64);
    attrs.Set("keep_dims", keep_dims_);
    MR_ASSIGN_OR_RETURN(const OpInfo* op, ops_.Lookup(reduce_));
    const DataType inputs[] = {type, kInt64};
    MR_ASSIGN_OR_RETURN(reduction_kernel_,
                        registry_->Create(device, op, reduction_name_, attrs, inputs, {&type, 1}));
    NoteWhetherItRecords(*reduction_kernel_);
    return reduction_kernel_.get();
  }

  void NoteWhetherItRecords(const Kernel& kernel) {
    const auto* const capturable = dynamic_cast<const CapturableKernel*>(&kernel);
    if (capturable == nullptr || capturable->capture_traits().obstacle != nullptr) {
      parts_record_ = false;
    }
  }
  // After kernels of parts have run.
  Status CheckParts(const KernelContext& ctx) const {
    if (!IsRecording(ctx) || parts_record_) return OkStatus();
    return errors::FailedPrecondition("one of the nodes that were fused cannot be recorded");
  }

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
      if (!reduce_.empty()) known->rows = RowsOf(known->layout);
      known->slot = FindSlot(ctx, known->layout.spreads, known->rows.has_value());
    }
    if (layouts_.size() == kMostLayouts) layouts_.erase(layouts_.begin());
    layouts_.push_back(known);
    return known;
  }

  // Rows that the loop can reduce, short or enough of them to keep a device busy.
  std::optional<jit::FusedRows> RowsOf(const FusedLayout& layout) const {
    auto rows = jit::FindFusedRows(layout.output_shapes[0], axes_, keep_dims_);
    if (!rows || rows->rows == 1) return std::nullopt;
    const bool many = rows->row <= kLongestRow && rows->rows >= rows->row;
    return rows->row <= kShortRow || many ? rows : std::nullopt;
  }

  std::shared_ptr<GridSlot> FindSlot(const KernelContext& ctx, const std::vector<Spread>& spreads,
                                     bool reduces) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const Variant& variant : variants_) {
      if (variant.spreads == spreads && variant.reduces == reduces) return variant.slot;
    }
    auto slot = std::make_shared<GridSlot>(&backend_, AcceleratorOf(ctx.device()));
    variants_.push_back({spreads, reduces, slot});
    CodeCache::Global()->RequestGrid(program_, input_types_, spreads,
                                     reduces ? reduction_ : kMrJitNoReduction, slot);
    return slot;
  }

  Status Launch(KernelContext& ctx, const Known& known, std::shared_ptr<const GridLoop> loop) {
    const FusedLayout& layout = known.layout;
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
    call->sizes = {.n = known.rows ? known.rows->rows : layout.count,
                   .period = layout.period,
                   .row = known.rows ? known.rows->row : 0};
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (!InDeviceMemory(ctx.input(i))) {
        return errors::Internal("input ", i, " of a fused node lies in host memory");
      }
      call->in.push_back(ctx.input(i).raw_data());
    }
    // In a recording, that nobody else has an input now says nothing about later launches.
    const bool takes_over = !known.rows && !IsRecording(ctx);
    for (int k = 0; k < ctx.num_outputs(); ++k) {
      const Shape& shape = known.rows ? known.rows->out : layout.output_shapes[k];
      const auto& from = layout.candidates[k];
      const bool is_new = from[0] < 0 || !takes_over;
      MR_ASSIGN_OR_RETURN(
          Tensor * out,
          is_new ? ctx.AllocateOutput(k, shape)
                 : ctx.ForwardOrAllocateOutput({from[0], from[1], from[2], from[3]}, k, shape));
      call->out.push_back(out->raw_data());
    }
    AcceleratorOf(ctx.device())
        ->stream(StreamKind::kCompute)
        ->Enqueue({RefPtr<DeviceWork>::Share(work), name(), [call] {
                     return call->loop->Launch(call->in.data(), call->out.data(), call->sizes);
                   }});
    return OkStatus();
  }

  Status ComputeOneByOne(KernelContext& ctx) {
    MR_RETURN_IF_ERROR(
        parts_.Compute(ctx, name(), [&](const FusedInstruction& part, const std::string& node) {
          return MakePart(ctx.device(), part, node);
        }));
    return CheckParts(ctx);
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
    NoteWhetherItRecords(*kernel);
    return kernel;
  }

  const OpRegistry& ops_;
  const jit::GridBackend& backend_;
  const KernelRegistry* const registry_;
  const std::vector<DataType> input_types_;
  FusedProgram program_;
  FusedParts parts_;
  std::string reduce_;  // "": the outputs are what was computed
  std::string reduction_name_;
  int32_t reduction_ = kMrJitNoReduction;
  std::vector<int64_t> axes_;
  bool keep_dims_ = false;
  std::atomic<bool> parts_record_{true};  // those that have been made
  mutable Mutex mu_;
  std::vector<std::shared_ptr<const Known>> layouts_ ABSL_GUARDED_BY(mu_);
  std::vector<Variant> variants_ ABSL_GUARDED_BY(mu_);
  // Made when it is first needed, constant from then on.
  std::unique_ptr<Kernel> reduction_kernel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Kernel> MakeAcceleratorFusedKernel(KernelConstruction& c, const OpRegistry& ops,
                                                   const jit::GridBackend& backend) {
  return std::make_unique<AcceleratorFusedKernel>(c, ops, backend);
}

}  // namespace millrace
