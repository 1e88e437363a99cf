// SPDX-License-Identifier: Apache-2.0
// Where iterators of data sets (millrace/data.h) stand, as tensors that a checkpoint keeps: a job
// that goes on reads the elements that it has not read yet.
#ifndef MILLRACE_ITERATOR_POSITION_H_
#define MILLRACE_ITERATOR_POSITION_H_

#include <source_location>

#include "millrace/data.h"
#include "millrace/graph.h"

namespace millrace {

// A string vector: how many elements the iterator has given since its initializer ran, and the
// seeds of shuffled stages, then and now. To be read while no step reads an element.
// FailedPrecondition before the initializer ran.
Output IteratorPosition(const Scope& scope, const DatasetIterator& iterator,
                        std::source_location where = std::source_location::current());

// Takes the iterator to a position that was read from one over the same data set, in this session
// or another. Its initializer must have run. The elements before the position are made again and
// left out, so that all stages (and files) are where they were; the next element, and the orders
// of all later walks, are those that would have come. Not kept: counters of stateful random ops in
// functions, and orders that such functions draw without a seed. InvalidArgument for a position of
// another data set, as far as one can tell; DataLoss if there are fewer elements now.
Operation SetIteratorPosition(const Scope& scope, const DatasetIterator& iterator,
                              const Input& position,
                              std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_ITERATOR_POSITION_H_
