// SPDX-License-Identifier: Apache-2.0
// Optimizers of Keras and tf.compat.v1.train from their names and arguments.
#ifndef TESTS_TRAINING_GOLDENS_OPTIMIZER_OF_H_
#define TESTS_TRAINING_GOLDENS_OPTIMIZER_OF_H_

#include <memory>
#include <string>

#include "tests/training_goldens/golden.h"

namespace millrace::testing {

// Null if there is none of this name.
std::unique_ptr<optimizers::KerasOptimizer> KerasOptimizerOf(const std::string& name,
                                                             const Arguments& arguments);
std::unique_ptr<Optimizer> V1OptimizerOf(const std::string& name, const Arguments& arguments);

}  // namespace millrace::testing

#endif  // TESTS_TRAINING_GOLDENS_OPTIMIZER_OF_H_
