// SPDX-License-Identifier: Apache-2.0
// Arithmetic on pieces of tensors.
#ifndef COLLECTIVE_COMBINE_H_
#define COLLECTIVE_COMBINE_H_

#include <cstdint>
#include <span>

#include "collective/collective_types.h"

namespace millrace {

// If elements of this type can be reduced.
bool CanReduce(DataType dtype);
// into[i] = into[i] op from[i]. 16-bit floats are rounded after each operation, integers wrap.
void MergeInto(DataType dtype, MergeOp op, void* into, const void* from, int64_t count);
// data[i] = data[i] / divisor, in the elements' own type.
void DivideBy(DataType dtype, void* data, int64_t count, int64_t divisor);
// out[i] = (parts[0][i] op parts[1][i] op ...) / divisor. 16-bit floats are computed in float and
// rounded once, at the end. `out` may be one of the parts, of which there is at least one.
void MergeAll(DataType dtype, MergeOp op, std::span<const void* const> parts, int64_t divisor,
              void* out, int64_t count);

}  // namespace millrace

#endif  // COLLECTIVE_COMBINE_H_
