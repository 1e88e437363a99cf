// SPDX-License-Identifier: Apache-2.0
// Compares tensors with those of golden cases, by the case's own rule.
#ifndef TESTS_GOLDENS_COMPARE_H_
#define TESTS_GOLDENS_COMPARE_H_

#include "gtest/gtest.h"
#include "millrace/tensor.h"

namespace millrace::testing {

struct Tolerance {
  bool bits = true;  // else |got - want| <= atol + rtol * |want| for floating and complex types
  double rtol = 0, atol = 0;
};

// dtype and shape must be equal; any NaN equals any NaN. The failure quotes both tensors.
::testing::AssertionResult Matches(const Tensor& got, const Tensor& want, const Tolerance& t);

}  // namespace millrace::testing

#endif  // TESTS_GOLDENS_COMPARE_H_
