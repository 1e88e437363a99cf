// SPDX-License-Identifier: Apache-2.0
// Derivatives of tensor arrays and lists of tensors. What arrives at an array flows back through
// a second one, which TensorArrayGradV3 finds by the name of the call of Gradients(); what
// arrives at a list is a list of the same length.
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

DataType TypeAttr(const Operation& op, std::string_view name) {
  const AttrValue value = op.attr(name);
  const DataType* const type = value.get_if<DataType>();
  return type == nullptr ? DataType::kInvalid : *type;
}

// ---- Arrays: the handle and the flow are the first and the last input of each op

struct ArrayGradient {
  Output handle, flow;
};
// `flow`: after what has been done to it.
ArrayGradient GradientOf(GradContext& c, const Output& flow) {
  const auto made = ops::TensorArrayGradV3(c.scope(), c.x(0), flow, c.source());
  return {made.grad_handle, made.flow_out};
}

Status ArrayReadGrad(GradContext& c) {
  const ArrayGradient g = GradientOf(c, c.x(2));
  c.set_dx(2, ops::TensorArrayWriteV3(c.scope(), g.handle, c.x(1), c.dy(), g.flow));
  return OkStatus();
}
Status ArrayWriteGrad(GradContext& c) {
  const ArrayGradient g = GradientOf(c, c.dy());
  c.set_dx(2,
           ops::TensorArrayReadV3(c.scope(), g.handle, c.x(1), g.flow, BaseType(c.x(2).dtype())));
  c.set_dx(3, c.dy());
  return OkStatus();
}
Status ArrayGatherGrad(GradContext& c) {
  const ArrayGradient g = GradientOf(c, c.x(2));
  c.set_dx(2, ops::TensorArrayScatterV3(c.scope(), g.handle, c.x(1), c.dy(), g.flow));
  return OkStatus();
}
Status ArrayScatterGrad(GradContext& c) {
  const ArrayGradient g = GradientOf(c, c.dy());
  c.set_dx(2,
           ops::TensorArrayGatherV3(c.scope(), g.handle, c.x(1), g.flow, BaseType(c.x(2).dtype())));
  c.set_dx(3, c.dy());
  return OkStatus();
}
Status ArrayConcatGrad(GradContext& c) {
  if (!c.dy().valid()) return OkStatus();
  const ArrayGradient g = GradientOf(c, c.x(1));
  c.set_dx(1, ops::TensorArraySplitV3(c.scope(), g.handle, c.dy(), c.y(1), g.flow));
  return OkStatus();
}
Status ArraySplitGrad(GradContext& c) {
  const ArrayGradient g = GradientOf(c, c.dy());
  c.set_dx(1,
           ops::TensorArrayConcatV3(c.scope(), g.handle, g.flow, BaseType(c.x(1).dtype())).value);
  c.set_dx(3, c.dy());
  return OkStatus();
}
// What is done to the gradients' array comes before what is done to the array that they are of.
Status ArrayGradientGrad(GradContext& c) {
  c.set_dx(1, c.dy(1));
  return OkStatus();
}

// ---- Lists

// The shape of one row of `t`.
Output RowShape(const Scope& s, const Output& t) {
  return ops::StridedSlice(s, ops::Shape(s, t), Tensor::FromValues<int32_t>({1}),
                           Tensor::FromValues<int32_t>({0}), Tensor::FromValues<int32_t>({1}),
                           {.end_mask = 1});
}
Output ElementShape(const Scope& s, const Output& list) {
  return ops::TensorListElementShape(s, list, kInt32);
}

