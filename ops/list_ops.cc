// SPDX-License-Identifier: Apache-2.0
// Stacks and arrays of one step, and lists that are values.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

Status ArrayHandleShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, Shape());
  if (!c.attrs().Has("dtype")) return OkStatus();
  MR_ASSIGN_OR_RETURN(const DataType dtype, c.attr<DataType>("dtype"));
  const PartialShape element = c.attrs().GetOr<PartialShape>("element_shape", PartialShape());
  c.set_output_handle(0, {dtype, element});
  return OkStatus();
}

PartialShape ArrayElement(const InferenceContext& c) {
  return c.handle(0) == nullptr ? PartialShape() : c.handle(0)->shape;
}

Status ArrayReadShape(InferenceContext& c) {
  c.set_output(0, ArrayElement(c));
  return OkStatus();
}

// As many elements as there are indices.
Status ArrayGatherShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape declared, c.attr<PartialShape>("element_shape"));
  MR_ASSIGN_OR_RETURN(const PartialShape element, declared.MergeWith(ArrayElement(c)));
  c.set_output(0, ConcatShapes(PartialShape({indices.has_rank() ? indices.dim(0) : -1}), element));
  return OkStatus();
}

// The value, and one length for each element.
Status ConcatAndLengthsShape(InferenceContext& c) {
  c.set_output(1, UnknownDims(1));
  return OkStatus();
}

// The operand that holds an element's shape, the last one: -1 for any.
PartialShape ElementShapeInput(const InferenceContext& c, int i) {
  Dims dims;
  if (ConstantInts(c, i, &dims) && c.constant(i)->rank() == 1) {
    for (int64_t& dim : dims) dim = dim < 0 ? -1 : dim;
    return PartialShape(dims);
  }
  if (const StatusOr<PartialShape> shape = c.InputAsShape(i); shape.ok()) return *shape;
  return PartialShape();
}

Status ListPopShape(InferenceContext& c) {
  c.set_output(0, Shape());
  c.set_output(1, ElementShapeInput(c, 1));
  return OkStatus();
}

Status ListGetItemShape(InferenceContext& c) {
  c.set_output(0, ElementShapeInput(c, 2));
  return OkStatus();
}

Status ListStackShape(InferenceContext& c) {
  const int64_t n = c.attrs().GetOr<int64_t>("num_elements", -1);
  c.set_output(0, ConcatShapes(PartialShape({n}), ElementShapeInput(c, 1)));
  return OkStatus();
}

Status ListGatherShape(InferenceContext& c) {
  const PartialShape& indices = c.input(1);
  c.set_output(
      0,
      ConcatShapes(PartialShape({indices.has_rank() && indices.rank() > 0 ? indices.dim(0) : -1}),
                   ElementShapeInput(c, 2)));
  return OkStatus();
}

Status SecondInputShape(InferenceContext& c) {
  c.set_output(0, c.input(1));
  return OkStatus();
}

// Handles as two strings, and the flow if there is one.
Status TextHandleShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, i == 0 ? PartialShape({2}) : PartialShape(Shape()));
  }
  return OkStatus();
}

