// SPDX-License-Identifier: Apache-2.0
// A program that trains under a strategy as a task of `millrace run`, with backups of its training,
// and kills itself where it is told to (tests/fit/survivors_test.cc):
//
//   survivor_program STRATEGY FOLDER [--dies=TASK:STEP] [--pause_ms=N] [--hold_at=STEP]
//                    [--save_freq=N] [--dataset] [--kind=mlp|cnn|lstm] [--i_am=NAME]
//
// Backups are in FOLDER/backup; at the end each task that trains writes what it has learned to
// FOLDER/result-<task>. Parameter servers, and the workers that they have, serve until they are
// told to end.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/cluster_resolver.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/preemption.h"
#include "millrace/server.h"
#include "millrace/strategy.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kEpochs = 3, kStepsPerEpoch = 8, kBatch = 8, kRows = 62;

struct Flags {
  std::string strategy, folder;
  int64_t dies_in = -1, dies_at = -1;  // the task, and before which step, in its first life
  int64_t pause_ms = 0;                // before each step
  int64_t hold_at = -1;                // before this step until FOLDER/go is there, or a notice
  int64_t save_freq = 1;               // kEveryEpoch: by epochs
  bool on_dataset = false;
  std::string kind = "mlp";
};

bool ReadFlag(std::string_view text, std::string_view name, int64_t* value) {
  return text.starts_with(name) && ParseInt64(text.substr(name.size()), value);
}

StatusOr<Flags> Parse(int argc, char** argv) {
  if (argc < 3) return errors::InvalidArgument("a strategy and a folder, please");
  Flags f{.strategy = argv[1], .folder = argv[2]};
  for (int i = 3; i < argc; ++i) {
    const std::string_view text = argv[i];
    const std::size_t colon = text.rfind(':');
    if (text.starts_with("--i_am=")) continue;  // for who looks at command lines
    if (text == "--dataset") {
      f.on_dataset = true;
    } else if (text.starts_with("--kind=")) {
      f.kind = text.substr(text.find('=') + 1);
    } else if (colon != std::string_view::npos &&
               ReadFlag(text.substr(0, colon), "--dies=", &f.dies_in) &&
               ParseInt64(text.substr(colon + 1), &f.dies_at)) {
    } else if (!ReadFlag(text, "--pause_ms=", &f.pause_ms) &&
               !ReadFlag(text, "--hold_at=", &f.hold_at) &&
               !ReadFlag(text, "--save_freq=", &f.save_freq)) {
      return errors::InvalidArgument("what is ", text, "?");
    }
  }
  return f;
}

// Until it is told to end by the chief (0), or by a signal: then the chief has two seconds more to
// save what lies here.
Status Serve(const ResolvedTask& task) {
  MR_ASSIGN_OR_RETURN(const auto server, Server::Create({.cluster = task.cluster,
                                                         .job_name = *task.job_name,
                                                         .task_index = *task.task_index,
                                                         .accept_shutdown = true}));
  MR_RETURN_IF_ERROR(server->Start());
  while (!server->WaitForShutdown(milliseconds(50))) {
    if (PreemptionSignal() == 0) continue;
    server->WaitForShutdown(seconds(2));
    break;
  }
  return server->Stop(milliseconds(0));
}

