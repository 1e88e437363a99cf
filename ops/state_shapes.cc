// SPDX-License-Identifier: Apache-2.0
// Shapes of variables, of what goes through control flow, and of handles.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/shape_fns.h"

namespace millrace {

Status AssignShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const bool validate, c.attr<bool>("validate_shape"));
  if (validate) return MergeOfFirstTwo(c);
  c.set_output(0, c.input(1));
  return OkStatus();
}

Status VarHandleShape(InferenceContext& c) {
  c.set_output(0, Shape());
  MR_ASSIGN_OR_RETURN(const DataType dtype, c.attr<DataType>("dtype"));
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output_handle(0, {dtype, std::move(shape)});
  return OkStatus();
}

Status ReadVariableShape(InferenceContext& c) {
  const HandleShape* handle = c.handle(0);
  if (handle == nullptr) return UnknownShape(c);
  MR_ASSIGN_OR_RETURN(const DataType dtype, c.attr<DataType>("dtype"));
  if (handle->dtype != DataType::kInvalid && handle->dtype != dtype) {
    return errors::InvalidArgument("Trying to read variable with wrong dtype. Expected ",
                                   DataTypeName(handle->dtype), " got ", DataTypeName(dtype));
  }
  c.set_output(0, handle->shape);
  return OkStatus();
}

Status AssignVariableShape(InferenceContext& c) {
  const HandleShape* handle = c.handle(0);
  if (handle == nullptr) return OkStatus();
  MR_ASSIGN_OR_RETURN(const DataType dtype, c.attr<DataType>("dtype"));
  if (handle->dtype != DataType::kInvalid && handle->dtype != dtype) {
    return errors::InvalidArgument("Trying to write variable with wrong dtype. Expected ",
                                   DataTypeName(handle->dtype), " got ", DataTypeName(dtype));
  }
  if (c.attrs().GetOr<bool>("validate_shape", true) &&
      !handle->shape.IsCompatibleWith(c.input(1))) {
    return errors::InvalidArgument("Shapes must be equal: the variable has ",
                                   handle->shape.DebugString(), " and the value ",
                                   c.input(1).DebugString());
  }
  return OkStatus();
}

Status VariableShapeShape(InferenceContext& c) {
  const HandleShape* handle = c.handle(0);
  c.set_output(0, PartialShape({handle == nullptr ? -1 : handle->shape.rank()}));
  return OkStatus();
}

Status ResourceGatherShape(InferenceContext& c) {
  const HandleShape* handle = c.handle(0);
  if (handle == nullptr || !handle->shape.has_rank()) return UnknownShape(c);
  const int64_t batch = c.attrs().GetOr<int64_t>("batch_dims", 0);
  if (batch < 0 || batch >= handle->shape.rank()) {
    return errors::InvalidArgument("batch_dims ", batch, " is out of range for params ",
                                   handle->shape.DebugString());
  }
  if (c.input(1).has_rank() && c.input(1).rank() < batch) {
    return errors::InvalidArgument("indices need at least ", batch, " dimensions");
  }
  c.set_output(0, ConcatShapes(c.input(1), SubShape(handle->shape, static_cast<int>(batch) + 1)));
  return OkStatus();
}

Status SwitchShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  for (int i = 0; i < 2; ++i) {
    c.set_output(i, c.input(0));
    if (const HandleShape* handle = c.handle(0)) c.set_output_handle(i, *handle);
  }
  return OkStatus();
}

// What all inputs agree on; a loop's back edge is unknown, so that nothing is promised of
// shapes that may change from one iteration to the next.
Status MergeShape(InferenceContext& c) {
  if (c.num_outputs() > 1) c.set_output(1, Shape());
  PartialShape out = c.input(0);
  for (int i = 1; i < c.num_inputs() && out.has_rank(); ++i) {
    const PartialShape& in = c.input(i);
    if (in.rank() != out.rank()) {
      out = PartialShape();
      break;
    }
    for (int d = 0; d < out.rank(); ++d) {
      if (in.dim(d) != out.dim(d)) out.SetDim(d, -1);
    }
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status HandleVectorShape(InferenceContext& c) {
  c.set_output(0, PartialShape({2}));
  return OkStatus();
}

}  // namespace millrace
