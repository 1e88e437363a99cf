// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/body.h"

#include <algorithm>

#include "base/errors.h"
#include "base/string_map.h"
#include "kernels/accelerator/accelerator_kernels.h"

namespace millrace::gpu {

const std::vector<BodyDef>& AllBodies() {
  static const auto* const all = [] {
    auto* bodies = new std::vector<BodyDef>;
    AddCheckBodies(bodies);
    AddElementwiseBodies(bodies);
    AddMoveBodies(bodies);
    AddReduceBodies(bodies);
    AddIndexBodies(bodies);
    AddSegmentBodies(bodies);
    AddPartitionBodies(bodies);
    AddUniqueBodies(bodies);
    AddRandomBodies(bodies);
    AddNetworkBodies(bodies);
    AddPoolBodies(bodies);
    AddBatchNormBodies(bodies);
    AddWindowBodies(bodies);
    AddVariableBodies(bodies);
    return bodies;
  }();
  return *all;
}

const BodyDef* FindBody(const KernelConstruction& c) {
  static const auto* const by_op = [] {
    auto* map = new StringMap<const BodyDef*>;
    for (const BodyDef& body : AllBodies()) (*map)[body.op] = &body;
    return map;
  }();
  const auto found = by_op->find(c.def().name());
  if (found == by_op->end()) return nullptr;
  for (const auto& [attr, types] : found->second->types) {
    const auto type = c.attrs().Get<DataType>(attr);
    if (!type.ok() || std::find(types.begin(), types.end(), *type) == types.end()) return nullptr;
  }
  return found->second;
}

std::vector<DataType> MovableTypes() { return DeviceTypes(); }

Status ToStatus(Outcome outcome) {
  return outcome == nullptr ? OkStatus() : errors::Internal(outcome);
}

Status TooManyAxes() {
  return errors::Unimplemented("more than ", kMaxAxes, " axes that cannot be joined");
}

Status CheckRoom(const Shape& planned, const Tensor& out) {
  if (out.shape() == planned) return OkStatus();
  return errors::Internal("an output of shape ", planned.DebugString(), " was given room for ",
                          out.shape().DebugString());
}

Status Move(const Loops& loops, Queue queue, int size, const void* from, void* to,
            const std::vector<MoveAxis>& axes) {
  const MovePlan plan = PlanMove(size, from, to, axes);
  TransposeParams swap;  // as far as it is one
  IndexMap<2> others;
  for (int i = 0; i < static_cast<int>(plan.axes.size()); ++i) {
    const MoveAxis& axis = plan.axes[i];
    if (plan.is_swap() && i == plan.row) {
      swap.rows = axis.size;
      swap.from_row = axis.from_stride;
    } else if (plan.is_swap() && i == plan.column) {
      swap.columns = axis.size;
      swap.to_column = axis.to_stride;
    } else if (!others.Add(axis.size, {axis.from_stride, axis.to_stride})) {
      return TooManyAxes();
    }
  }
  others.Finish();
  if (!plan.is_swap()) return ToStatus(loops.Copy(queue, {plan.size, from, to, others}));
  swap.size = plan.size;
  swap.from = from;
  swap.to = to;
  swap.batches = others;
  return ToStatus(loops.Transpose(queue, swap));
}

Status MoveAll(const Loops& loops, Queue queue, const Tensor& from, const Tensor& to) {
  return Move(loops, queue, SizeOf(from), from.raw_data(), to.raw_data(),
              {{from.num_elements(), 1, 1}});
}

Status FillZeros(const Loops& loops, Queue queue, const Tensor& to) {
  FillParams p;
  p.size = SizeOf(to);
  p.to = to.raw_data();
  p.n = to.num_elements();
  return ToStatus(loops.Fill(queue, p));
}

}  // namespace millrace::gpu
