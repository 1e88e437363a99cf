// SPDX-License-Identifier: Apache-2.0
// Reductions of rows that share an id: what the ops accept, and the sizes that follow. For the
// kernels of all devices; pure.
#ifndef KERNELS_MATH_SEGMENT_PLAN_H_
#define KERNELS_MATH_SEGMENT_PLAN_H_

#include <cstdint>

#include "base/errors.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// The output of UnsortedSegment*. InvalidArgument for operands that do not go together, as of all
// functions here; `num_segments` lies on the host.
StatusOr<Shape> PlanUnsortedSegments(const Shape& data, const Shape& ids,
                                     const Tensor& num_segments);

// Segment*: an id for each row of the data.
Status CheckSegments(const Shape& data, const Shape& ids);
// SparseSegment*: row indices[i] of the data belongs to segment ids[i]. In a gradient `data` is
// that of the segments.
Status CheckChosenRows(const Shape& data, const Shape& indices, const Shape& ids);
Status CheckChosenGradient(const Shape& gradient, const Shape& indices, const Shape& ids);

// The last id says how many segments there are; ids are sorted.
inline Status CheckLastSegment(int64_t id) {
  return id >= 0 ? OkStatus() : errors::InvalidArgument("segment ids must be >= 0");
}
inline Status CheckSegmentOrder(int64_t id, int64_t before) {
  return id >= before ? OkStatus() : errors::InvalidArgument("segment ids are not increasing");
}
// An id that may follow `before`, -1 at first.
inline Status CheckSegmentId(int64_t id, int64_t before) {
  const Status first = CheckLastSegment(id);
  return first.ok() ? CheckSegmentOrder(id, before) : first;
}
// Rows of `data` for segments up to `last`, the last id, and, where the op was given a number of
// them, `num_segments`: empty segments follow. -1 for neither.
StatusOr<Shape> SegmentsShape(const Shape& data, int64_t last, int64_t num_segments = -1);

// The numbers that the ops are given, on the host.
StatusOr<int64_t> ReadSegments(const Tensor& num_segments);
StatusOr<int64_t> ReadDataRows(const Tensor& output_dim0);

}  // namespace millrace

#endif  // KERNELS_MATH_SEGMENT_PLAN_H_