// As many elements as there are indices, of which only the attribute tells the shape.
Status TextGatherShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape element, c.attr<PartialShape>("element_shape"));
  c.set_output(0, ConcatShapes(PartialShape({indices.has_rank() ? indices.dim(0) : -1}), element));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"EmptyTensorList", "element_shape: shape_type, max_num_elements: int32",
     "handle: array(element_dtype)", "element_dtype: type; shape_type: {int32, int64}",
     ScalarShape},
    {"Stack", "", "handle: Ref(string)", "elem_type: type; stack_name: string = ''",
     HandleVectorShape, kStateful},
    {"StackClose", "handle: Ref(string)", "", "", NoOutputs},
    {"StackPop", "handle: Ref(string)", "elem: elem_type", "elem_type: type", UnknownShape},
    {"StackPush", "handle: Ref(string), elem: T", "output: T", "T: type; swap_memory: bool = false",
     SecondInputShape},
    {"StackCloseV2", "handle: resource", "", "", NoOutputs, kStateful},
    {"StackPopV2", "handle: resource", "elem: elem_type", "elem_type: type", UnknownShape,
     kStateful},
    {"StackPushV2", "handle: resource, elem: T", "output: T", "T: type; swap_memory: bool = false",
     SecondInputShape, kStateful},
    {"StackV2", "max_size: int32", "handle: resource", "elem_type: type; stack_name: string = ''",
     ScalarShape, kStateful},
    {"TensorArrayCloseV3", "handle: resource", "", "", NoOutputs, kStateful},
    {"TensorArrayConcatV3", "handle: resource, flow_in: float", "value: dtype, lengths: int64",
     "dtype: type; element_shape_except0: shape = ?", ConcatAndLengthsShape, kStateful},
    {"TensorArrayGatherV3", "handle: resource, indices: int32, flow_in: float", "value: dtype",
     "dtype: type; element_shape: shape = ?", ArrayGatherShape, kStateful},
    {"TensorArrayGradV3", "handle: resource, flow_in: float",
     "grad_handle: resource, flow_out: float", "source: string", ArrayHandleShape, kStateful},
    {"TensorArrayGradWithShape", "handle: resource, flow_in: float, shape_to_prepend: int32",
     "grad_handle: resource, flow_out: float", "source: string", ArrayHandleShape, kStateful},
    {"TensorArrayCloseV2", "handle: string", "", "", NoOutputs, kReplaced},
    {"TensorArrayConcatV2", "handle: string, flow_in: float", "value: dtype, lengths: int64",
     "dtype: type; element_shape_except0: shape = ?", ConcatAndLengthsShape},
    {"TensorArrayGatherV2", "handle: string, indices: int32, flow_in: float", "value: dtype",
     "dtype: type; element_shape: shape = ?", TextGatherShape, kReplaced},
    {"TensorArrayGradV2", "handle: string, flow_in: float", "grad_handle: string", "source: string",
     TextHandleShape, kStateful | kReplaced},
    {"TensorArrayReadV2", "handle: string, index: int32, flow_in: float", "value: dtype",
     "dtype: type", UnknownShape, kReplaced},
    {"TensorArrayScatterV2", "handle: string, indices: int32, value: T, flow_in: float",
     "flow_out: float", "T: type", ScalarShape, kReplaced},
    {"TensorArraySizeV2", "handle: string, flow_in: float", "size: int32", "", ScalarShape,
     kReplaced},
    {"TensorArraySplitV2", "handle: string, value: T, lengths: int64, flow_in: float",
     "flow_out: float", "T: type", ScalarShape, kReplaced},
    {"TensorArrayV2", "size: int32", "handle: string",
     "dtype: type; element_shape: shape = ?; dynamic_size: bool = false; clear_after_read: bool = "
     "true; tensor_array_name: string = ''",
     TextHandleShape, kStateful | kReplaced},
    {"TensorArrayWriteV2", "handle: string, index: int32, value: T, flow_in: float",
     "flow_out: float", "T: type", ScalarShape, kReplaced},
    {"TensorArrayReadV3", "handle: resource, index: int32, flow_in: float", "value: dtype",
     "dtype: type", ArrayReadShape, kStateful},
    {"TensorArrayScatterV3", "handle: resource, indices: int32, value: T, flow_in: float",
     "flow_out: float", "T: type", ScalarShape, kStateful},
    {"TensorArraySizeV3", "handle: resource, flow_in: float", "size: int32", "", ScalarShape,
     kStateful},
    {"TensorArraySplitV3", "handle: resource, value: T, lengths: int64, flow_in: float",
     "flow_out: float", "T: type", ScalarShape, kStateful},
    {"TensorArrayV3", "size: int32", "handle: resource, flow: float",
     "dtype: type; element_shape: shape = ?; dynamic_size: bool = false; clear_after_read: bool = "
     "true; identical_element_shapes: bool = false; tensor_array_name: string = ''",
     ArrayHandleShape, kStateful},
    {"TensorArrayWriteV3", "handle: resource, index: int32, value: T, flow_in: float",
     "flow_out: float", "T: type", ScalarShape, kStateful},
    {"TensorListConcatLists", "input_a: variant, input_b: variant", "output: array(element_dtype)",
     "element_dtype: type", UnchangedShape},
    {"TensorListConcatV2", "input_handle: variant, element_shape: shape_type, leading_dims: int64",
     "tensor: element_dtype, lengths: int64", "element_dtype: type; shape_type: {int32, int64}",
     ConcatAndLengthsShape},
    {"TensorListElementShape", "input_handle: variant", "element_shape: shape_type",
     "shape_type: {int32, int64}", UnknownShape},
    {"TensorListFromTensor", "tensor: element_dtype, element_shape: shape_type",
     "output_handle: array(element_dtype)", "element_dtype: type; shape_type: {int32, int64}",
     ScalarShape},
    {"TensorListGather", "input_handle: variant, indices: int32, element_shape: int32",
     "values: element_dtype", "element_dtype: type", ListGatherShape},
    {"TensorListGetItem", "input_handle: variant, index: int32, element_shape: Tshape",
     "item: element_dtype", "element_dtype: type; Tshape: {int32, int64} = int32",
     ListGetItemShape},
    {"TensorListLength", "input_handle: variant", "length: int32", "", ScalarShape},
    {"TensorListPopBack", "input_handle: variant, element_shape: int32",
     "output_handle: variant, tensor: element_dtype", "element_dtype: type", ListPopShape},
    {"TensorListPushBack", "input_handle: variant, tensor: element_dtype",
     "output_handle: array(element_dtype)", "element_dtype: type", ScalarShape},
    {"TensorListReserve", "element_shape: shape_type, num_elements: int32",
     "handle: array(element_dtype)", "element_dtype: type; shape_type: {int32, int64}",
     ScalarShape},
    {"TensorListResize", "input_handle: variant, size: int32", "output_handle: variant", "",
     ScalarShape},
    {"TensorListScatter", "tensor: element_dtype, indices: int32, element_shape: shape_type",
     "output_handle: array(element_dtype)", "element_dtype: type; shape_type: {int32, int64}",
     ScalarShape},
    {"TensorListScatterIntoExistingList",
     "input_handle: variant, tensor: element_dtype, indices: int32",
     "output_handle: array(element_dtype)", "element_dtype: type", ScalarShape},
    {"TensorListScatterV2",
     "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32",
     "output_handle: array(element_dtype)", "element_dtype: type; shape_type: {int32, int64}",
     ScalarShape},
    {"TensorListSetItem", "input_handle: variant, index: int32, item: element_dtype",
     "output_handle: array(element_dtype)",
     "element_dtype: type; resize_if_index_out_of_bounds: bool = false", ScalarShape},
    {"TensorListSplit", "tensor: element_dtype, element_shape: shape_type, lengths: int64",
     "output_handle: array(element_dtype)", "element_dtype: type; shape_type: {int32, int64}",
     ScalarShape},
    {"TensorListStack", "input_handle: variant, element_shape: int32", "tensor: element_dtype",
     "element_dtype: type; num_elements: int = -1", ListStackShape},
};

}  // namespace

Status RegisterListOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
