// SPDX-License-Identifier: Apache-2.0
// Gradients that say which rows of a variable they are about.
#ifndef MILLRACE_SPARSE_GRADIENTS_H_
#define MILLRACE_SPARSE_GRADIENTS_H_

#include <source_location>
#include <span>
#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

// A derivative, not valid where there is none. With indices (a vector), row i of `values` belongs
// to row indices[i] of the x, all other rows are zero, and a row named twice gets the sum.
struct SparseGradient {
  Output values;     // of x's shape and type; with indices [n, ...], n rows of it
  Output indices{};  // [n], int32 or int64; not valid: `values` is dense

  // Whether there are indices.
  bool is_sparse() const { return indices.valid(); }
};

// As Gradients(), but of an x that only Gather, GatherV2 (along axis 0) and ResourceGather take
// rows of, the gradient is those rows: its cost does not grow with the table. An x is a variable's
// handle or value. What other ops take of it as well makes the gradient dense.
StatusOr<std::vector<SparseGradient>> SparseGradients(
    const Scope& scope, std::span<const Output> ys, std::span<const Output> xs,
    std::span<const Output> grad_ys = {},
    std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_SPARSE_GRADIENTS_H_
