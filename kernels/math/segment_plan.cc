// SPDX-License-Identifier: Apache-2.0
#include "kernels/math/segment_plan.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"

namespace millrace {
namespace {

Status CheckVector(const Shape& shape, const char* what) {
  if (shape.rank() == 1) return OkStatus();
  return errors::InvalidArgument(what, " must be a vector of integers, got shape ",
                                 shape.DebugString());
}

Status CheckPairs(const Shape& indices, const Shape& ids) {
  MR_RETURN_IF_ERROR(CheckVector(indices, "indices"));
  MR_RETURN_IF_ERROR(CheckVector(ids, "segment_ids"));
  if (indices == ids) return OkStatus();
  return errors::InvalidArgument("segment_ids and indices should have same size.");
}

}  // namespace

StatusOr<Shape> PlanUnsortedSegments(const Shape& data, const Shape& ids,
                                     const Tensor& num_segments) {
  MR_ASSIGN_OR_RETURN(const int64_t segments, IntScalar(num_segments, "num_segments"));
  if (segments < 0) {
    return errors::InvalidArgument("num_segments must be non-negative, got ", segments);
  }
  if (data.rank() < ids.rank() ||
      !std::equal(ids.dims().begin(), ids.dims().end(), data.dims().begin())) {
    return errors::InvalidArgument("data.shape = ", data.DebugString(),
                                   " does not start with segment_ids.shape = ", ids.DebugString());
  }
  Dims dims{segments};
  for (int i = ids.rank(); i < data.rank(); ++i) dims.push_back(data.dim(i));
  return MakeShape({dims.data(), dims.size()});
}

Status CheckSegments(const Shape& data, const Shape& ids) {
  MR_RETURN_IF_ERROR(CheckVector(ids, "segment_ids"));
  if (data.rank() >= 1 && data.dim(0) == ids.dim(0)) return OkStatus();
  return errors::InvalidArgument("segment_ids should be the same size as dimension 0 of input: ",
                                 data.DebugString(), " vs. ", ids.dim(0));
}

Status CheckChosenRows(const Shape& data, const Shape& indices, const Shape& ids) {
  if (data.rank() >= 1) return CheckPairs(indices, ids);
  return errors::InvalidArgument("data must be at least 1 dimensional");
}

Status CheckChosenGradient(const Shape& gradient, const Shape& indices, const Shape& ids) {
  if (gradient.rank() >= 1) return CheckPairs(indices, ids);
  return errors::InvalidArgument("grad must be at least 1 dimensional");
}

StatusOr<Shape> SegmentsShape(const Shape& data, int64_t last, int64_t num_segments) {
  if (last < -1) return CheckSegmentId(last, -1);
  int64_t segments;
  if (__builtin_add_overflow(last, 1, &segments)) {
    return errors::InvalidArgument("segment id ", last, " is too large");
  }
  if (num_segments >= 0) {
    if (segments > num_segments) {
      return errors::InvalidArgument("segment ids must be < num_segments");
    }
    segments = num_segments;
  }
  Dims dims(data.dims().begin(), data.dims().end());
  dims[0] = segments;
  return MakeShape({dims.data(), dims.size()});
}

StatusOr<int64_t> ReadSegments(const Tensor& num_segments) {
  MR_ASSIGN_OR_RETURN(const int64_t given, IntScalar(num_segments, "num_segments"));
  if (given < 0) return errors::InvalidArgument("num_segments must be >= 0, got ", given);
  return given;
}

StatusOr<int64_t> ReadDataRows(const Tensor& output_dim0) {
  MR_ASSIGN_OR_RETURN(const int64_t rows, IntScalar(output_dim0, "output_dim0"));
  if (rows < 0) return errors::InvalidArgument("output_dim0 must be non-negative");
  return rows;
}

}  // namespace millrace
