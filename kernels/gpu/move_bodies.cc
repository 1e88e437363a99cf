// SPDX-License-Identifier: Apache-2.0
// Ops that move elements.
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/array/axis_plan.h"
#include "kernels/array/layout_plan.h"
#include "kernels/common/kernel_util.h"
#include "kernels/gpu/body.h"

namespace millrace::gpu {
namespace {

// Along the axes of a plan, which was made for the output's shape.
Status MoveAsPlanned(const Loops& loops, Queue queue, const Tensor& in, const LayoutPlan& plan,
                     const Tensor& out) {
  MR_RETURN_IF_ERROR(CheckRoom(plan.out, out));
  std::vector<MoveAxis> axes;
  for (const CopyDim& dim : plan.dims) axes.push_back({dim.size, dim.src_stride, dim.dst_stride});
  return Move(loops, queue, SizeOf(in), At(in, plan.src_offset), At(out, plan.dst_offset), axes);
}

// Of an op whose second input says where the elements of the first go.
using PlanFn = StatusOr<LayoutPlan> (*)(const Shape& in, const Tensor& operand);

template <PlanFn kPlan>
class LayoutBody final : public Body {
 public:
  explicit LayoutBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    MR_ASSIGN_OR_RETURN(const LayoutPlan plan, kPlan(in.shape(), call.inputs[1]));
    return MoveAsPlanned(loops, queue, in, plan, call.outputs[0]);
  }
};

class SliceBody final : public Body {
 public:
  explicit SliceBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    MR_ASSIGN_OR_RETURN(const LayoutPlan plan,
                        PlanSlice(in.shape(), call.inputs[1], call.inputs[2]));
    return MoveAsPlanned(loops, queue, in, plan, call.outputs[0]);
  }
};

// StridedSlice, and its gradient, which writes where the slice was read.
class StridedSliceBody final : public Body {
 public:
  explicit StridedSliceBody(KernelConstruction& c)
      : masks_(StridedSliceMasks::FromAttrs(c.attrs())),
        gradient_(c.def().name() == "StridedSliceGrad") {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& out = call.outputs[0];
    const StridedSliceOperands operands{call.inputs[1], call.inputs[2], call.inputs[3]};
    if (!gradient_) {
      const Tensor& in = call.inputs[0];
      MR_ASSIGN_OR_RETURN(const LayoutPlan plan, PlanStridedSlice(in.shape(), operands, masks_));
      return MoveAsPlanned(loops, queue, in, plan, out);
    }
    const Tensor& dy = call.inputs[4];
    MR_ASSIGN_OR_RETURN(const LayoutPlan plan,
                        PlanStridedSliceGrad(out.shape(), operands, masks_, dy.shape()));
    MR_RETURN_IF_ERROR(FillZeros(loops, queue, out));
    return MoveAsPlanned(loops, queue, dy, plan, out);
  }

 private:
  const StridedSliceMasks masks_;
  const bool gradient_;
};

class PadBody final : public Body {
 public:
  explicit PadBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const LayoutPlan plan, PlanPad(in.shape(), call.inputs[1]));
    FillParams fill;
    fill.size = SizeOf(out);
    fill.to = out.raw_data();
    fill.n = out.num_elements();
    if (call.inputs.size() == 3) {
      MR_RETURN_IF_ERROR(CheckPadValue(call.inputs[2].shape()));
      fill.from = call.inputs[2].raw_data();
    }
    MR_RETURN_IF_ERROR(ToStatus(loops.Fill(queue, fill)));
    return MoveAsPlanned(loops, queue, in, plan, out);
  }
};

// Of MirrorPad and MirrorPadGrad.
class MirrorPadBody final : public Body {
 public:
  explicit MirrorPadBody(KernelConstruction& c)
      : is_gradient_(c.def().name() == "MirrorPadGrad"),
        skip_(c.attrs().GetOr<std::string>("mode", "") == "REFLECT" ? 1 : 0) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &paddings = call.inputs[1], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const MirrorPlan plan, is_gradient_
                                                   ? PlanMirrorPadGrad(in.shape(), paddings, skip_)
                                                   : PlanMirrorPad(in.shape(), paddings, skip_));
    MR_RETURN_IF_ERROR(CheckRoom(plan.out, out));
    const Shape& padded = is_gradient_ ? in.shape() : out.shape();
    if (in.rank() > kMaxAxes) return TooManyAxes();
    MirrorParams p;
    p.type = in.dtype();
    p.size = SizeOf(in);
    p.in = in.raw_data();
    p.out = out.raw_data();
    p.rank = in.rank();
    p.n = out.num_elements();
    p.skip = skip_;
    for (int i = 0; i < p.rank; ++i) {
      p.dims[i] = plan.inner[i];
      p.before[i] = plan.before[i];
      p.padded[i] = padded.dim(i);
    }
    if (p.n == 0) return OkStatus();
    return ToStatus(is_gradient_ ? loops.MirrorPadGrad(queue, p) : loops.MirrorPad(queue, p));
  }

 private:
  const bool is_gradient_;
  const int skip_;
};

