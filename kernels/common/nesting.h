// SPDX-License-Identifier: Apache-2.0
// Elements of variants that hold tensors, which may be variants again. They are released one from
// within the other: what lies deeper than a stack can follow is not made in the first place.
#ifndef KERNELS_COMMON_NESTING_H_
#define KERNELS_COMMON_NESTING_H_

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// A base of such objects, beside RefCounted.
class HoldsObjects {
 public:
  virtual ~HoldsObjects() = default;
  // How many objects lie within each other, this one among them; it may be said to be more.
  virtual int nesting() const = 0;
};

// The greatest nesting of a tensor's elements; 0 unless it is a variant that has some.
int NestingWithin(const Tensor& tensor);

inline constexpr int kMostNested = 1000;

// That an object may hold a tensor. ResourceExhausted if too many would lie within each other.
Status CheckNesting(const Tensor& tensor);

}  // namespace millrace

#endif  // KERNELS_COMMON_NESTING_H_
