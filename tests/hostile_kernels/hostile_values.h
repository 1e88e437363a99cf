// SPDX-License-Identifier: Apache-2.0
// Random sizes, shapes and tensors of the kind that breaks what does not expect them.
#ifndef TESTS_HOSTILE_KERNELS_HOSTILE_VALUES_H_
#define TESTS_HOSTILE_KERNELS_HOSTILE_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/tensor.h"

namespace millrace::testing {

// One case's choices: the same for the same seed.
class HostileValues {
 public:
  // `memory` is where tensors lie.
  HostileValues(uint64_t seed, Allocator* memory);

  uint64_t Next();
  // In [0, n).
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T>
  const T& OneOf(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(Below(static_cast<int64_t>(values.size())))];
  }

  // Often small, often one of the sizes that the case's shapes have, now and then absurd.
  int64_t Integer();
  float Real();
  std::string Text();
  // A shape that a tensor may have, of at most some thousand elements; often the one that an
  // operand of the case had before, or near to it.
  Shape TensorShape();
  // One that need not be that of any tensor.
  PartialShape AnyShape();
  // With random elements.
  Tensor TensorOf(DataType dtype);
  Tensor TensorOf(DataType dtype, const Shape& shape);

 private:
  int64_t Size();
  Shape NewShape();

  uint64_t state_;
  Allocator* const memory_;
  std::vector<int64_t> sizes_;  // of this case
  std::vector<Shape> shapes_;   // that were made
  bool tame_ = false;           // no absurd integers
};

}  // namespace millrace::testing

#endif  // TESTS_HOSTILE_KERNELS_HOSTILE_VALUES_H_
