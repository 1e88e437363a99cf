// SPDX-License-Identifier: Apache-2.0
// The order of RandomShuffle.
#ifndef KERNELS_RANDOM_RANDOM_ORDER_H_
#define KERNELS_RANDOM_RANDOM_ORDER_H_

#include <cstdint>
#include <vector>

#include "kernels/common/shared_philox.h"
#include "millrace/status.h"

namespace millrace {

// The same from where a generator stands.
StatusOr<std::vector<int64_t>> OrderFrom(const Philox& generator, int64_t rows);
// Row i of the output is row order[i] of the input: TensorFlow's, one swap for each row, from the
// next part of the sequence. InvalidArgument for more rows than it numbers.
StatusOr<std::vector<int64_t>> DrawOrder(SharedPhilox* generator, int64_t rows);

}  // namespace millrace

#endif  // KERNELS_RANDOM_RANDOM_ORDER_H_