Tensor Inputs(const std::string& kind) {
  Tensor x(kFloat, kind == "cnn"    ? Shape({kRows, 6, 6, 1})
                   : kind == "lstm" ? Shape({kRows, 5, 3})
                                    : Shape({kRows, 6}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 101.0f;
  }
  return x;
}

Tensor Labels() {
  Tensor y(kInt64, Shape({kRows}));
  for (int64_t i = 0; i < kRows; ++i) y.data<int64_t>()[i] = (i * 5) % 3;
  return y;
}

layers::LayerList LayersOf(const std::string& kind) {
  layers::LayerList l;
  if (kind == "cnn") {
    l.push_back(layers::Conv2D(4, 3));
    l.push_back(layers::BatchNormalization());
    l.push_back(layers::Activation("relu"));
    l.push_back(layers::MaxPooling2D());
    l.push_back(layers::Flatten());
    l.push_back(layers::Dropout(0.4, {.seed = 3}));
  } else if (kind == "lstm") {
    l.push_back(layers::Lstm(6, {.dropout = 0.2, .seed = 3}));
    l.push_back(layers::BatchNormalization());
  } else {
    l.push_back(layers::Dense(8, {.activation = "relu"}));
    l.push_back(layers::BatchNormalization());
    l.push_back(layers::Dropout(0.3, {.seed = 3}));
  }
  l.push_back(layers::Dense(3, {.activation = "softmax"}));
  return l;
}

// Until whoever looks on has done what is to be done to the job in this step.
void Hold(const std::string& folder) {
  while (PreemptionSignal() == 0 && !std::filesystem::exists(folder + "/go")) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  if (PreemptionSignal() == 0) return;
  std::puts("is told to end");
  std::fflush(stdout);
}

// All that there is at the end: weights, on every replica, slots, counts, sums of metrics.
Status WriteResult(Model& model, const std::string& prefix) {
  std::map<std::string, Tensor> values;
  for (const char* collection : {kVariables, kLocalVariables}) {
    for (const Variable& v : Variables(model.graph(), collection)) {
      MR_ASSIGN_OR_RETURN(values[v.name()], model.session()->Eval(v.read));
      for (const Variable& copy : CopiesOf(v)) {
        MR_ASSIGN_OR_RETURN(values[copy.name()], model.session()->Eval(copy.read));
      }
    }
  }
  return WriteTensors(prefix, values);
}

Status Train(const Flags& flags, const ResolvedTask& task) {
  const int index = task.task_index.value_or(0);
  MR_ASSIGN_OR_RETURN(
      const auto strategy,
      MakeStrategy(flags.strategy, {.replicas = flags.strategy == "mirrored" ? 2 : 0,
                                    .communication = {.timeout_seconds = 20}}));
  Model model(layers::Sequential(LayersOf(flags.kind)),
              {.seed = 7, .session = {.start_timeout = seconds(20)}, .strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                                    .loss = "sparse_categorical_crossentropy",
                                    .metrics = {"accuracy"}}));
  BackupAndRestore backup(
      {.directory = StrCat(flags.folder, "/backup"), .save_freq = flags.save_freq});
  const char* const lives = std::getenv("MILLRACE_RESTARTS");
  const bool first_life = lives == nullptr || std::string_view(lives) == "0";
  LambdaCallback killer({.on_train_batch_begin = [&](int64_t batch) {
    const int64_t step = model.training_run()->epoch() * kStepsPerEpoch + batch;
    std::printf("begins step %lld\n", static_cast<long long>(step));
    std::fflush(stdout);
    std::this_thread::sleep_for(milliseconds(flags.pause_ms));
    if (step == flags.hold_at) Hold(flags.folder);
    if (first_life && index == flags.dies_in && step == flags.dies_at) ::kill(::getpid(), SIGKILL);
    return OkStatus();
  }});
  FitOptions fit;
  fit.batch_size = kBatch;
  fit.epochs = kEpochs;
  fit.verbose = Verbose::kSilent;
  fit.callbacks = {&backup, &killer};
  const Status fitted = flags.on_dataset
                            ? model
                                  .Fit(Dataset::FromTensorSlices({Inputs(flags.kind), Labels()})
                                           .Shuffle(20, {.seed = 5})
                                           .Batch(kBatch),
                                       fit)
                                  .status()
                            : model.Fit(Inputs(flags.kind), Labels(), fit).status();
  MR_RETURN_IF_ERROR(fitted);
  return WriteResult(model, StrCat(flags.folder, "/result-", index));
}

Status Run(int argc, char** argv) {
  MR_ASSIGN_OR_RETURN(const Flags flags, Parse(argc, argv));
  MR_RETURN_IF_ERROR(WatchForPreemption());
  MR_ASSIGN_OR_RETURN(const ResolvedTask task, ResolveFromEnvironment());
  const bool is_led = flags.strategy == "parameter_server";
  if (is_led && task.job_name.value_or("") != "chief") return Serve(task);
  MR_RETURN_IF_ERROR(Train(flags, task));
  if (!is_led) return OkStatus();
  for (const auto& [job, tasks] : task.cluster.jobs()) {
    for (const auto& [index, address] : tasks) {
      if (job != "chief") ShutdownTask(address, seconds(5)).IgnoreError();
    }
  }
  return OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const millrace::Status status = millrace::Run(argc, argv);
  if (!status.ok()) {
    std::fprintf(stderr, "survivor_program: %.*s\n", static_cast<int>(status.message().size()),
                 status.message().data());
  }
  const int preempted = millrace::PreemptionExitCode();
  std::fflush(stdout);
  // A server that a signal ended has done what it was asked for, as any other.
  return status.ok() ? 0 : preempted != 0 ? preempted : 1;
}
