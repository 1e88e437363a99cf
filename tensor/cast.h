// SPDX-License-Identifier: Apache-2.0
// Conversion of small constants between number types (graph building, not a kernel).
#ifndef TENSOR_CAST_H_
#define TENSOR_CAST_H_

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// The tensor itself if it has that type already. InvalidArgument if a value of a number does
// not survive (300 as int8, 0.5 as int32) or the types are not both numbers or bools.
StatusOr<Tensor> CastTensor(const Tensor& tensor, DataType dtype);

}  // namespace millrace

#endif  // TENSOR_CAST_H_
