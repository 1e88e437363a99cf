// SPDX-License-Identifier: Apache-2.0
// One of several workers that train together, one of which is told to end
// (tests/preemption/workers_test.cc):
//
//   told_worker fit|backup|ranks TASK CLUSTER FOLDER
//
// "fit" is a Fit with an all-reduce, "backup" the same with backups in FOLDER, "ranks" a loop of
// one's own. It prints each step that begins, and at the end how many were made.
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/data_parallel.h"
#include "millrace/millrace.h"
#include "millrace/preemption.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kRows = 48, kFeatures = 4, kBatch = 12;

struct Program {
  std::string mode, folder;
  ResolvedTask task;
  int steps = 0;  // that have been made

  void Begin() const {
    std::printf("begins step %d\n", steps);
    std::fflush(stdout);
    std::this_thread::sleep_for(milliseconds(10));
  }
};

Status Fit(Program& program) {
  MR_ASSIGN_OR_RETURN(
      const auto strategy,
      MakeStrategy("multi_worker_mirrored",
                   {.task = program.task, .communication = {.timeout_seconds = 60}}));
  Model model(
      layers::Sequential({layers::Dense(3, {.activation = "tanh"}), layers::Dense(1)}),
      {.seed = 7, .session = {.start_timeout = std::chrono::seconds(60)}, .strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile({.optimizer = "adam", .loss = "mse"}));
  LambdaCallback counter({.on_train_batch_begin =
                              [&](int64_t) {
                                program.Begin();
                                return OkStatus();
                              },
                          .on_train_batch_end =
                              [&](int64_t, const Logs&) {
                                ++program.steps;
                                return OkStatus();
                              }});
  BackupAndRestore backup({.directory = StrCat(program.folder, "/backup")});
  FitOptions fit;
  fit.batch_size = kBatch;
  fit.epochs = 100'000;
  fit.verbose = Verbose::kSilent;
  fit.callbacks = {&counter};
  if (program.mode == "backup") fit.callbacks.push_back(&backup);
  Tensor x(kFloat, Shape({kRows, kFeatures})), y(kFloat, Shape({kRows, 1}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 23) / 11.0f;
  }
  for (int64_t i = 0; i < kRows; ++i) y.data<float>()[i] = static_cast<float>(i % 5);
  return model.Fit(x, y, fit).status();
}

Status Ranks(Program& program) {
  MR_RETURN_IF_ERROR(dp::Init({.task = program.task, .communication = {.timeout_seconds = 60}}));
  for (bool stop = false; !stop; ++program.steps) {
    program.Begin();
    MR_RETURN_IF_ERROR(dp::AllReduce(Tensor::Scalar(1.0f)).status());
    MR_ASSIGN_OR_RETURN(stop, dp::ShouldStop());
  }
  return dp::Shutdown();
}

Status Run(int argc, char** argv, Program* program) {
  int64_t index = 0;
  if (argc != 5 || !ParseInt64(argv[2], &index)) {
    return errors::InvalidArgument("a mode, a task, a cluster and a folder, please");
  }
  program->mode = argv[1];
  program->folder = argv[4];
  MR_ASSIGN_OR_RETURN(program->task.cluster, ClusterSpec::Parse(argv[3]));
  program->task.job_name = "worker";
  program->task.task_index = static_cast<int>(index);
  MR_RETURN_IF_ERROR(WatchForPreemption());
  return program->mode == "ranks" ? Ranks(*program) : Fit(*program);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Program program;
  const millrace::Status status = millrace::Run(argc, argv, &program);
  std::printf("ended after %d steps; %s\n", program.steps, status.ToString().c_str());
  std::fflush(stdout);
  const int preempted = millrace::PreemptionExitCode();
  return preempted != 0 ? preempted : status.ok() ? 0 : 1;
}