Status ListPushBackGrad(GradContext& c) {
  const auto popped = ops::TensorListPopBack(c.scope(), c.dy(), ops::Shape(c.scope(), c.x(1)),
                                             BaseType(c.x(1).dtype()));
  c.set_dx(0, popped.output_handle);
  c.set_dx(1, popped.tensor);
  return OkStatus();
}
Status ListPopBackGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output rest = c.dy(0).valid() ? c.dy(0) : ops::ZerosLike(s, c.y(0));
  const Output last = c.dy(1).valid() ? c.dy(1) : ops::ZerosLike(s, c.y(1));
  c.set_dx(0, ops::TensorListPushBack(s, rest, last));
  return OkStatus();
}
Status ListStackGrad(GradContext& c) {
  c.set_dx(0, ops::TensorListFromTensor(c.scope(), c.dy(), RowShape(c.scope(), c.dy())));
  return OkStatus();
}
Status ListFromTensorGrad(GradContext& c) {
  c.set_dx(0, ops::TensorListStack(c.scope(), c.dy(), RowShape(c.scope(), c.x(0)),
                                   BaseType(c.x(0).dtype())));
  return OkStatus();
}
Status ListGetItemGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output empty =
      ops::TensorListReserve(s, ElementShape(s, c.x(0)), ops::TensorListLength(s, c.x(0)),
                             TypeAttr(c.op(), "element_dtype"));
  c.set_dx(0, ops::TensorListSetItem(s, empty, c.x(1), c.dy()));
  return OkStatus();
}
Status ListSetItemGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::TensorListSetItem(s, c.dy(), c.x(1), ops::ZerosLike(s, c.x(2))));
  c.set_dx(2, ops::TensorListGetItem(s, c.dy(), c.x(1), ops::Shape(s, c.x(2)),
                                     BaseType(c.x(2).dtype())));
  return OkStatus();
}
Status ListGatherGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::TensorListScatterV2(s, c.dy(), c.x(1), ElementShape(s, c.x(0)),
                                       ops::TensorListLength(s, c.x(0))));
  return OkStatus();
}
Status ListScatterGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0,
           ops::TensorListGather(s, c.dy(), c.x(1), RowShape(s, c.x(0)), BaseType(c.x(0).dtype())));
  return OkStatus();
}
Status ListScatterIntoGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::TensorListScatterIntoExistingList(s, c.dy(), ops::ZerosLike(s, c.x(1)), c.x(2)));
  c.set_dx(1,
           ops::TensorListGather(s, c.dy(), c.x(2), RowShape(s, c.x(1)), BaseType(c.x(1).dtype())));
  return OkStatus();
}
Status ListResizeGrad(GradContext& c) {
  c.set_dx(0, ops::TensorListResize(c.scope(), c.dy(), ops::TensorListLength(c.scope(), c.x(0))));
  return OkStatus();
}
Status ListConcatGrad(GradContext& c) {
  if (!c.dy().valid()) return OkStatus();
  const Scope& s = c.scope();
  c.set_dx(0, ops::TensorListSplit(s, c.dy(), ElementShape(s, c.x(0)), c.y(1)));
  return OkStatus();
}
Status ListSplitGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::TensorListConcatV2(s, c.dy(), c.x(1), c.x(2), BaseType(c.x(0).dtype())).tensor);
  return OkStatus();
}

}  // namespace

void RegisterListGradients(GradientRegistry& r) {
  r.Register("TensorArrayReadV3", ArrayReadGrad);
  r.Register("TensorArrayWriteV3", ArrayWriteGrad);
  r.Register("TensorArrayGatherV3", ArrayGatherGrad);
  r.Register("TensorArrayScatterV3", ArrayScatterGrad);
  r.Register("TensorArrayConcatV3", ArrayConcatGrad);
  r.Register("TensorArraySplitV3", ArraySplitGrad);
  r.Register("TensorArrayGradV3", ArrayGradientGrad);
  r.Register("TensorListPushBack", ListPushBackGrad);
  r.Register("TensorListPopBack", ListPopBackGrad);
  r.Register("TensorListStack", ListStackGrad);
  r.Register("TensorListFromTensor", ListFromTensorGrad);
  r.Register("TensorListGetItem", ListGetItemGrad);
  r.Register("TensorListSetItem", ListSetItemGrad);
  r.Register("TensorListGather", ListGatherGrad);
  r.Register("TensorListScatter", ListScatterGrad);
  r.Register("TensorListScatterV2", ListScatterGrad);
  r.Register("TensorListScatterIntoExistingList", ListScatterIntoGrad);
  r.Register("TensorListResize", ListResizeGrad);
  r.Register("TensorListConcatV2", ListConcatGrad);
  r.Register("TensorListSplit", ListSplitGrad);
  for (const char* op :
       {"TensorArrayV3", "TensorArraySizeV3", "TensorArrayCloseV3", "EmptyTensorList",
        "TensorListReserve", "TensorListLength", "TensorListElementShape"}) {
    r.RegisterNotDifferentiable(op);
  }
}

}  // namespace millrace
