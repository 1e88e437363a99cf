// SPDX-License-Identifier: Apache-2.0
// First values of a part of a variable, computed where it lies: no task needs room for the whole,
// and nothing of it travels.
#ifndef TRAINING_SHARDING_INITIAL_ROWS_H_
#define TRAINING_SHARDING_INITIAL_ROWS_H_

#include <cstdint>
#include <source_location>

#include "millrace/graph.h"

namespace millrace {

// Rows [begin, begin + rows) of `value`, whose shape is `whole`, of nodes of their own: the bits
// that they are in it. Knows constants and random values that are a function of a seed, times and
// plus numbers, as initializers make them. Not valid, without an error, for everything else.
Output InitialRows(const Scope& scope, const Output& value, const Shape& whole, int64_t begin,
                   int64_t rows, std::source_location where);

}  // namespace millrace

#endif  // TRAINING_SHARDING_INITIAL_ROWS_H_
