// SPDX-License-Identifier: Apache-2.0
// Runs of Fit that are killed and gone on with: they end with the numbers of a run that was not,
// bit for bit, whichever step they are killed at.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/model.h"
#include "millrace/preemption.h"
#include "millrace/strategy.h"
#include "tests/fit/resumed_kinds.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::kBatch;
using testing::kEpochs;
using testing::kSteps;
using testing::kStepsPerEpoch;
using testing::ResumedBatches;
using testing::ResumedKinds;
using testing::ResumedLabels;
using Kind = testing::ResumedKind;
using Result = testing::ResumedResult;

std::string NewDirectory() {
  static int number = 0;
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path =
      StrCat(folder == nullptr ? "/tmp" : folder, "/resume", getpid(), "_", number++);
  fs::remove_all(path);
  return path;
}

struct Settings {
  int64_t seed = 1;
  int64_t save_freq = 1;
  std::string directory{};
  int64_t dies_at = -1;      // before so many steps have been made in all
  bool by_signal = false;    // of kill -9
  int64_t noticed_at = -1;   // in this step the process is told that it is to end
  std::string on_dataset{};  // "", "seeded" or "cached"
  int replicas = 1;          // of a mirrored model, if more than one
};

Result Train(const Kind& kind, const Settings& run) {
  Result result;
  ModelOptions options;
  if (run.replicas > 1) {
    const auto strategy = MirroredStrategy({.replicas = run.replicas});
    result.status = strategy.status();
    if (!strategy.ok()) return result;
    options.strategy = *strategy;
  }
  Model model(layers::Sequential(kind.layers(run.seed)), options);
  result.status = model.Compile({.optimizer = kind.optimizer(),
                                 .loss = "sparse_categorical_crossentropy",
                                 .metrics = {"accuracy"}});
  if (!result.status.ok()) return result;
  BackupAndRestore backup({.directory = run.directory, .save_freq = run.save_freq});
  EarlyStopping watches({.patience = 2, .restore_best_weights = true});
  ReduceLrOnPlateau plateau({.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.5});
  LearningRateScheduler decay([](int64_t, double rate) { return rate * 0.9; });
  LambdaCallback killer({.on_train_batch_begin = [&](int64_t batch) -> Status {
    const int64_t made = model.training_run()->epoch() * kStepsPerEpoch + batch;
    if (made == run.dies_at) {
      if (run.by_signal) ::kill(::getpid(), SIGKILL);
      return errors::Aborted("killed by the test");
    }
    if (made == run.noticed_at) ::raise(SIGTERM);
    ++result.steps;
    return OkStatus();
  }});
  FitOptions fit;
  fit.batch_size = kBatch;
  fit.epochs = kEpochs;
  fit.verbose = Verbose::kSilent;
  // Callbacks before and behind the backup have states, too.
  fit.callbacks = {&decay, &backup, &watches, &plateau, &killer};
  if (!kind.has_rate) fit.callbacks = {&backup, &watches, &killer};
  StatusOr<History> history = errors::Internal("not trained");
  if (run.on_dataset.empty()) {
    fit.validation = ValidationData{kind.x.Slice(0, 5), ResumedLabels().Slice(0, 5)};
    history = model.Fit(kind.x, ResumedLabels(), fit);
  } else {
    fit.validation_dataset = ResumedBatches(kind, run.on_dataset).Take(2);
    history = model.Fit(ResumedBatches(kind, run.on_dataset), fit);
  }
  result.status = history.status();
  if (!history.ok()) return result;
  KeepResult(model, *history, &result);
  result.best = watches.best().value_or(-1);
  return result;
}

class ResumeTest : public ::testing::TestWithParam<int> {
 protected:
  const Kind kind_ = ResumedKinds()[static_cast<std::size_t>(GetParam())];

  // The run that is not interrupted.
  Result Whole(const Settings& like) {
    Settings run = like;
    run.directory = NewDirectory();
    Result result = Train(kind_, run);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.steps, kSteps);
    return result;
  }
  // Is killed, and gone on with by a program that would have begun with other numbers.
  void ExpectNoTrace(const Result& whole, Settings run, int64_t dies_at) {
    SCOPED_TRACE(StrCat(kind_.name, ", killed before step ", dies_at));
    run.directory = NewDirectory();
    run.dies_at = dies_at;
    const Result killed = Train(kind_, run);
    ASSERT_TRUE(errors::IsAborted(killed.status)) << killed.status;
    run.dies_at = -1;
    const bool has_backup = fs::exists(run.directory);
    if (has_backup) run.seed += 1000;
    const Result resumed = Train(kind_, run);
    ExpectEndOf(whole, resumed);
    const int64_t every = run.save_freq == kEveryEpoch ? kStepsPerEpoch : run.save_freq;
    EXPECT_EQ(resumed.steps, kSteps - dies_at / every * every);
    EXPECT_FALSE(fs::exists(run.directory)) << "backups go at the end";
  }
};

TEST_P(ResumeTest, KilledAtEveryStep) {
  const Settings run{.save_freq = 1};
  const Result whole = Whole(run);
  for (int64_t step = 0; step < kSteps; ++step) ExpectNoTrace(whole, run, step);
}

