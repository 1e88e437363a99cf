// SPDX-License-Identifier: Apache-2.0
// Layers as golden files write them: a class of Keras and its arguments.
#ifndef TESTS_LAYERS_LAYER_OF_H_
#define TESTS_LAYERS_LAYER_OF_H_

#include <memory>
#include <string>

#include "millrace/layers.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {

// Null if there is no such class, or an argument that is not known.
std::unique_ptr<Layer> LayerOf(const std::string& class_name, const Json& arguments,
                               const std::string& name);

// {"L2": 0.01}, {"L1L2": [0.01, 0.03]}.
Regularizer RegularizerOf(const Json& json);

// Gives the variable this value.
Status SetValue(const Scope& scope, Session& session, const Variable& variable,
                const Tensor& value);

}  // namespace millrace::testing

#endif  // TESTS_LAYERS_LAYER_OF_H_
