// SPDX-License-Identifier: Apache-2.0
// An evaluator aside as a task of `millrace run`, which kills itself where it is told to
// (tests/fit/killed_evaluator_test.cc):
//
//   evaluator_program FOLDER LAST [--dies_at=BATCH] [--pause_ms=N]
//
// Takes every checkpoint of weights in FOLDER until that of the number LAST, and prints a line for
// each with all bits of what it has found. Batches are counted over all evaluations of a life; it
// dies in its first one.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/evaluator.h"
#include "tests/fit/evaluated_model.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;

struct Flags {
  std::string folder;
  int64_t last = 0, dies_at = -1, pause_ms = 0;
};

bool ReadFlag(std::string_view text, std::string_view name, int64_t* value) {
  return text.starts_with(name) && ParseInt64(text.substr(name.size()), value);
}

StatusOr<Flags> Parse(int argc, char** argv) {
  Flags f;
  if (argc < 3 || !ParseInt64(argv[2], &f.last)) {
    return errors::InvalidArgument("a folder and the number of the last checkpoint, please");
  }
  f.folder = argv[1];
  for (int i = 3; i < argc; ++i) {
    if (!ReadFlag(argv[i], "--dies_at=", &f.dies_at) &&
        !ReadFlag(argv[i], "--pause_ms=", &f.pause_ms)) {
      return errors::InvalidArgument("what is ", argv[i], "?");
    }
  }
  return f;
}

// Before each batch of an evaluation.
class Killer : public Callback {
 public:
  explicit Killer(const Flags& flags) : flags_(flags) {
    const char* const restarts = std::getenv("MILLRACE_RESTARTS");
    life_ = restarts == nullptr ? "0" : restarts;
  }
  std::string kind() const override { return "Killer"; }
  Status OnTestBatchBegin(int64_t) override {
    if (batches_ == 0) {
      std::printf("life %s evaluates\n", life_.c_str());
      std::fflush(stdout);
    }
    if (life_ == "0" && batches_ == flags_.dies_at) ::raise(SIGKILL);
    ++batches_;
    std::this_thread::sleep_for(milliseconds(flags_.pause_ms));
    return OkStatus();
  }

 private:
  const Flags& flags_;
  std::string life_;
  int64_t batches_ = 0;
};

Status Run(int argc, char** argv) {
  MR_ASSIGN_OR_RETURN(const Flags flags, Parse(argc, argv));
  MR_ASSIGN_OR_RETURN(const auto model, EvaluatedModel(/*seed=*/99));
  Killer killer(flags);
  return RunSidecarEvaluator(
             {.directory = flags.folder,
              .take = TakeCheckpoints::kEvery,
              .last_number = flags.last,
              .poll = milliseconds(5)},
             [&](const std::string& checkpoint) -> Status {
               MR_RETURN_IF_ERROR(model->LoadWeights(checkpoint));
               MR_ASSIGN_OR_RETURN(const Logs logs,
                                   model->Evaluate(EvaluatedSamples(), EvaluatedLabels(),
                                                   {.batch_size = kEvaluatedBatch,
                                                    .callbacks = {&killer},
                                                    .verbose = Verbose::kSilent}));
               std::string line = StrCat("result ", CheckpointNumber(checkpoint).value_or(-1));
               for (const auto& [name, value] : logs) {
                 char bits[64];
                 std::snprintf(bits, sizeof(bits), " %s=%a", name.c_str(), value);
                 line += bits;
               }
               std::puts(line.c_str());
               std::fflush(stdout);
               return OkStatus();
             })
      .status();
}

}  // namespace
}  // namespace millrace::testing

int main(int argc, char** argv) {
  const millrace::Status status = millrace::testing::Run(argc, argv);
  if (!status.ok()) {
    std::fprintf(stderr, "evaluator_program: %s\n", std::string(status.message()).c_str());
  }
  return status.ok() ? 0 : 1;
}
