// SPDX-License-Identifier: Apache-2.0
// Values for tests on GPUs.
#ifndef TESTS_GPU_TENSORS_H_
#define TESTS_GPU_TENSORS_H_

#include <cstdint>
#include <cstring>
#include <random>

#include "kernels/cuda/library_cases.h"
#include "millrace/tensor.h"

namespace millrace::testing {

// From -1 to 1.
inline Tensor Random(DataType type, const Shape& shape, uint32_t seed) {
  Tensor t(type, shape);
  std::minstd_rand bits(seed);
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    SetElement(type, t.raw_data(), i, static_cast<float>(bits() % 20001) / 10000.0f - 1.0f);
  }
  return t;
}

inline bool SameBits(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() &&
         std::memcmp(a.raw_data(), b.raw_data(), a.num_bytes()) == 0;
}

}  // namespace millrace::testing

#endif  // TESTS_GPU_TENSORS_H_
