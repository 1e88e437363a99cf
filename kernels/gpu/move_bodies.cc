// Ops that move elements.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/common/strided_slice_spec.h"
#include "kernels/gpu/body.h"

namespace millrace::gpu {
namespace {

class TransposeBody final : public Body {
 public:
  explicit TransposeBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    const int rank = in.rank();
    MR_ASSIGN_OR_RETURN(const Dims perm, IntVector(call.inputs[1], "perm", true));
    std::vector<bool> seen(rank, false);
    if (static_cast<int>(perm.size()) != rank) {
      return errors::InvalidArgument("transpose expects a vector of size ", rank,
                                     ". But input(1) is a vector of size ", perm.size());
    }
    const Dims from = RowMajorStrides(in.shape().dims()), to = RowMajorStrides(out.shape().dims());
    std::vector<MoveAxis> axes;
    for (int i = 0; i < rank; ++i) {
      const int64_t k = perm[i] < 0 ? perm[i] + rank : perm[i];
      if (k < 0 || k >= rank || seen[k]) {
        return errors::InvalidArgument(perm[i],
                                       " is out of range or duplicated in the permutation");
      }
      seen[k] = true;
      axes.push_back({out.dim(i), from[k], to[i]});
    }
    return Move(loops, queue, SizeOf(in), in.raw_data(), out.raw_data(), axes);
  }
};

class SliceBody final : public Body {
 public:
  explicit SliceBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const Dims begin, IntVector(call.inputs[1], "begin", true));
    if (static_cast<int>(begin.size()) != in.rank() || out.rank() != in.rank()) {
      return errors::InvalidArgument("Expected begin and size arguments to be 1-D tensors of size ",
                                     in.rank());
    }
    const Dims from = RowMajorStrides(in.shape().dims()), to = RowMajorStrides(out.shape().dims());
    int64_t offset = 0;
    std::vector<MoveAxis> axes;
    for (int i = 0; i < in.rank(); ++i) {
      if (begin[i] < 0 || begin[i] > in.dim(i) - out.dim(i)) {
        return errors::InvalidArgument("Expected begin[", i, "] in [0, ", in.dim(i) - out.dim(i),
                                       "], but got ", begin[i]);
      }
      offset += begin[i] * from[i];
      axes.push_back({out.dim(i), from[i], to[i]});
    }
    return Move(loops, queue, SizeOf(in), At(in, offset), out.raw_data(), axes);
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
    const Tensor& whole = gradient_ ? out : call.inputs[0];
    const Tensor& dense = gradient_ ? call.inputs[4] : out;
    Dims operands[3];
    static constexpr const char* kNames[] = {"begin", "end", "strides"};
    for (int i = 0; i < 3; ++i) {
      MR_ASSIGN_OR_RETURN(operands[i], IntVector(call.inputs[1 + i], kNames[i], true));
    }
    MR_ASSIGN_OR_RETURN(
        const StridedSliceSpec spec,
        MakeStridedSliceSpec(whole.shape(), operands[0], operands[1], operands[2], masks_));
    if (!(dense.shape() == spec.out)) {
      return errors::InvalidArgument("shape of dy was ", dense.shape().DebugString(),
                                     " instead of ", spec.out.DebugString());
    }
    if (gradient_) MR_RETURN_IF_ERROR(FillZeros(loops, queue, out));
    if (dense.num_elements() == 0) return OkStatus();
    const Dims strides = RowMajorStrides(whole.shape().dims());
    const Dims packed = RowMajorStrides({spec.count.data(), spec.count.size()});
    int64_t offset = 0;
    std::vector<MoveAxis> axes;
    for (int i = 0; i < whole.rank(); ++i) {
      offset += spec.begin[i] * strides[i];
      const int64_t step = spec.step[i] * strides[i];
      axes.push_back({spec.count[i], gradient_ ? packed[i] : step, gradient_ ? step : packed[i]});
    }
    if (gradient_) {
      return Move(loops, queue, SizeOf(out), dense.raw_data(), At(out, offset), axes);
    }
    return Move(loops, queue, SizeOf(out), At(whole, offset), out.raw_data(), axes);
  }

 private:
  const StridedSliceMasks masks_;
  const bool gradient_;
};

class TileBody final : public Body {
 public:
  explicit TileBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const Dims times, IntVector(call.inputs[1], "multiples", true));
    if (static_cast<int>(times.size()) != in.rank() || out.rank() != in.rank()) {
      return errors::InvalidArgument("Expected multiples argument to be a vector of length ",
                                     in.rank(), " but got length ", times.size());
    }
    const Dims from = RowMajorStrides(in.shape().dims()), to = RowMajorStrides(out.shape().dims());
    std::vector<MoveAxis> axes;
    for (int i = 0; i < in.rank(); ++i) {
      axes.push_back({times[i], 0, to[i] * in.dim(i)});
      axes.push_back({in.dim(i), from[i], to[i]});
    }
    return Move(loops, queue, SizeOf(in), in.raw_data(), out.raw_data(), axes);
  }
};

