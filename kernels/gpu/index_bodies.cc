// SPDX-License-Identifier: Apache-2.0
// Gathers, scatters and unsorted segments.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/array/scatter_plan.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/scatter_call.h"
#include "kernels/math/segment_plan.h"

namespace millrace::gpu {

Status GatherRows(const Loops& loops, Queue queue, const Tensor& params, const Tensor& indices,
                  const GatherPlan& plan, const Tensor& out) {
  MR_RETURN_IF_ERROR(CheckRoom(plan.out, out));
  GatherParams p;
  p.size = SizeOf(params);
  p.index_type = indices.dtype();
  p.in = params.raw_data();
  p.indices = indices.raw_data();
  p.out = out.raw_data();
  p.batches = plan.batches;
  p.outer = plan.outer;
  p.per_batch = plan.per_batch;
  p.limit = plan.limit;
  p.inner = plan.inner;
  return ToStatus(loops.Gather(queue, p));
}

Status ScatterRows(const StreamCall& call, const Loops& loops, Queue queue, ScatterOp op,
                   const Tensor& indices, int depth, const Tensor& updates, const Tensor& out) {
  ScatterParams p;
  p.op = op;
  p.type = out.dtype();
  p.index_type = indices.dtype();
  p.indices = indices.raw_data();
  p.updates = updates.raw_data();
  p.out = out.raw_data();
  p.depth = depth;
  if (depth > kMaxAxes || depth > out.rank()) return TooManyAxes();
  for (int i = 0; i < depth; ++i) p.dims[i] = out.dim(i);
  for (int i = depth; i < out.rank(); ++i) p.inner *= out.dim(i);
  p.count = depth == 0 ? updates.num_elements() / std::max<int64_t>(1, p.inner)
                       : indices.num_elements() / depth;
  p.update_step = updates.rank() == 0 && p.count * p.inner != 1 ? 0 : 1;
  if (p.update_step == 1 && updates.num_elements() != p.count * p.inner) {
    return errors::InvalidArgument("updates of shape ", updates.shape().DebugString(),
                                   " do not fit ", p.count, " rows of ", p.inner);
  }
  if (p.count * p.inner == 0) return OkStatus();
  p.scratch = call.scratch.raw_data();
  p.scratch_bytes = call.scratch.num_elements();
  return ToStatus(loops.Scatter(queue, p));
}

int64_t ScatterNdScratchBytes(const Loops& loops, const Tensor& indices, const Tensor& updates) {
  if (indices.rank() < 1) return 0;
  const int64_t depth = std::max<int64_t>(1, indices.dim(indices.rank() - 1));
  return loops.scatter_scratch_bytes(
      std::max(indices.num_elements() / depth, updates.num_elements()));
}

ScatterOp ScatterOpOf(std::string_view op) {
  return op.ends_with("Add")   ? ScatterOp::kAdd
         : op.ends_with("Sub") ? ScatterOp::kSub
         : op.ends_with("Mul") ? ScatterOp::kMul
         : op.ends_with("Div") ? ScatterOp::kDiv
         : op.ends_with("Min") ? ScatterOp::kMin
         : op.ends_with("Max") ? ScatterOp::kMax
                               : ScatterOp::kSet;
}

namespace {

class GatherBody final : public Body {
 public:
  explicit GatherBody(KernelConstruction& c)
      : batch_dims_(c.attrs().GetOr<int64_t>("batch_dims", 0)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &params = call.inputs[0], &indices = call.inputs[1];
    int64_t axis = 0;
    if (call.inputs.size() == 3) {
      MR_ASSIGN_OR_RETURN(axis, IntScalar(call.inputs[2], "axis"));
    }
    MR_ASSIGN_OR_RETURN(const GatherPlan plan,
                        PlanGather(params.shape(), indices.shape(), axis, batch_dims_));
    return GatherRows(loops, queue, params, indices, plan, call.outputs[0]);
  }

 private:
  const int64_t batch_dims_;
};

// Of a tensor, or of the variable behind a handle.
class GatherNdBody final : public Body {
 public:
  explicit GatherNdBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& params = call.variables.empty() ? call.inputs[0] : call.variables[0].value;
    const Tensor &indices = call.inputs[1], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const GatherNdPlan plan, PlanGatherNd(params.shape(), indices.shape()));
    MR_RETURN_IF_ERROR(CheckRoom(plan.out, out));
    if (plan.depth > kMaxAxes) return TooManyAxes();
    GatherNdParams p;
    p.size = SizeOf(params);
    p.index_type = indices.dtype();
    p.in = params.raw_data();
    p.indices = indices.raw_data();
    p.out = out.raw_data();
    p.depth = plan.depth;
    for (int i = 0; i < p.depth; ++i) p.dims[i] = params.dim(i);
    p.inner = plan.inner;
    p.count = p.inner == 0 ? 0 : plan.count;
    return ToStatus(loops.GatherNd(queue, p));
  }
};

