// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN: images in the layout they have, or, if it knows no way for that, in the
// other one; filters are transposed, as the library wants outputs outermost.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/library_body.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/gpu/products.h"
#include "kernels/nn/window_plan.h"

namespace millrace {
namespace {

// The part of a device's memory that one convolution may take beside its operands.
constexpr int64_t kMemoryPerWorkspace = 8;

std::size_t WorkspaceLimit(CudaMachine* machine) {
  int64_t limit = machine->math().convolution_workspace;
  const int64_t memory = machine->allocator()->stats().bytes_limit;
  if (memory > 0) limit = std::min(limit, memory / kMemoryPerWorkspace);
  return static_cast<std::size_t>(limit);
}

// Virtual devices of one GPU may have memory of different sizes.
struct MachineKey {
  int ordinal = 0;
  std::size_t workspace_limit = 0;
  ConvKey conv;

  friend auto operator<=>(const MachineKey&, const MachineKey&) = default;
};
using SharedPlan = std::shared_ptr<const ConvPlan>;

LibraryPlanCache<MachineKey, ConvPlan>& Plans() {
  static auto* const plans = new LibraryPlanCache<MachineKey, ConvPlan>;
  return *plans;
}

// Copies and memory around one call of the library.
class Preparation {
 public:
  Preparation(CudaMachine* machine, const gpu::Loops& loops, const gpu::ConvGeometryParams& g,
              const ConvKey& key)
      : machine_(machine),
        loops_(loops),
        g_(g),
        key_(key),
        element_(static_cast<int>(DataTypeSize(key.type))),
        rows_(PlanPadding(g.rows)),
        cols_(PlanPadding(g.cols)) {}

  // The images as the library is to see them: padded, in the key's layout. `given` itself where
  // that is what they are; memory that holds nothing yet if they are what is computed.
  StatusOr<void*> Images(void* given) {
    if (AreAsTheyLie()) return given;
    MR_ASSIGN_OR_RETURN(void* const memory,
                        Memory(key_.batch * key_.channels * key_.height * key_.width));
    if (key_.kind == gpu::ConvKind::kInput) return memory;
    if (rows_.extends() || cols_.extends()) {
      gpu::FillParams zeros;
      zeros.size = element_;
      zeros.to = memory;
      zeros.n = key_.batch * key_.channels * key_.height * key_.width;
      MR_RETURN_IF_ERROR(gpu::ToStatus(loops_.Fill(Queue(), zeros)));
    }
    MR_RETURN_IF_ERROR(MoveImages(given, memory, /*back=*/false));
    return memory;
  }
  // What was computed in `memory` goes to where the node's output is.
  Status FinishImages(void* memory, void* output) {
    return memory == output ? OkStatus() : MoveImages(memory, output, /*back=*/true);
  }

  StatusOr<void*> Made(void* given) {
    if (key_.channels_first == g_.channels_first) return given;
    MR_ASSIGN_OR_RETURN(void* const memory,
                        Memory(key_.batch * key_.outputs * key_.out_height * key_.out_width));
    if (key_.kind == gpu::ConvKind::kForward) return memory;
    MR_RETURN_IF_ERROR(MoveMade(given, memory, /*back=*/false));
    return memory;
  }
  Status FinishMade(void* memory, void* output) {
    return memory == output ? OkStatus() : MoveMade(memory, output, /*back=*/true);
  }

  StatusOr<void*> Filter(void* given) {
    MR_ASSIGN_OR_RETURN(void* const memory, Memory(FilterSize()));
    if (key_.kind == gpu::ConvKind::kFilter) return memory;
    MR_RETURN_IF_ERROR(MoveFilter(given, memory, /*back=*/false));
    return memory;
  }
  Status FinishFilter(void* memory, void* output) {
    return MoveFilter(memory, output, /*back=*/true);
  }

 private:
  gpu::Queue Queue() const { return {machine_->compute_stream()}; }
  StatusOr<void*> Memory(int64_t elements) {
    return machine_->Workspace(static_cast<std::size_t>(elements * element_));
  }
  bool AreAsTheyLie() const {
    return key_.channels_first == g_.channels_first && !rows_.extends() && !cols_.extends();
  }
  int64_t FilterSize() const {
    return key_.outputs * (key_.channels / key_.groups) * key_.filter_rows * key_.filter_columns;
  }

