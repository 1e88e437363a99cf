// SPDX-License-Identifier: Apache-2.0
#include "kernels/random/random_order.h"

#include <limits>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "kernels/random/random_distributions.h"

namespace millrace {

StatusOr<std::vector<int64_t>> OrderFrom(const Philox& generator, int64_t rows) {
  if (rows > std::numeric_limits<int32_t>::max()) {
    return errors::InvalidArgument("RandomShuffle of ", rows, " rows is not supported");
  }
  std::vector<int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  PhiloxWords words(generator);
  for (int64_t i = 0; i + 1 < rows; ++i) {
    std::swap(order[i], order[i + words() % static_cast<uint32_t>(rows - i)]);
  }
  return order;
}

StatusOr<std::vector<int64_t>> DrawOrder(SharedPhilox* generator, int64_t rows) {
  return OrderFrom(generator->Reserve(static_cast<uint64_t>((rows + 3) / 4)), rows);
}

}  // namespace millrace
