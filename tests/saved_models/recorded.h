// SPDX-License-Identifier: Apache-2.0
// SavedModels together with what somebody else computed of them (make_models.py).
#ifndef TESTS_SAVED_MODELS_RECORDED_H_
#define TESTS_SAVED_MODELS_RECORDED_H_

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/saved_model.h"

namespace millrace::testing {

struct RecordedCall {
  std::string signature;
  std::map<std::string, Tensor> inputs, outputs;
};

// Of the checkpoint DIRECTORY.expected, where tensors are called "SIGNATURE/inputs/X" and
// "SIGNATURE/outputs/Y".
StatusOr<std::vector<RecordedCall>> ReadRecorded(const std::string& directory);
Status WriteRecorded(const std::string& directory, const std::vector<RecordedCall>& calls);

// The model answers the same, but for a few ulps of floats.
::testing::AssertionResult AnswersAs(const SavedModel& model, const RecordedCall& call);
// The same of all that was recorded for the directory `recorded`.
::testing::AssertionResult AnswersAsRecorded(const SavedModel& model, const std::string& recorded);

}  // namespace millrace::testing

#endif  // TESTS_SAVED_MODELS_RECORDED_H_
