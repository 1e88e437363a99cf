// SPDX-License-Identifier: Apache-2.0
// Where rows of different lengths begin and end: row i of a level holds the rows (or values) from
// splits[i] to splits[i + 1] of the next one.
#ifndef KERNELS_RAGGED_SPLITS_H_
#define KERNELS_RAGGED_SPLITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_context.h"
#include "millrace/tensor.h"

namespace millrace {

using Splits = std::vector<int64_t>;

// The numbers of an int32 or int64 tensor of any shape.
Splits ReadSplits(const Tensor& tensor);

// Output i becomes the vector `splits`, of the type that the op says. InvalidArgument if that is
// int32 and a number does not fit.
Status SetSplits(KernelContext& ctx, int i, DataType dtype, std::span<const int64_t> splits);

// The types of the values of rows, as TensorFlow's kernels take them.
std::vector<DataType> RaggedValueTypes();

}  // namespace millrace

#endif  // KERNELS_RAGGED_SPLITS_H_