  // Between the node's images and the library's, both by their strides.
  Status MoveImages(void* from, void* to, bool back) {
    const gpu::ImageStrides own =
        gpu::StridesOf(g_.rows.input, g_.cols.input, g_.channels, g_.channels_first);
    const gpu::ImageStrides its =
        gpu::StridesOf(key_.height, key_.width, key_.channels, key_.channels_first);
    const int64_t offset = (rows_.before * its.y + cols_.before * its.x) * element_;
    void*& library = back ? from : to;
    library = static_cast<char*>(library) + offset;
    return MoveBetween(back ? its : own, back ? own : its, key_.batch, g_.rows.input, g_.cols.input,
                       g_.channels, from, to);
  }
  Status MoveMade(void* from, void* to, bool back) {
    const gpu::ImageStrides own =
        gpu::StridesOf(key_.out_height, key_.out_width, key_.outputs, g_.channels_first);
    const gpu::ImageStrides its =
        gpu::StridesOf(key_.out_height, key_.out_width, key_.outputs, key_.channels_first);
    return MoveBetween(back ? its : own, back ? own : its, key_.batch, key_.out_height,
                       key_.out_width, key_.outputs, from, to);
  }
  Status MoveBetween(const gpu::ImageStrides& a, const gpu::ImageStrides& b, int64_t batch,
                     int64_t height, int64_t width, int64_t channels, void* from, void* to) {
    const gpu::MoveAxis n{batch, a.batch, b.batch}, y{height, a.y, b.y}, x{width, a.x, b.x},
        c{channels, a.channel, b.channel};
    // In the order in which elements are written.
    const bool channels_last = b.channel == 1;
    return gpu::Move(loops_, Queue(), element_, from, to,
                     channels_last ? std::vector<gpu::MoveAxis>{n, y, x, c}
                                   : std::vector<gpu::MoveAxis>{n, c, y, x});
  }
  // The node's [rows, columns, channels, outputs] and the library's.
  Status MoveFilter(void* from, void* to, bool back) {
    const int64_t channels = key_.channels / key_.groups, outputs = key_.outputs;
    const int64_t taps = key_.filter_rows * key_.filter_columns;
    const int64_t tap = key_.channels_first ? 1 : channels,
                  channel = key_.channels_first ? taps : 1;
    const auto axis = [back](int64_t size, int64_t own, int64_t its) {
      return back ? gpu::MoveAxis{size, its, own} : gpu::MoveAxis{size, own, its};
    };
    const gpu::MoveAxis k = axis(outputs, 1, channels * taps),
                        t = axis(taps, channels * outputs, tap),
                        c = axis(channels, outputs, channel);
    std::vector<gpu::MoveAxis> axes;
    if (back) {
      axes = {t, c, k};
    } else if (key_.channels_first) {
      axes = {k, c, t};
    } else {
      axes = {k, t, c};
    }
    return gpu::Move(loops_, Queue(), element_, from, to, axes);
  }

  CudaMachine* const machine_;
  const gpu::Loops& loops_;
  const gpu::ConvGeometryParams& g_;
  const ConvKey& key_;
  const int element_;
  const AxisPadding rows_, cols_;
};

class ConvLibraryBody final : public LibraryBody {
 public:
  ConvLibraryBody(KernelConstruction& c, CudnnSource source)
      : source_(source),
        node_(c.name()),
        attrs_(c),
        kind_(gpu::ConvKindOf(c.def().name())),
        depthwise_(c.def().name().starts_with("DepthwiseConv2d")),
        fused_(c.def().name().starts_with("_Fused")),
        activation_(c.attrs().GetOr<std::string>("activation", "")) {}

  StatusOr<bool> Run(const StreamCall& call, CudaMachine* machine,
                     const gpu::Loops& loops) const override {
    const Tensor& out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const gpu::ConvGeometryParams g,
                        gpu::PlanConvolution(attrs_, depthwise_, kind_, call));
    // Without elements somewhere there is little to do, which the loops do.
    if (g.batch * g.channels * g.outputs * g.rows.output * g.cols.output * g.rows.input *
            g.cols.input * g.rows.size * g.cols.size ==
        0) {
      return false;
    }
    if (fused_) MR_RETURN_IF_ERROR(gpu::CheckBias(call.inputs[2], out));
    for (const bool channels_first : {g.channels_first, !g.channels_first}) {
      ConvKey key = MakeConvKey(g, kind_, out.dtype(), channels_first);
      key.tf32 = machine->math().tf32;
      key.deterministic = machine->math().deterministic;
      for (const ConvKey::Epilogue epilogue : Epilogues()) {
        key.epilogue = epilogue;
        MR_ASSIGN_OR_RETURN(const bool done, RunKey(call, machine, loops, g, key));
        if (!done) continue;
        MR_RETURN_IF_ERROR(Finish(call, loops, {machine->compute_stream()}, epilogue));
        return true;
      }
    }
    return false;
  }