// Zeros, plus the updates.
class ScatterNdBody final : public Body {
 public:
  explicit ScatterNdBody(KernelConstruction&) {}
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    return ScatterNdScratchBytes(loops, call.inputs[0], call.inputs[1]);
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &indices = call.inputs[0], &updates = call.inputs[1], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const SlicesPlan plan,
                        PlanScatterNd(out.shape(), indices.shape(), updates.shape()));
    MR_RETURN_IF_ERROR(FillZeros(loops, queue, out));
    return ScatterRows(call, loops, queue, ScatterOp::kAdd, indices, plan.depth, updates, out);
  }
};

// A copy, with the updates.
class TensorScatterBody final : public Body {
 public:
  explicit TensorScatterBody(KernelConstruction& c) : op_(ScatterOpOf(c.def().name())) {}
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    return ScatterNdScratchBytes(loops, call.inputs[1], call.inputs[2]);
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &tensor = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2];
    const Tensor& out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const SlicesPlan plan,
                        PlanTensorScatter(tensor.shape(), indices.shape(), updates.shape()));
    MR_RETURN_IF_ERROR(CheckRoom(tensor.shape(), out));
    MR_RETURN_IF_ERROR(MoveAll(loops, queue, tensor, out));
    return ScatterRows(call, loops, queue, op_, indices, plan.depth, updates, out);
  }

 private:
  const ScatterOp op_;
};

// What a segment without rows holds.
template <typename T>
T EmptyValue(ScatterOp op) {
  using C = millrace::ComputeType<T>;
  if (op == ScatterOp::kAdd) return static_cast<T>(C(0));
  if (op == ScatterOp::kMul) return static_cast<T>(C(1));
  const bool lowest = op == ScatterOp::kMax;
  if constexpr (std::is_same_v<T, Half>) {
    return Half(lowest ? -65504.0f : 65504.0f);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::FromBits(lowest ? 0xff7f : 0x7f7f);
  } else {
    return lowest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
  }
}

class UnsortedSegmentBody final : public Body {
 public:
  explicit UnsortedSegmentBody(KernelConstruction& c) {
    const std::string& op = c.def().name();
    op_ = op.ends_with("Sum")    ? ScatterOp::kAdd
          : op.ends_with("Prod") ? ScatterOp::kMul
          : op.ends_with("Max")  ? ScatterOp::kMax
                                 : ScatterOp::kMin;
  }
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    return loops.scatter_scratch_bytes(call.inputs[1].num_elements());
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &data = call.inputs[0], &ids = call.inputs[1], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const Shape shape,
                        PlanUnsortedSegments(data.shape(), ids.shape(), call.inputs[2]));
    MR_RETURN_IF_ERROR(CheckRoom(shape, out));
    FillParams fill;
    fill.size = SizeOf(out);
    fill.to = out.raw_data();
    fill.n = out.num_elements();
    DispatchType(TypeList<float, double, Half, BFloat16, int64_t, int32_t>(), out.dtype(),
                 [&]<typename T>() {
                   const T empty = EmptyValue<T>(op_);
                   std::memcpy(fill.value, &empty, sizeof(empty));
                 });
    MR_RETURN_IF_ERROR(ToStatus(loops.Fill(queue, fill)));
    if (out.num_elements() == 0 || data.num_elements() == 0) return OkStatus();
    return ScatterRows(call, loops, queue, op_, ids, 1, data, out);
  }

 private:
  ScatterOp op_{};
};

}  // namespace

void AddIndexBodies(std::vector<BodyDef>* bodies) {
  const std::vector<DataType> indices = {kInt32, kInt64};
  const std::vector<DataType> numbers = {kFloat, kDouble, kHalf, kBfloat16, kInt64, kInt32};
  for (const char* op : {"Gather", "GatherV2"}) {
    bodies->push_back(
        {op, {{"Tparams", MovableTypes()}, {"Tindices", indices}}, &MakeBody<GatherBody>});
  }
  bodies->push_back(
      {"GatherNd", {{"Tparams", MovableTypes()}, {"Tindices", indices}}, &MakeBody<GatherNdBody>});
  bodies->push_back({"ResourceGatherNd",
                     {{"dtype", MovableTypes()}, {"Tindices", indices}},
                     &MakeBody<GatherNdBody>});
  std::vector<DataType> summed = numbers;
  summed.push_back(kBool);
  bodies->push_back(
      {"ScatterNd", {{"T", summed}, {"Tindices", indices}}, &MakeBody<ScatterNdBody>});
  for (const char* op : {"TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub",
                         "TensorScatterMin", "TensorScatterMax"}) {
    bodies->push_back({op, {{"T", numbers}, {"Tindices", indices}}, &MakeBody<TensorScatterBody>});
  }
  for (const char* op :
       {"UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"}) {
    bodies->push_back(
        {op, {{"T", numbers}, {"Tindices", indices}}, &MakeBody<UnsortedSegmentBody>});
  }
}

}  // namespace millrace::gpu