class PadBody final : public Body {
 public:
  explicit PadBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    const int rank = in.rank();
    if (call.inputs[1].num_elements() != 2 * rank) {
      return errors::InvalidArgument("paddings must be a matrix of shape [", rank, ",2]");
    }
    MR_ASSIGN_OR_RETURN(const Tensor flat, call.inputs[1].Reshaped(Shape({2 * rank})));
    MR_ASSIGN_OR_RETURN(const Dims pad, IntVector(flat, "paddings"));
    FillParams fill;
    fill.size = SizeOf(out);
    fill.to = out.raw_data();
    fill.n = out.num_elements();
    if (call.inputs.size() == 3) fill.from = call.inputs[2].raw_data();
    MR_RETURN_IF_ERROR(ToStatus(loops.Fill(queue, fill)));
    const Dims from = RowMajorStrides(in.shape().dims()), to = RowMajorStrides(out.shape().dims());
    int64_t offset = 0;
    std::vector<MoveAxis> axes;
    for (int i = 0; i < rank; ++i) {
      if (pad[2 * i] < 0 || pad[2 * i + 1] < 0 ||
          out.dim(i) != in.dim(i) + pad[2 * i] + pad[2 * i + 1]) {
        return errors::InvalidArgument("Paddings must be non-negative: ", pad[2 * i], " ",
                                       pad[2 * i + 1]);
      }
      offset += pad[2 * i] * to[i];
      axes.push_back({in.dim(i), from[i], to[i]});
    }
    return Move(loops, queue, SizeOf(in), in.raw_data(), At(out, offset), axes);
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
    const Shape &inner = is_gradient_ ? out.shape() : in.shape(),
                &outer = is_gradient_ ? in.shape() : out.shape();
    const int rank = in.rank();
    if (rank > kMaxAxes) return TooManyAxes();
    if (paddings.rank() != 2 || paddings.dim(0) != rank || paddings.dim(1) != 2 ||
        out.rank() != rank) {
      return errors::InvalidArgument(
          "paddings must be a matrix with 2 columns and as many rows ",
          "as the input has dimensions: ", paddings.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Tensor flat, paddings.Reshaped(Shape({2 * rank})));
    MR_ASSIGN_OR_RETURN(const Dims pad, IntVector(flat, "paddings"));
    MirrorParams p;
    p.type = in.dtype();
    p.size = SizeOf(in);
    p.in = in.raw_data();
    p.out = out.raw_data();
    p.rank = rank;
    p.n = out.num_elements();
    p.skip = skip_;
    for (int i = 0; i < rank; ++i) {
      const int64_t front = pad[2 * i], back = pad[2 * i + 1];
      const int64_t most = std::max<int64_t>(inner.dim(i) - skip_, 0);
      if (front < 0 || back < 0 || front > most || back > most ||
          outer.dim(i) != inner.dim(i) + front + back) {
        return errors::InvalidArgument("paddings must be no greater than the dimension size",
                                       skip_ != 0 ? " minus one" : "", ": ", front, ", ", back,
                                       " greater than ", inner.dim(i));
      }
      p.dims[i] = inner.dim(i);
      p.before[i] = front;
      p.padded[i] = outer.dim(i);
    }
    if (p.n == 0) return OkStatus();
    return ToStatus(is_gradient_ ? loops.MirrorPadGrad(queue, p) : loops.MirrorPad(queue, p));
  }

 private:
  const bool is_gradient_;
  const int skip_;
};

class BroadcastToBody final : public Body {
 public:
  explicit BroadcastToBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    const int extra = out.rank() - in.rank();
    if (extra < 0) return errors::InvalidArgument("Incompatible shapes");
    const Dims from = RowMajorStrides(in.shape().dims()), to = RowMajorStrides(out.shape().dims());
    std::vector<MoveAxis> axes;
    for (int i = 0; i < out.rank(); ++i) {
      const bool repeated = i < extra || in.dim(i - extra) == 1;
      if (!repeated && in.dim(i - extra) != out.dim(i)) {
        return errors::InvalidArgument("Incompatible shapes: ", in.shape().DebugString(), " vs. ",
                                       out.shape().DebugString());
      }
      axes.push_back({out.dim(i), repeated ? 0 : from[i - extra], to[i]});
    }
    return Move(loops, queue, SizeOf(in), in.raw_data(), out.raw_data(), axes);
  }
};

class ReverseBody final : public Body {
 public:
  explicit ReverseBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const Dims given, IntVector(call.inputs[1], "axis", true));
    Dims reversed(in.rank(), 0);
    for (const int64_t axis : given) {
      MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, in.rank(), "axis"));
      if (reversed[i]++) return errors::InvalidArgument("axis ", i, " specified more than once");
    }
    if (in.num_elements() == 0) return OkStatus();
    const Dims strides = RowMajorStrides(in.shape().dims());
    int64_t offset = 0;
    std::vector<MoveAxis> axes;
    for (int i = 0; i < in.rank(); ++i) {
      if (reversed[i]) offset += (in.dim(i) - 1) * strides[i];
      axes.push_back({in.dim(i), reversed[i] ? -strides[i] : strides[i], strides[i]});
    }
    return Move(loops, queue, SizeOf(in), At(in, offset), out.raw_data(), axes);
  }
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
    for (const Tensor* part : parts) {
      if (outer == 0 || part->num_elements() == 0) continue;
      const int64_t run = part->num_elements() / outer;
      if (at + run > row) return errors::InvalidArgument("parts that are larger than the whole");
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
      MR_ASSIGN_OR_RETURN(given, IntScalar(call.inputs.back(), "axis"));
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
      MR_ASSIGN_OR_RETURN(given, IntScalar(call.inputs[op_ == "Split" ? 0 : 2], "split_dim"));
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
  add("Transpose", &MakeBody<TransposeBody>);
  add("Slice", &MakeBody<SliceBody>);
  add("StridedSlice", &MakeBody<StridedSliceBody>);
  add("StridedSliceGrad", &MakeBody<StridedSliceBody>);
  add("Tile", &MakeBody<TileBody>);
  add("Pad", &MakeBody<PadBody>);
  add("PadV2", &MakeBody<PadBody>);
  add("BroadcastTo", &MakeBody<BroadcastToBody>);
  add("ReverseV2", &MakeBody<ReverseBody>);
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
