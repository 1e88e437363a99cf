// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification: losses of, and labels from, sequences that are not
// aligned with their labels.
#ifndef KERNELS_NN_CTC_H_
#define KERNELS_NN_CTC_H_

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_registry.h"

namespace millrace {

// The logarithm of probability zero, and of a sum, from logarithms.
template <typename T>
inline constexpr T kLogZero = -std::numeric_limits<T>::infinity();
template <typename T>
T LogSum(T a, T b) {
  if (a == kLogZero<T>) return b;
  if (b == kLogZero<T>) return a;
  return std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

void RegisterCtcLossKernels(KernelRegistry& registry);
void RegisterCtcDecodeKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_NN_CTC_H_