TEST_P(ResumeTest, KilledBetweenBackups) {
  const Settings run{.save_freq = 4};
  const Result whole = Whole(run);
  for (const int64_t step : {3, 5, 11, 18, 29}) ExpectNoTrace(whole, run, step);
}

TEST_P(ResumeTest, WithBackupsOfEpochs) {
  const Settings run{.save_freq = kEveryEpoch};
  const Result whole = Whole(run);
  for (const int64_t step : {4, 10, 13, 20, 29}) ExpectNoTrace(whole, run, step);
}

TEST_P(ResumeTest, OnDataSets) {
  for (const char* how : {"seeded", "cached"}) {
    SCOPED_TRACE(how);
    for (const int64_t every : {int64_t{1}, kEveryEpoch}) {
      const Settings run{.save_freq = every, .on_dataset = how};
      const Result whole = Whole(run);
      for (const int64_t step : {1, 9, 10, 12, 20, 25, 29}) ExpectNoTrace(whole, run, step);
    }
  }
}

// Each replica drops values by seeds and counts of its own.
TEST_P(ResumeTest, OfTwoReplicas) {
  const Settings run{.save_freq = 1, .replicas = 2};
  const Result whole = Whole(run);
  for (const int64_t step : {0, 1, 9, 10, 12, 20, 29}) ExpectNoTrace(whole, run, step);
  const Settings by_epochs{.save_freq = kEveryEpoch, .on_dataset = "seeded", .replicas = 2};
  const Result whole_of_batches = Whole(by_epochs);
  for (const int64_t step : {4, 13, 29}) ExpectNoTrace(whole_of_batches, by_epochs, step);
}

TEST_P(ResumeTest, ANoticeThatTheProcessIsToEndCostsNoStep) {
  const Settings run{.save_freq = kEveryEpoch};
  const Result whole = Whole(run);
  for (const int64_t step : {0, 7, 9, 10, 29}) {
    SCOPED_TRACE(StrCat(kind_.name, ", noticed in step ", step));
    Settings noticed = run;
    noticed.directory = NewDirectory();
    noticed.noticed_at = step;
    ASSERT_TRUE(WatchForPreemption().ok());
    const Result ended = Train(kind_, noticed);
    EXPECT_TRUE(errors::IsCancelled(ended.status)) << ended.status;
    EXPECT_EQ(ended.steps, step + 1);
    EXPECT_EQ(PreemptionExitCode(), 128 + SIGTERM);
    ForgetPreemption();
    EXPECT_EQ(PreemptionExitCode(), 0);
    noticed.noticed_at = -1;
    noticed.seed += 1000;
    const Result resumed = Train(kind_, noticed);
    ExpectEndOf(whole, resumed);
    EXPECT_EQ(resumed.steps, kSteps - step - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ResumeTest, ::testing::Range(0, 3), [](const auto& info) {
  return std::string(ResumedKinds()[static_cast<std::size_t>(info.param)].name);
});

// A process of its own, that kills itself: KILLED_MODEL, KILLED_AT, KILLED_DIRECTORY.
TEST(KilledProcess, DISABLED_Child) {
  const char* const model = std::getenv("KILLED_MODEL");
  ASSERT_NE(model, nullptr);
  Settings run;
  run.directory = std::getenv("KILLED_DIRECTORY");
  run.dies_at = std::atoi(std::getenv("KILLED_AT"));
  run.by_signal = true;
  Train(ResumedKinds()[static_cast<std::size_t>(std::atoi(model))], run);
  FAIL() << "it lives";
}

TEST(KilledProcess, LeavesWhatTheNextOneGoesOnFrom) {
  const std::vector<Kind> kinds = ResumedKinds();
  for (int model = 0; model < static_cast<int>(kinds.size()); ++model) {
    const Result whole = Train(kinds[model], {.directory = NewDirectory()});
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    for (const int dies_at : {1, 10, 17}) {
      const std::string directory = NewDirectory();
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        ::setenv("KILLED_MODEL", std::to_string(model).c_str(), 1);
        ::setenv("KILLED_AT", std::to_string(dies_at).c_str(), 1);
        ::setenv("KILLED_DIRECTORY", directory.c_str(), 1);
        // What whoever runs this test wants to know of it is not about the child.
        for (const char* name : {"TEST_PREMATURE_EXIT_FILE", "XML_OUTPUT_FILE", "TEST_TOTAL_SHARDS",
                                 "TEST_SHARD_INDEX", "TEST_SHARD_STATUS_FILE"}) {
          ::unsetenv(name);
        }
        ::execl("/proc/self/exe", "resume_test", "--gtest_also_run_disabled_tests",
                "--gtest_filter=KilledProcess.DISABLED_Child", nullptr);
        ::_exit(1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      const Result resumed = Train(kinds[model], {.seed = 77, .directory = directory});
      ExpectEndOf(whole, resumed);
      EXPECT_EQ(resumed.steps, kSteps - dies_at);
    }
  }
}

}  // namespace
}  // namespace millrace