// --- Several tensors along an axis -----------------------------------------------------------

// Rows of the joined tensor and of each part: part i is [outer, sizes[i] * inner].
struct Joined {
  const Tensor& whole;
  int64_t outer = 1, row = 0;

  Joined(const Tensor& tensor, int axis) : whole(tensor) {
    row = 1;
    for (int i = 0; i < axis; ++i) outer *= tensor.dim(i);
    for (int i = axis; i < tensor.rank(); ++i) row *= tensor.dim(i);
  }
  // Parts in their order; `join` copies into the whole.
  Status Copy(const Loops& loops, Queue queue, const std::vector<const Tensor*>& parts,
              bool join) const {
    int64_t at = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Tensor* const part = parts[i];
      if (outer == 0 || part->num_elements() == 0) continue;
      const int64_t run = part->num_elements() / outer;
      if (at + run > row) {
        return errors::InvalidArgument("part ", i, " of ", parts.size(), ", of shape ",
                                       part->shape().DebugString(), ", ends at element ", at + run,
                                       " of a row, where ", whole.shape().DebugString(),
                                       " has rows of ", row,
                                       ": the parts' sizes along the axis "
                                       "must add up to its size");
      }
      const MoveAxis outer_axis = join ? MoveAxis{outer, run, row} : MoveAxis{outer, row, run};
      MR_RETURN_IF_ERROR(Move(loops, queue, SizeOf(whole), join ? part->raw_data() : At(whole, at),
                              join ? At(whole, at) : part->raw_data(), {outer_axis, {run, 1, 1}}));
      at += run;
    }
    return OkStatus();
  }
};

std::vector<const Tensor*> Pointers(const std::vector<Tensor>& tensors, std::size_t count) {
  std::vector<const Tensor*> pointers;
  for (std::size_t i = 0; i < count; ++i) pointers.push_back(&tensors[i]);
  return pointers;
}

// ConcatV2 has the axis last; Pack adds one.
class ConcatBody final : public Body {
 public:
  explicit ConcatBody(KernelConstruction& c)
      : packs_(c.def().name() == "Pack"), axis_(c.attrs().GetOr<int64_t>("axis", 0)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& out = call.outputs[0];
    int64_t given = axis_;
    if (!packs_) {
      MR_ASSIGN_OR_RETURN(given, ConcatAxis(call.inputs.back()));
    }
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, out.rank(), "axis"));
    const std::size_t count = call.inputs.size() - (packs_ ? 0 : 1);
    int64_t elements = 0;
    for (std::size_t i = 0; i < count; ++i) elements += call.inputs[i].num_elements();
    if (elements != out.num_elements()) {
      return errors::InvalidArgument("the shapes of what is joined do not go together");
    }
    return Joined(out, axis).Copy(loops, queue, Pointers(call.inputs, count), true);
  }

 private:
  const bool packs_;
  const int64_t axis_;
};

// Split (axis, value), SplitV (value, sizes, axis), Unpack (value).
class SplitBody final : public Body {
 public:
  explicit SplitBody(KernelConstruction& c)
      : op_(c.def().name()), axis_(c.attrs().GetOr<int64_t>("axis", 0)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[op_ == "Split" ? 1 : 0];
    int64_t given = axis_;
    if (op_ != "Unpack") {
      MR_ASSIGN_OR_RETURN(given, op_ == "Split" ? IntScalar(call.inputs[0], "split_dim")
                                                : OnlyInt(call.inputs[2], "split_dim"));
    }
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, in.rank(), "split_dim"));
    int64_t elements = 0;
    for (const Tensor& out : call.outputs) elements += out.num_elements();
    if (elements != in.num_elements()) {
      return errors::InvalidArgument("the sizes of the parts do not add up to the input");
    }
    return Joined(in, axis).Copy(loops, queue, Pointers(call.outputs, call.outputs.size()), false);
  }

 private:
  const std::string op_;
  const int64_t axis_;
};

// --- Diagonals -------------------------------------------------------------------------------

