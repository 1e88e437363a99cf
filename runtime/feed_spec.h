// SPDX-License-Identifier: Apache-2.0
// What a fed tensor must be.
#ifndef RUNTIME_FEED_SPEC_H_
#define RUNTIME_FEED_SPEC_H_

#include <string>

#include "base/errors.h"
#include "millrace/graph.h"
#include "millrace/shape.h"
#include "millrace/tensor.h"

namespace millrace {

struct FeedSpec {
  explicit FeedSpec(const Output& output)
      : name(output.name()), dtype(BaseType(output.dtype())), shape(output.shape()) {}

  // InvalidArgument, naming the feed.
  Status Check(const Tensor& value) const {
    if (value.dtype() == dtype && shape.IsCompatibleWith(value.shape())) [[likely]]
      return OkStatus();
    if (value.dtype() != dtype) {
      return errors::InvalidArgument("the feed of ", name, " is ", DataTypeName(value.dtype()),
                                     ", expected ", DataTypeName(dtype));
    }
    return errors::InvalidArgument("the feed of ", name, " has shape ", value.shape().DebugString(),
                                   ", expected ", shape.DebugString());
  }

  std::string name;
  DataType dtype;
  PartialShape shape;
};

}  // namespace millrace

#endif  // RUNTIME_FEED_SPEC_H_
