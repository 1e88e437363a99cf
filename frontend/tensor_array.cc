// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/ops.h"
#include "millrace/scan.h"

namespace millrace {
namespace {

PartialShape RowOf(const PartialShape& rows) {
  return rows.has_rank() ? PartialShape(rows.dims().subspan(1)) : rows;
}

Output AllIndices(const Scope& scope, const Output& size) { return ops::Range(scope, 0, size, 1); }

}  // namespace

TensorArray::TensorArray(const Scope& scope, DataType dtype, const Input& size,
                         const TensorArrayOptions& options, Here where)
    : dtype_(BaseType(dtype)), element_shape_(options.element_shape) {
  const auto made = ops::TensorArrayV3(scope.CalledFrom(where), size, dtype_,
                                       {.element_shape = options.element_shape,
                                        .dynamic_size = options.dynamic_size,
                                        .clear_after_read = options.clear_after_read,
                                        .tensor_array_name = options.name});
  handle_ = made.handle;
  flow_ = made.flow;
}

TensorArray TensorArray::OfRows(const Scope& scope, const Output& rows, TensorArrayOptions options,
                                Here where) {
  if (!scope.status().ok()) return {};
  if (!rows.valid() || (rows.shape().has_rank() && rows.shape().rank() == 0)) {
    scope.RecordError(errors::InvalidArgument("the rows of an array are ",
                                              rows.valid() ? "a scalar" : "no valid output"),
                      where);
    return {};
  }
  const Scope at = scope.CalledFrom(where);
  options.element_shape = RowOf(rows.shape());
  const Output count =
      ops::StridedSlice(at, ops::Shape(at, rows), {0}, {1}, {1}, {.shrink_axis_mask = 1});
  const TensorArray array(at, rows.dtype(), count, options, where);
  return array.Scatter(at, AllIndices(at, count), rows, where);
}

TensorArray TensorArray::After(const Output& flow) const {
  TensorArray after = *this;
  after.flow_ = flow;
  return after;
}

TensorArray TensorArray::Write(const Scope& scope, const Input& index, const Input& value,
                               Here where) const {
  return After(ops::TensorArrayWriteV3(scope.CalledFrom(where), handle_, index, value, flow_));
}

Output TensorArray::Read(const Scope& scope, const Input& index, Here where) const {
  const Scope at = scope.CalledFrom(where);
  const Output value = ops::TensorArrayReadV3(at, handle_, index, flow_, dtype_);
  const bool knows_more = element_shape_.has_rank() && value.valid() && !value.shape().has_rank();
  return knows_more ? ops::EnsureShape(at, value, element_shape_) : value;
}

TensorArray TensorArray::Scatter(const Scope& scope, const Input& indices, const Input& rows,
                                 Here where) const {
  return After(ops::TensorArrayScatterV3(scope.CalledFrom(where), handle_, indices, rows, flow_));
}

Output TensorArray::Gather(const Scope& scope, const Input& indices, Here where) const {
  return ops::TensorArrayGatherV3(scope.CalledFrom(where), handle_, indices, flow_, dtype_,
                                  {.element_shape = element_shape_});
}

Output TensorArray::Stack(const Scope& scope, Here where) const {
  const Scope at = scope.CalledFrom(where);
  return Gather(at, AllIndices(at, Size(at, where)), where);
}

Output TensorArray::Concat(const Scope& scope, Here where) const {
  return ops::TensorArrayConcatV3(scope.CalledFrom(where), handle_, flow_, dtype_,
                                  {.element_shape_except0 = RowOf(element_shape_)})
      .value;
}

TensorArray TensorArray::Split(const Scope& scope, const Input& value, const Input& lengths,
                               Here where) const {
  return After(ops::TensorArraySplitV3(scope.CalledFrom(where), handle_, value, lengths, flow_));
}

Output TensorArray::Size(const Scope& scope, Here where) const {
  return ops::TensorArraySizeV3(scope.CalledFrom(where), handle_, flow_);
}

}  // namespace millrace
