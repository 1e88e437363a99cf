// SPDX-License-Identifier: Apache-2.0
// Two workers that train one model in step, are killed at any step, and are gone on with by two
// other programs on other servers: they end with the numbers of a run that was not killed, bit for
// bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/local_cluster.h"
#include "millrace/strategy.h"
#include "tests/fit/resumed_kinds.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kWorkers = 2;

struct Run {
  int64_t seed = 1;
  std::string directory{};   // of the backups
  std::string kept{};        // "": else each worker's backups before each step are copied into it
  std::string on_dataset{};  // as ResumedBatches has it; "": on tensors, shuffled
};

std::string NewDirectory() {
  static int number = 0;
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string path =
      StrCat(folder == nullptr ? "/tmp" : folder, "/two", getpid(), "_", number++);
  fs::remove_all(path);
  return path;
}

// Where a worker has its backups.
std::string OwnFolder(const std::string& directory, int worker) {
  return worker == 0 ? directory : StrCat(directory, "/workertemp_", worker);
}

std::string KeptFolder(const std::string& kept, int64_t step, int worker) {
  return StrCat(kept, "/", step, "_", worker);
}

void CopyFiles(const std::string& from, const std::string& to) {
  fs::create_directories(to);
  if (!fs::exists(from)) return;  // nothing has been saved yet
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file()) fs::copy(entry.path(), to);
  }
}

StatusOr<std::shared_ptr<Strategy>> StrategyOf(const LocalCluster& cluster, int worker) {
  return MakeStrategy(
      "multi_worker_mirrored",
      {.task = {.cluster = cluster.spec(), .job_name = "worker", .task_index = worker},
       .target = cluster.target("worker", worker),
       .communication = {.timeout_seconds = 30}});
}

Status TrainWorker(const ResumedKind& kind, const Run& run, const LocalCluster& cluster, int worker,
                   ResumedResult* result) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Strategy> strategy, StrategyOf(cluster, worker));
  Model model(layers::Sequential(kind.layers(run.seed)), {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile({.optimizer = kind.optimizer(),
                                    .loss = "sparse_categorical_crossentropy",
                                    .metrics = {"accuracy"}}));
  BackupAndRestore backup({.directory = run.directory, .save_freq = 1});
  LearningRateScheduler decay([](int64_t, double rate) { return rate * 0.9; });
  EarlyStopping watches({.patience = 2, .restore_best_weights = true});
  LambdaCallback keeper({.on_train_batch_begin = [&](int64_t batch) {
    const int64_t made = model.training_run()->epoch() * kStepsPerEpoch + batch;
    if (!run.kept.empty()) {
      CopyFiles(OwnFolder(run.directory, worker), KeptFolder(run.kept, made, worker));
    }
    ++result->steps;
    return OkStatus();
  }});
  FitOptions fit;
  fit.batch_size = kBatch;
  fit.epochs = kEpochs;
  fit.verbose = Verbose::kSilent;
  fit.callbacks = {&decay, &backup, &watches, &keeper};
  if (!kind.has_rate) fit.callbacks = {&backup, &watches, &keeper};
  StatusOr<History> history = errors::Internal("not trained");
  if (run.on_dataset.empty()) {
    fit.validation = ValidationData{kind.x.Slice(0, 6), ResumedLabels().Slice(0, 6)};
    history = model.Fit(kind.x, ResumedLabels(), fit);
  } else {
    fit.validation_dataset = ResumedBatches(kind, run.on_dataset).Take(2);
    history = model.Fit(ResumedBatches(kind, run.on_dataset), fit);
  }
  MR_RETURN_IF_ERROR(history.status());
  KeepResult(model, *history, result);
  result->best = watches.best().value_or(-1);
  return OkStatus();
}

// Of each worker.
std::vector<ResumedResult> Train(const ResumedKind& kind, const Run& run) {
  const auto cluster = LocalCluster::Start({.workers = kWorkers}).value();
  std::vector<ResumedResult> results(kWorkers);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      ResumedResult& result = results[static_cast<std::size_t>(worker)];
      result.status = TrainWorker(kind, run, *cluster, worker, &result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

class TwoWorkersResume : public ::testing::TestWithParam<int> {
 protected:
  const ResumedKind kind_ = ResumedKinds()[static_cast<std::size_t>(GetParam())];

  // The run that is not interrupted, with what it would have left at each step.
  void TrainWhole(const std::string& on_dataset = "") {
    kept_ = NewDirectory();
    on_dataset_ = on_dataset;
    whole_ = Train(kind_, {.directory = NewDirectory(), .kept = kept_, .on_dataset = on_dataset});
    for (const ResumedResult& result : whole_) {
      ASSERT_TRUE(result.status.ok()) << result.status;
      ASSERT_EQ(result.steps, kSteps);
      ASSERT_GE(result.variables.size(), 10u);
    }
  }
  // What was left when each worker was killed before such a step, gone on with by programs that
  // would have begun with other weights.
  void ExpectNoTrace(int64_t first_step, int64_t second_step) {
    SCOPED_TRACE(
        StrCat(kind_.name, ", killed before the steps ", first_step, " and ", second_step));
    const std::string directory = NewDirectory();
    CopyFiles(KeptFolder(kept_, first_step, 0), OwnFolder(directory, 0));
    CopyFiles(KeptFolder(kept_, second_step, 1), OwnFolder(directory, 1));
    const int64_t common = std::min(first_step, second_step);
    const std::vector<ResumedResult> resumed = Train(
        kind_, {.seed = common == 0 ? 1 : 1001, .directory = directory, .on_dataset = on_dataset_});
    for (std::size_t worker = 0; worker < resumed.size(); ++worker) {
      SCOPED_TRACE(StrCat("worker ", worker));
      ExpectEndOf(whole_[worker], resumed[worker]);
      EXPECT_EQ(resumed[worker].steps, kSteps - common);
    }
    EXPECT_FALSE(fs::exists(directory)) << "backups go at the end";
  }

 private:
  std::string kept_, on_dataset_;
  std::vector<ResumedResult> whole_;
};

TEST_P(TwoWorkersResume, KilledAtEveryStep) {
  TrainWhole();
  for (int64_t step = 0; step < kSteps && !HasFailure(); ++step) ExpectNoTrace(step, step);
}

// One had saved the step, the other was killed before it could.
TEST_P(TwoWorkersResume, KilledWhileTheySaved) {
  TrainWhole();
  for (const int64_t step : {1, 10, 17, 29}) {
    ExpectNoTrace(step, step - 1);
    ExpectNoTrace(step - 1, step);
  }
}

TEST_P(TwoWorkersResume, OnDataSets) {
  for (const char* how : {"seeded", "cached"}) {
    SCOPED_TRACE(how);
    TrainWhole(how);
    for (const int64_t step : {1, 9, 10, 12, 20, 29}) ExpectNoTrace(step, step);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TwoWorkersResume, ::testing::Range(0, 3), [](const auto& info) {
  return std::string(ResumedKinds()[static_cast<std::size_t>(info.param)].name);
});

}  // namespace
}  // namespace millrace::testing