// Diag and MatrixDiag put a diagonal among zeros, DiagPart and MatrixDiagPart take it out.
class DiagonalBody final : public Body {
 public:
  explicit DiagonalBody(KernelConstruction& c)
      : takes_(c.def().name().ends_with("Part")), matrices_(c.def().name().starts_with("Matrix")) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    const Tensor &full = takes_ ? in : out, &line = takes_ ? out : in;
    if (!takes_) MR_RETURN_IF_ERROR(FillZeros(loops, queue, out));
    if (line.num_elements() == 0) return OkStatus();
    int64_t count = 1, n = line.num_elements(), columns = n, matrix = 0;
    if (matrices_) {
      n = line.dim(line.rank() - 1);
      columns = full.dim(full.rank() - 1);
      count = line.num_elements() / n;
      matrix = full.dim(full.rank() - 2) * columns;
    }
    const MoveAxis outer = takes_ ? MoveAxis{count, matrix, n} : MoveAxis{count, n, matrix};
    const MoveAxis inner = takes_ ? MoveAxis{n, columns + 1, 1} : MoveAxis{n, 1, columns + 1};
    return Move(loops, queue, SizeOf(in), in.raw_data(), out.raw_data(), {outer, inner});
  }

 private:
  const bool takes_, matrices_;
};

class BandBody final : public Body {
 public:
  explicit BandBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    if (in.rank() < 2) return errors::InvalidArgument("input must be at least 2-dim");
    BandParams p;
    MR_ASSIGN_OR_RETURN(p.lower, IntScalar(call.inputs[1], "num_lower"));
    MR_ASSIGN_OR_RETURN(p.upper, IntScalar(call.inputs[2], "num_upper"));
    p.size = SizeOf(in);
    p.in = in.raw_data();
    p.out = call.outputs[0].raw_data();
    p.rows = in.dim(in.rank() - 2);
    p.columns = in.dim(in.rank() - 1);
    if (p.lower > p.rows || p.upper > p.columns) {
      return errors::InvalidArgument("num_lower and num_upper must be at most the matrices' sides");
    }
    p.matrices = in.num_elements() == 0 ? 0 : in.num_elements() / (p.rows * p.columns);
    return ToStatus(loops.Band(queue, p));
  }
};

class OneHotBody final : public Body {
 public:
  explicit OneHotBody(KernelConstruction& c) : axis_(c.attrs().GetOr<int64_t>("axis", -1)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &indices = call.inputs[0], &out = call.outputs[0];
    OneHotParams p;
    p.size = SizeOf(out);
    p.index_type = indices.dtype();
    p.indices = indices.raw_data();
    p.on = call.inputs[2].raw_data();
    p.off = call.inputs[3].raw_data();
    p.out = out.raw_data();
    const int axis = static_cast<int>(axis_ < 0 ? out.rank() - 1 : axis_);
    p.depth = out.dim(axis);
    p.outer = p.inner = 1;
    for (int i = 0; i < axis; ++i) p.outer *= out.dim(i);
    for (int i = axis + 1; i < out.rank(); ++i) p.inner *= out.dim(i);
    return ToStatus(loops.OneHot(queue, p));
  }

 private:
  const int64_t axis_;
};

}  // namespace

void AddMoveBodies(std::vector<BodyDef>* bodies) {
  const auto add = [bodies](const char* op, BodyMaker make) {
    bodies->push_back({op, {{"T", MovableTypes()}}, make});
  };
  add("Transpose", &MakeBody<LayoutBody<&PlanTranspose>>);
  add("Slice", &MakeBody<SliceBody>);
  add("StridedSlice", &MakeBody<StridedSliceBody>);
  add("StridedSliceGrad", &MakeBody<StridedSliceBody>);
  add("Tile", &MakeBody<LayoutBody<&PlanTile>>);
  add("Pad", &MakeBody<PadBody>);
  add("PadV2", &MakeBody<PadBody>);
  add("BroadcastTo", &MakeBody<LayoutBody<&PlanBroadcastTo>>);
  add("ReverseV2", &MakeBody<LayoutBody<&PlanReverse>>);
  add("ConcatV2", &MakeBody<ConcatBody>);
  add("Pack", &MakeBody<ConcatBody>);
  for (const char* op : {"Split", "SplitV", "Unpack"}) add(op, &MakeBody<SplitBody>);
  for (const char* op : {"Diag", "DiagPart", "MatrixDiag", "MatrixDiagPart"}) {
    add(op, &MakeBody<DiagonalBody>);
  }
  add("MatrixBandPart", &MakeBody<BandBody>);
  bodies->push_back({"MirrorPad", {{"T", MovableTypes()}}, &MakeBody<MirrorPadBody>});
  bodies->push_back({"MirrorPadGrad", {{"T", FloatAndInt64Types()}}, &MakeBody<MirrorPadBody>});
  bodies->push_back(
      {"OneHot", {{"T", MovableTypes()}, {"TI", {kUint8, kInt32, kInt64}}}, &MakeBody<OneHotBody>});
}

}  // namespace millrace::gpu
