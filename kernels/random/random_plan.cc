// SPDX-License-Identifier: Apache-2.0
#include "kernels/random/random_plan.h"

namespace millrace {

StatusOr<KeyCounter> ReadKeyCounter(const Tensor& key, const Tensor& counter, const Tensor& alg) {
  if (key.rank() != 1 || key.dim(0) != 1) {
    return errors::InvalidArgument("key must have shape [1], not ", key.shape().DebugString());
  }
  if (counter.rank() != 1 || counter.dim(0) < 2) {
    return errors::InvalidArgument("counter must be a vector of at least 2 elements, got shape ",
                                   counter.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(const int64_t algorithm, IntScalar(alg, "alg"));
  if (algorithm != kPhiloxAlgorithm && algorithm != kAutoAlgorithm) {
    return errors::Unimplemented("random algorithm ", algorithm,
                                 " is not supported; 1 (Philox) is");
  }
  const uint64_t* const words = counter.data<uint64_t>();
  return KeyCounter{key.data<uint64_t>()[0], words[0], words[1]};
}

Status CheckBoundShapes(const Shape& minval, const Shape& maxval) {
  if (minval.rank() == 0 && maxval.rank() == 0) return OkStatus();
  return errors::InvalidArgument("minval and maxval must be 0-D, got shapes ", minval.DebugString(),
                                 " and ", maxval.DebugString());
}

}  // namespace millrace
