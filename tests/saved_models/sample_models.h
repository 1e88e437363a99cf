// SPDX-License-Identifier: Apache-2.0
// Models of our own, written as SavedModels.
#ifndef TESTS_SAVED_MODELS_SAMPLE_MODELS_H_
#define TESTS_SAVED_MODELS_SAMPLE_MODELS_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/saved_models/recorded.h"

namespace millrace::testing {

// Writes a model to a directory and returns what it answers, as the program that made it computes.
using SampleModel =
    std::function<StatusOr<std::vector<RecordedCall>>(const std::string& directory)>;

// "model": layers that were trained. "graph": variables of both kinds, a table that is filled from
// an asset, two signatures.
std::vector<std::pair<std::string, SampleModel>> SampleModels();

}  // namespace millrace::testing

#endif  // TESTS_SAVED_MODELS_SAMPLE_MODELS_H_
