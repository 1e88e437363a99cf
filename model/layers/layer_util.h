// SPDX-License-Identifier: Apache-2.0
// What the implementations of layers share.
#ifndef MODEL_LAYERS_LAYER_UTIL_H_
#define MODEL_LAYERS_LAYER_UTIL_H_

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph.h"
#include "millrace/initializers.h"
#include "millrace/math.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace::layers {

// "BatchNormalization" as Keras calls a layer of that kind: "batch_normalization".
std::string SnakeCase(std::string_view kind);

// "net.cc:12".
std::string PlaceOf(std::source_location where);

// The variable's value when the scope's control dependencies are met.
Output ReadNow(const Scope& scope, const Variable& variable);

// An int32 vector.
Tensor Ints(std::span<const int64_t> values);

// The size of an axis, from the end if negative: what is known, or -1. The rank must be known.
int64_t DimOf(const Output& x, int axis);
// The sizes of the axes from `first` on, -1 where one is unknown. The rank must be known.
std::vector<int64_t> DimsOf(const Output& x, int first = 0);
// The axis counted from the front; -1 if there is none such.
int AxisOf(const Output& x, int axis);
// The size of an axis when the graph runs, an int32 scalar.
Output RunDim(const Scope& scope, const Output& x, int axis);
// An int32 vector of the dims; axis i of `x` says what those that are -1 are at run time.
Output ShapeLike(const Scope& scope, const Output& x, std::span<const int64_t> dims);
// The y in a shape of these dims; where several are unknown, they are those of `x`.
Output ReshapeLike(const Scope& scope, const Output& y, const Output& x,
                   std::span<const int64_t> dims);
// The x in another shape, in which at most one size is unknown.
Output ReshapeTo(const Scope& scope, const Output& x, std::span<const int64_t> dims);

// What layers of one of Keras' dtype policies compute in; InvalidArgument lists those there are.
StatusOr<DataType> ComputeTypeOf(std::string_view policy);
// Of 16 bits.
bool IsSmallFloat(DataType dtype);
// The x in this type: itself if it is of it.
Output CastTo(const Scope& scope, const Output& x, DataType dtype);

// The first unless it is empty.
initializers::Initializer Or(const initializers::Initializer& given,
                             initializers::Initializer otherwise);

}  // namespace millrace::layers

#endif  // MODEL_LAYERS_LAYER_UTIL_H_
