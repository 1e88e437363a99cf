// SPDX-License-Identifier: Apache-2.0
// Reductions of rows that share an id, which are sorted: Segment*, SparseSegment* and the latter's
// gradients.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/reduce_plan.h"
#include "kernels/math/segment_plan.h"

namespace millrace::gpu {
namespace {

Weigh WeighOf(std::string_view op) {
  return op.find("Mean") != op.npos    ? Weigh::kMean
         : op.find("SqrtN") != op.npos ? Weigh::kSqrtN
                                       : Weigh::kNone;
}

// The last of the sorted ids, as the number that is waited for; nothing without ids.
Status TakeLast(const Loops& loops, Queue queue, const Tensor& ids, const Tensor& counts) {
  const int64_t n = ids.num_elements();
  if (n == 0) return FillZeros(loops, queue, counts);
  CastParams p;
  p.from = ids.dtype();
  p.to = kInt64;
  p.in = At(ids, n - 1);
  p.out = counts.raw_data();
  p.n = 1;
  if (p.from == p.to) {
    return Move(loops, queue, SizeOf(ids), p.in, p.out, {{1, 1, 1}});
  }
  return ToStatus(loops.Cast(queue, p));
}

// Those of `like`, but so many.
StatusOr<Shape> WithRows(const Tensor& like, int64_t rows) {
  Dims dims(like.shape().dims().begin(), like.shape().dims().end());
  dims[0] = rows;
  return MakeShape({dims.data(), dims.size()});
}

// Rows of `data` as the last id asks for them.
StatusOr<std::vector<Shape>> LastIdShapes(const StreamCall& call, int ids) {
  const bool none = call.inputs[ids].num_elements() == 0;
  // -1 would say that there is no id.
  if (!none) MR_RETURN_IF_ERROR(CheckSegmentId(call.counted[0], -1));
  MR_ASSIGN_OR_RETURN(Shape shape,
                      SegmentsShape(call.inputs[0].shape(), none ? -1 : call.counted[0]));
  return std::vector<Shape>{std::move(shape)};
}

int64_t RowSize(const Tensor& t) { return t.dim(0) == 0 ? 0 : t.num_elements() / t.dim(0); }

class SegmentBody final : public Body {
 public:
  explicit SegmentBody(KernelConstruction& c) {
    const std::string_view op = c.def().name();
    op_ = op.ends_with("Prod")  ? ScatterOp::kMul
          : op.ends_with("Max") ? ScatterOp::kMax
          : op.ends_with("Min") ? ScatterOp::kMin
                                : ScatterOp::kAdd;
    weigh_ = WeighOf(op);
  }
  int64_t num_counts() const override { return 1; }
  Status Count(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &data = call.inputs[0], &ids = call.inputs[1];
    MR_RETURN_IF_ERROR(CheckSegments(data.shape(), ids.shape()));
    return TakeLast(loops, queue, ids, call.counts);
  }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    return LastIdShapes(call, 1);
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &data = call.inputs[0], &ids = call.inputs[1], &out = call.outputs[0];
    MR_RETURN_IF_ERROR(FillEmpty(loops, queue, out));
    SegmentParams p;
    p.op = op_;
    p.weigh = weigh_;
    p.type = data.dtype();
    p.id_type = ids.dtype();
    p.in = data.raw_data();
    p.ids = ids.raw_data();
    p.out = out.raw_data();
    p.count = p.rows = ids.dim(0);
    p.inner = RowSize(data);
    p.segments = out.dim(0);
    return ToStatus(loops.Segment(queue, p));
  }

 private:
  // Gaps between ids become zeros, or ones where rows are multiplied.
  Status FillEmpty(const Loops& loops, Queue queue, const Tensor& out) const {
    if (op_ != ScatterOp::kMul) return FillZeros(loops, queue, out);
    FillParams fill;
    fill.size = SizeOf(out);
    fill.to = out.raw_data();
    fill.n = out.num_elements();
    DispatchType(TypeList<float, double, Half, BFloat16, int64_t, int32_t>(), out.dtype(),
                 [&]<typename T>() {
                   const T one = static_cast<T>(millrace::ComputeType<T>(1));
                   std::memcpy(fill.value, &one, sizeof(one));
                 });
    return ToStatus(loops.Fill(queue, fill));
  }

  ScatterOp op_{};
  Weigh weigh_{};
};

// Row indices[i] of the data belongs to segment segment_ids[i].
class SparseSegmentBody final : public Body {
 public:
  explicit SparseSegmentBody(KernelConstruction& c)
      : weigh_(WeighOf(c.def().name())), counts_(c.input_types().size() == 3) {}
  int64_t num_counts() const override { return counts_ ? 1 : 0; }
  Status Count(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_RETURN_IF_ERROR(CheckOperands(call));
    return TakeLast(loops, queue, call.inputs[2], call.counts);
  }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    return LastIdShapes(call, 2);
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_RETURN_IF_ERROR(CheckOperands(call));
    const Tensor &data = call.inputs[0], &indices = call.inputs[1], &ids = call.inputs[2];
    const Tensor& out = call.outputs[0];
    MR_RETURN_IF_ERROR(FillZeros(loops, queue, out));
    SegmentParams p;
    p.weigh = weigh_;
    p.type = data.dtype();
    p.id_type = ids.dtype();
    p.source_type = indices.dtype();
    p.in = data.raw_data();
    p.ids = ids.raw_data();
    p.sources = indices.raw_data();
    p.out = out.raw_data();
    p.count = ids.dim(0);
    p.inner = RowSize(data);
    p.rows = data.dim(0);
    p.segments = out.dim(0);
    return ToStatus(loops.Segment(queue, p));
  }

