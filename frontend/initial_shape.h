// SPDX-License-Identifier: Apache-2.0
// The shape of a variable, which is that of its initial value.
#ifndef FRONTEND_INITIAL_SHAPE_H_
#define FRONTEND_INITIAL_SHAPE_H_

#include <optional>
#include <source_location>
#include <string_view>

#include "base/errors.h"
#include "millrace/graph.h"

namespace millrace {

// Nothing, with an error of `scope` that names the variable, where the value has no fully known
// one.
inline std::optional<Shape> InitialShape(const Scope& scope, std::string_view variable,
                                         const Output& initial_value, std::source_location where) {
  const auto shape = initial_value.shape().AsShape();
  if (shape) return *shape;
  scope.RecordError(errors::InvalidArgument("the initial value of variable '", variable,
                                            "' must have a fully known shape, not ",
                                            initial_value.shape().DebugString()),
                    where);
  return std::nullopt;
}

}  // namespace millrace

#endif  // FRONTEND_INITIAL_SHAPE_H_
