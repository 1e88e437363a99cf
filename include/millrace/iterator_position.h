// SPDX-License-Identifier: Apache-2.0
// Where iterators of data sets (millrace/data.h) stand, as tensors that a checkpoint keeps: a job
// that goes on reads the elements that it has not read yet. And iterators that read one data set
// after the other, without new nodes for each.
#ifndef MILLRACE_ITERATOR_POSITION_H_
#define MILLRACE_ITERATOR_POSITION_H_

#include <source_location>
#include <string>
#include <string_view>
#include <vector>

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

// How a data set is made, and what of. Those of one text can be read by one FedIterator.
struct DatasetForm {
  std::string text{};             // of its stages and their functions
  std::vector<Tensor> tensors{};  // of FromTensors, FromTensorSlices and what reads whole arrays
  // It has shuffles with seeds, whose orders go on from one initialization to the next. So that
  // they begin anew with another data set, the iterator is taken to the position that it had after
  // its first initialization (SetIteratorPosition).
  bool has_seeds = false;
};
// Calls functions of elements once more. Unimplemented for what can only be read by an iterator of
// its own: it uses outputs of a graph, has a function of the program (FromGenerator), or keeps what
// nothing begins anew (Cache, draws of SampleFrom without a seed, shuffles of which some have seeds
// and some have none).
StatusOr<DatasetForm> FormOf(const Dataset& dataset);

// An iterator whose tensors are no part of the graph: its initializer is fed with them.
struct FedIterator {
  DatasetIterator iterator{};   // as of MakeIterator
  std::vector<Output> feeds{};  // placeholders, in the order of DatasetForm::tensors
};
// For this data set and all of the same form. The nodes are those of MakeIterator but for the
// placeholders.
FedIterator MakeFedIterator(const Scope& scope, const Dataset& dataset,
                            std::string_view name = "iterator",
                            std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_ITERATOR_POSITION_H_
