// SPDX-License-Identifier: Apache-2.0
#include "tests/saved_models/recorded.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/checkpoint.h"
#include "tests/goldens/compare.h"

namespace millrace::testing {
namespace {

constexpr char kInputs[] = "inputs", kOutputs[] = "outputs", kSuffix[] = ".expected";

}  // namespace

StatusOr<std::vector<RecordedCall>> ReadRecorded(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const auto tensors, ReadTensors(directory + kSuffix));
  std::map<std::string, RecordedCall> calls;
  for (const auto& [key, value] : tensors) {
    const std::vector<std::string_view> parts = StrSplit(key, '/');
    if (parts.size() != 3 || (parts[1] != kInputs && parts[1] != kOutputs)) {
      return errors::InvalidArgument(directory, kSuffix, " has '", key,
                                     "', which is not SIGNATURE/inputs/NAME");
    }
    RecordedCall& call = calls[std::string(parts[0])];
    call.signature = parts[0];
    (parts[1] == kInputs ? call.inputs : call.outputs).emplace(parts[2], value);
  }
  std::vector<RecordedCall> all;
  for (auto& [signature, call] : calls) all.push_back(std::move(call));
  return all;
}

Status WriteRecorded(const std::string& directory, const std::vector<RecordedCall>& calls) {
  std::map<std::string, Tensor> tensors;
  for (const RecordedCall& call : calls) {
    for (const auto& [name, value] : call.inputs) {
      tensors.emplace(StrCat(call.signature, "/", kInputs, "/", name), value);
    }
    for (const auto& [name, value] : call.outputs) {
      tensors.emplace(StrCat(call.signature, "/", kOutputs, "/", name), value);
    }
  }
  return WriteTensors(directory + kSuffix, tensors);
}

::testing::AssertionResult AnswersAs(const SavedModel& model, const RecordedCall& call) {
  const auto outputs = model.Run(call.signature, call.inputs);
  if (!outputs.ok()) return ::testing::AssertionFailure() << outputs.status();
  if (outputs->size() != call.outputs.size() || call.outputs.empty()) {
    return ::testing::AssertionFailure() << call.signature << " has " << outputs->size()
                                         << " outputs, not " << call.outputs.size();
  }
  for (const auto& [name, want] : call.outputs) {
    const auto got = outputs->find(name);
    if (got == outputs->end()) {
      return ::testing::AssertionFailure() << call.signature << " has no output " << name;
    }
    const auto matches = Matches(got->second, want, {.bits = false, .rtol = 1e-5, .atol = 1e-6});
    if (!matches) return ::testing::AssertionFailure() << name << ": " << matches.message();
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult AnswersAsRecorded(const SavedModel& model, const std::string& recorded) {
  const auto calls = ReadRecorded(recorded);
  if (!calls.ok()) return ::testing::AssertionFailure() << calls.status();
  if (calls->empty()) return ::testing::AssertionFailure() << recorded << " has no calls";
  for (const RecordedCall& call : *calls) {
    if (const auto same = AnswersAs(model, call); !same) return same;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace millrace::testing
