// SPDX-License-Identifier: Apache-2.0
#include "millrace/iterator_position.h"

#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

// The handle that the next elements are asked of; not valid, with an error, if there is none.
Output HandleOf(const Scope& scope, const DatasetIterator& iterator, std::source_location where) {
  if (!iterator.next.empty() && iterator.next[0].valid()) return iterator.next[0].op().input(0);
  scope.RecordError(
      errors::InvalidArgument("this iterator has no elements: make it with MakeIterator"), where);
  return Output();
}

}  // namespace

Output IteratorPosition(const Scope& scope, const DatasetIterator& iterator,
                        std::source_location where) {
  const Output handle = HandleOf(scope, iterator, where);
  if (!handle.valid()) return Output();
  const Operation op = scope.ColocateWith(handle.op())
                           .WithOpName("IteratorPosition")
                           .AddOp("_IteratorPosition", std::vector<Input>{handle}, {}, where);
  return op.valid() ? op.output(0) : Output();
}

Operation SetIteratorPosition(const Scope& scope, const DatasetIterator& iterator,
                              const Input& position, std::source_location where) {
  const Output handle = HandleOf(scope, iterator, where);
  if (!handle.valid()) return Operation();
  return scope.ColocateWith(handle.op())
      .WithOpName("SetIteratorPosition")
      .AddOp("_SetIteratorPosition", std::vector<Input>{handle, position}, {}, where);
}

}  // namespace millrace
