// SPDX-License-Identifier: Apache-2.0
// A program that asks SavedModels of others, and writes some for them
// (tests/tf_compat/saved_models.py).
//   saved_model_program check DIRECTORY...   compares with DIRECTORY.expected
//   saved_model_program write FOLDER [DIRECTORY...]
//     FOLDER/model, FOLDER/graph, and each directory loaded and saved again, with their .expected
#include <cstdio>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "tests/saved_models/recorded.h"
#include "tests/saved_models/sample_models.h"

namespace millrace::testing {
namespace {

Status Check(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const SavedModel model, LoadSavedModel(directory));
  const auto same = AnswersAsRecorded(model, directory);
  return same ? OkStatus() : errors::Internal(same.message());
}

Status Write(const std::string& folder) {
  for (const auto& [name, write] : SampleModels()) {
    const std::string directory = JoinPath(folder, name);
    MR_ASSIGN_OR_RETURN(const std::vector<RecordedCall> calls, write(directory));
    MR_RETURN_IF_ERROR(WriteRecorded(directory, calls));
  }
  return OkStatus();
}

Status SaveAgain(const std::string& folder, const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const SavedModel model, LoadSavedModel(directory));
  const std::string again = JoinPath(folder, std::string(BaseName(directory)));
  MR_RETURN_IF_ERROR(model.Save(again));
  MR_ASSIGN_OR_RETURN(const std::vector<RecordedCall> calls, ReadRecorded(directory));
  return WriteRecorded(again, calls);
}

int Main(int argc, char** argv) {
  const std::string command = argc > 2 ? argv[1] : "";
  int failed = 0;
  const auto tell = [&](const char* what, const Status& status) {
    std::printf("%s: %s\n", what, status.ok() ? "ok" : std::string(Message(status)).c_str());
    failed += status.ok() ? 0 : 1;
  };
  if (command == "check") {
    for (int i = 2; i < argc; ++i) tell(argv[i], Check(argv[i]));
  } else if (command == "write") {
    tell(argv[2], Write(argv[2]));
    for (int i = 3; i < argc; ++i) tell(argv[i], SaveAgain(argv[2], argv[i]));
  } else {
    std::fprintf(stderr, "saved_model_program check DIRECTORY... | write FOLDER [DIRECTORY...]\n");
    return 2;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace millrace::testing

int main(int argc, char** argv) { return millrace::testing::Main(argc, argv); }
