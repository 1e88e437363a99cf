// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/elementwise.h"

#include <atomic>

#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/strided_copy.h"

namespace millrace {

Status UnaryKernel::Compute(KernelContext& ctx) {
  // No second share of the input here: it would keep the output from taking its buffer.
  const DataType in_type = ctx.input(0).dtype();
  const void* src = ctx.input(0).raw_data();
  const Shape shape = ctx.input(0).shape();
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
  void* dst = out->raw_data();
  const DataType out_type = out->dtype();
  ctx.ParallelFor(shape.num_elements(), cost_, [&](int64_t begin, int64_t end) {
    loop_(ElementAt(src, in_type, begin), ElementAt(dst, out_type, begin), end - begin);
  });
  return OkStatus();
}

namespace {

// Equal shapes, the usual case, need no plan.
Status ComputeAligned(KernelContext& ctx, DataType in_type, BinaryLoopFn loop, double cost,
                      const Status& refusal) {
  const void* a = ctx.input(0).raw_data();
  const void* b = ctx.input(1).raw_data();
  const int64_t n = ctx.input(0).num_elements();
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0, 1}, 0, ctx.input(0).shape()));
  void* dst = out->raw_data();
  if (n == 1) return loop(a, 1, b, 1, dst, 1) ? OkStatus() : refusal;
  const DataType out_type = out->dtype();
  std::atomic<bool> valid{true};
  ctx.ParallelFor(n, cost, [&](int64_t begin, int64_t end) {
    const bool ok = loop(ElementAt(a, in_type, begin), 1, ElementAt(b, in_type, begin), 1,
                         ElementAt(dst, out_type, begin), end - begin);
    if (!ok) valid.store(false, std::memory_order_relaxed);
  });
  return valid.load(std::memory_order_relaxed) ? OkStatus() : refusal;
}

}  // namespace

Status BinaryKernel::Compute(KernelContext& ctx) {
  const DataType in_type = ctx.input(0).dtype();
  if (!broadcasts_ && !(ctx.input(0).shape() == ctx.input(1).shape())) {
    return errors::InvalidArgument(
        "Inputs must have the same shape: ", ctx.input(0).shape().DebugString(), " vs. ",
        ctx.input(1).shape().DebugString());
  }
  if (ctx.input(0).shape() == ctx.input(1).shape()) {
    return ComputeAligned(ctx, in_type, loop_, cost_, refusal_);
  }
  MR_ASSIGN_OR_RETURN(const BroadcastPlan plan,
                      MakeBroadcastPlan(ctx.input(0).shape(), ctx.input(1).shape()));
  const void* a = ctx.input(0).raw_data();
  const void* b = ctx.input(1).raw_data();
  // An operand with as many elements as the output is not repeated, so it lines up with it.
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0, 1}, 0, plan.out));
  void* dst = out->raw_data();
  const DataType out_type = out->dtype();
  const BroadcastPlan::Dim inner = plan.dims.back();
  std::atomic<bool> valid{true};
  ctx.ParallelFor(plan.out.num_elements(), cost_, [&](int64_t begin, int64_t end) {
    const bool ok = plan.ForEachRun(begin, end, [&](int64_t ia, int64_t ib, int64_t io, int64_t n) {
      return loop_(ElementAt(a, in_type, ia), inner.a_stride, ElementAt(b, in_type, ib),
                   inner.b_stride, ElementAt(dst, out_type, io), n);
    });
    if (!ok) valid.store(false, std::memory_order_relaxed);
  });
  return valid.load(std::memory_order_relaxed) ? OkStatus() : refusal_;
}

}  // namespace millrace
