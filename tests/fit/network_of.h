// SPDX-License-Identifier: Apache-2.0
// The small models of tests/goldens/training/fit, from what their files say.
#ifndef TESTS_FIT_NETWORK_OF_H_
#define TESTS_FIT_NETWORK_OF_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/layers.h"
#include "millrace/model.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {

// Layers in order, with their names. Null, and why, if there is a layer that we have not.
std::unique_ptr<Layer> NetworkOf(const Json& golden, const std::vector<std::string>& frozen,
                                 std::string* why);

// Loss, metrics and the optimizer of a run.
CompileOptions CompileOptionsOf(const Json& golden, const Json& run);

std::vector<Tensor> InitialWeightsOf(const Json& golden);

}  // namespace millrace::testing

#endif  // TESTS_FIT_NETWORK_OF_H_