 private:
  static Status CheckOperands(const StreamCall& call) {
    return CheckChosenRows(call.inputs[0].shape(), call.inputs[1].shape(), call.inputs[2].shape());
  }

  const Weigh weigh_;
  const bool counts_;
};

// Inputs: gradient of the segments, indices, segment ids, number of rows of the data. V2 has the
// rows that have a gradient only, and their indices.
class SparseSegmentGradBody final : public Body {
 public:
  explicit SparseSegmentGradBody(KernelConstruction& c)
      : weigh_(WeighOf(c.def().name())), distinct_(c.output_types().size() == 2) {}
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    const Layout layout(call, loops, distinct_);
    return layout.total;
  }
  int64_t num_counts() const override { return distinct_ ? 1 : 0; }
  Status Count(const StreamCall& call, const Loops& loops, Queue queue) const override {
    return Sort(call, loops, queue);
  }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    MR_ASSIGN_OR_RETURN(Shape shape, WithRows(call.inputs[0], call.counted[0]));
    return std::vector<Shape>{std::move(shape), Shape({call.counted[0]})};
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    if (!distinct_) MR_RETURN_IF_ERROR(Sort(call, loops, queue));
    const Tensor &gradient = call.inputs[0], &indices = call.inputs[1], &ids = call.inputs[2];
    const Tensor& out = call.outputs[0];
    MR_RETURN_IF_ERROR(FillZeros(loops, queue, out));
    MR_ASSIGN_OR_RETURN(const int64_t rows, ReadDataRows(call.inputs[3]));
    const Layout layout(call, loops, distinct_);
    SegmentGradParams p;
    p.weigh = weigh_;
    p.type = gradient.dtype();
    p.index_type = indices.dtype();
    p.id_type = ids.dtype();
    p.gradient = gradient.raw_data();
    p.ids = ids.raw_data();
    p.out = out.raw_data();
    if (distinct_) {
      p.touched = call.outputs[1].raw_data();
      p.places = static_cast<const int64_t*>(At(call.scratch, layout.places));
    }
    p.scratch = call.scratch.raw_data();
    p.sizes = static_cast<int32_t*>(At(call.scratch, layout.sizes));
    p.count = indices.dim(0);
    p.inner = RowSize(gradient);
    p.rows = rows;
    p.segments = gradient.dim(0);
    return ToStatus(loops.SegmentGrad(queue, p));
  }

 private:
  // What lies where in scratch, in bytes.
  struct Layout {
    int64_t sort = 0, chunks = 1, scan = 0, places = 0, sizes = 0, total = 0;
    Layout(const StreamCall& call, const Loops& loops, bool distinct) {
      const int64_t n = call.inputs[1].num_elements();
      sort = RoundUp(loops.scatter_scratch_bytes(n));
      scan = places = sizes = sort;
      if (distinct) {
        chunks = PlanScanChunks(1, n, 1);
        places = scan + RoundUp(8 * chunks);
        sizes = places + RoundUp(8 * n);
      }
      const Tensor& gradient = call.inputs[0];
      total = sizes + (gradient.rank() < 1 ? 0 : RoundUp(4 * gradient.dim(0)));
    }
  };

  Status Sort(const StreamCall& call, const Loops& loops, Queue queue) const {
    const Tensor& indices = call.inputs[1];
    MR_RETURN_IF_ERROR(
        CheckChosenGradient(call.inputs[0].shape(), indices.shape(), call.inputs[2].shape()));
    MR_ASSIGN_OR_RETURN(const int64_t rows, ReadDataRows(call.inputs[3]));
    const Layout layout(call, loops, distinct_);
    SortRowsParams p;
    p.index_type = indices.dtype();
    p.indices = indices.raw_data();
    p.count = indices.dim(0);
    p.rows = rows;
    p.scratch = call.scratch.raw_data();
    p.scratch_bytes = layout.sort;
    if (distinct_) {
      p.chunks = layout.chunks;
      p.scan_scratch = At(call.scratch, layout.scan);
      p.places = static_cast<int64_t*>(At(call.scratch, layout.places));
      p.distinct = static_cast<int64_t*>(call.counts.raw_data());
    }
    return ToStatus(loops.SortRows(queue, p));
  }

  const Weigh weigh_;
  const bool distinct_;
};

}  // namespace

void AddSegmentBodies(std::vector<BodyDef>* bodies) {
  const std::vector<DataType> indices = {kInt32, kInt64};
  const std::vector<DataType> numbers = {kFloat, kDouble, kHalf, kBfloat16, kInt64, kInt32};
  for (const char* op : {"SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin"}) {
    bodies->push_back({op, {{"T", numbers}, {"Tindices", indices}}, &MakeBody<SegmentBody>});
  }
  for (const char* op : {"SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN",
                         "SparseSegmentSumWithNumSegments", "SparseSegmentMeanWithNumSegments",
                         "SparseSegmentSqrtNWithNumSegments"}) {
    bodies->push_back({op,
                       {{"T", numbers}, {"Tidx", indices}, {"Tsegmentids", indices}},
                       &MakeBody<SparseSegmentBody>});
  }
  for (const char* op :
       {"SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad",
        "SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2"}) {
    bodies->push_back({op,
                       {{"T", FloatTypes()}, {"Tidx", indices}, {"Tsegmentids", indices}},
                       &MakeBody<SparseSegmentGradBody>});
  }
}

}  // namespace millrace::gpu