 private:
  // With the bias and Relu if the library can, else without them.
  std::vector<ConvKey::Epilogue> Epilogues() const {
    using enum ConvKey::Epilogue;
    if (!fused_) return {kNone};
    return {activation_ == "Relu" ? kBiasRelu : kBias, kNone};
  }
  // What the library left of the bias and the activation.
  Status Finish(const StreamCall& call, const gpu::Loops& loops, gpu::Queue queue,
                ConvKey::Epilogue done) const {
    if (!fused_ || done == ConvKey::Epilogue::kBiasRelu) return OkStatus();
    const Tensor& out = call.outputs[0];
    if (done == ConvKey::Epilogue::kBias) return gpu::Activate(loops, queue, activation_, out);
    return gpu::AddBiasAndActivate(loops, queue, call.inputs[2], activation_, out);
  }

  StatusOr<SharedPlan> FindPlan(CudaMachine* machine, const ConvKey& key) const {
    MR_ASSIGN_OR_RETURN(const CudnnLibrary* const library, source_());
    MR_ASSIGN_OR_RETURN(void* const handle, machine->cudnn());
    const std::size_t limit = WorkspaceLimit(machine);
    return Plans().Get({machine->properties().ordinal, limit, key}, [&] {
      return ConvPlan::Make(*library, static_cast<cudnnHandle_t>(handle), key, limit);
    });
  }

  // False if the library knows no way.
  StatusOr<bool> RunKey(const StreamCall& call, CudaMachine* machine, const gpu::Loops& loops,
                        const gpu::ConvGeometryParams& g, const ConvKey& key) const {
    MR_ASSIGN_OR_RETURN(const SharedPlan plan, FindPlan(machine, key));
    if (plan->first_choice() == plan->num_choices()) return false;
    void* const out = call.outputs[0].raw_data();
    Preparation prepare(machine, loops, g, key);
    ConvOperands o;
    MR_ASSIGN_OR_RETURN(o.images,
                        prepare.Images(kind_ == gpu::ConvKind::kInput ? out : Given(call, 0)));
    MR_ASSIGN_OR_RETURN(o.filter,
                        prepare.Filter(kind_ == gpu::ConvKind::kFilter ? out : Given(call, 1)));
    MR_ASSIGN_OR_RETURN(o.made,
                        prepare.Made(kind_ == gpu::ConvKind::kForward ? out : Given(call, 2)));
    if (key.epilogue != ConvKey::Epilogue::kNone) o.bias = Given(call, 2);
    MR_ASSIGN_OR_RETURN(const bool done, RunPlan(machine, key, *plan, o));
    if (!done) return false;
    switch (kind_) {
      case gpu::ConvKind::kForward:
        MR_RETURN_IF_ERROR(prepare.FinishMade(o.made, out));
        break;
      case gpu::ConvKind::kInput:
        MR_RETURN_IF_ERROR(prepare.FinishImages(o.images, out));
        break;
      default:
        MR_RETURN_IF_ERROR(prepare.FinishFilter(o.filter, out));
    }
    return true;
  }

  // The first choice that the library takes and that there is memory for, which is remembered.
  // False if the library takes none.
  StatusOr<bool> RunPlan(CudaMachine* machine, const ConvKey& key, const ConvPlan& plan,
                         const ConvOperands& operands) const {
    MR_ASSIGN_OR_RETURN(void* const handle, machine->cudnn());
    Status status;
    for (int i = plan.first_choice(); i < plan.num_choices(); ++i) {
      status = RunChoice(machine, static_cast<cudnnHandle_t>(handle), plan, i, operands);
      if (status.ok()) return true;
      if (errors::IsResourceExhausted(status)) {
        // Another algorithm has other bits: that memory is short must not decide about them.
        if (key.deterministic) return status;
        if (i + 1 == plan.num_choices()) return status;
        MR_LOG(kWarning, node_,
               ": from now on by an algorithm that needs less memory: ", status.ToString());
      } else if (!errors::IsUnimplemented(status)) {
        return status;
      }
      plan.PassOver(i);
    }
    return false;
  }
  static Status RunChoice(CudaMachine* machine, cudnnHandle_t handle, const ConvPlan& plan,
                          int choice, const ConvOperands& operands) {
    void* workspace = nullptr;
    if (const std::size_t bytes = plan.workspace_bytes(choice); bytes > 0) {
      MR_ASSIGN_OR_RETURN(workspace, machine->Workspace(bytes));
    }
    return plan.Run(handle, choice, operands, workspace);
  }

  static void* Given(const StreamCall& call, int input) { return call.inputs[input].raw_data(); }

  const CudnnSource source_;
  const std::string node_;
  const WindowAttrs attrs_;
  const gpu::ConvKind kind_;
  const bool depthwise_, fused_;
  const std::string activation_;
};

}  // namespace

std::unique_ptr<LibraryBody> MakeConvLibraryBody(KernelConstruction& c, CudnnSource source) {
  const std::string& op = c.def().name();
  if (!op.starts_with("Conv2D") && !op.starts_with("DepthwiseConv2dNative") &&
      op != "_FusedConv2D") {
    return nullptr;
  }
  return std::make_unique<ConvLibraryBody>(c, source);
}

}  // namespace millrace
