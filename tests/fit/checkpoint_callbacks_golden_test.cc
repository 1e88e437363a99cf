// SPDX-License-Identifier: Apache-2.0
// What ModelCheckpoint writes, and when, against Keras' recordings; and that a run that goes on
// from a backup makes the steps that are missing.
//
// Where Keras is wrong ours differs on purpose: a run that goes on from a backup within an epoch
// repeats nothing, so that the weight, which counts steps, ends at 12 and not at 15.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_callbacks.h"
#include "tests/fit/counting_model.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kStepsPerEpoch = 3;

std::string NewDirectory() {
  static int number = 0;
  const std::string path = StrCat(::testing::TempDir(), "/checkpoints", getpid(), "_", number++);
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

// Always this much, and a step adds the learning rate to the weight.
losses::Loss Constantly(float value) {
  return {"constantly", [value](const Scope& scope, const Output&, const Output& y_pred) {
            const Expr pred = Expr(scope, y_pred).Squeeze(-1);
            const Expr same(scope, ops::StopGradient(scope, pred));
            return losses::LossValues{(same - pred) + value};
          }};
}

// Prefixes of the checkpoints below a directory, with the weight that each has.
std::map<std::string, int64_t> WeightsIn(const std::string& directory) {
  std::map<std::string, int64_t> weights;
  constexpr std::string_view kIndex = ".index";
  for (const auto& file : fs::recursive_directory_iterator(directory)) {
    std::string path = file.path().string();
    if (!path.ends_with(kIndex)) continue;
    path.resize(path.size() - kIndex.size());
    const auto reader = CheckpointReader::Open(path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    const auto value = (*reader)->Read("count/.ATTRIBUTES/VARIABLE_VALUE");
    EXPECT_TRUE(value.ok()) << value.status();
    weights[fs::relative(path, directory)] =
        value.ok() ? static_cast<int64_t>(value->data<float>()[0]) : -1;
  }
  return weights;
}

ModelCheckpointOptions CheckpointOf(const Json& golden, const std::string& directory) {
  const Arguments a(golden["arguments"]);
  ModelCheckpointOptions o;
  o.filepath = StrCat(directory, "/", golden["filepath"].get<std::string>());
  o.save_weights_only = true;
  a.Get("monitor", &o.monitor);
  a.Get("save_best_only", &o.save_best_only);
  a.Get("initial_value_threshold", &o.initial_value_threshold);
  a.Get("save_freq", &o.save_freq);
  std::string mode = "auto";
  a.Get("mode", &mode);
  o.direction = mode == "min"   ? Direction::kDown
                : mode == "max" ? Direction::kUp
                                : Direction::kAuto;
  return o;
}

std::string CheckError(const Json& golden, const Status& status) {
  const std::string wanted = golden["raises"] == "KeyError"
                                 ? "Failed to format this callback filepath: "
                                 : "monitors 'val_missing'";
  if (!errors::IsInvalidArgument(status)) return StrCat("no error, but ", status.ToString());
  return status.message().find(wanted) != std::string_view::npos ? "" : status.ToString();
}

std::string CheckSaves(const Json& golden) {
  const std::string directory = NewDirectory();
  const std::vector<double> values = Numbers(golden["values"]);
  const std::string metric = golden["metric"];
  const auto model = CountingModel(1.0, Constantly(0.5f), {"accuracy", "auc"});
  ModelCheckpoint checkpoint(CheckpointOf(golden, directory));
  LambdaCallback script({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
    logs.Set(metric, values[epoch]);
    return OkStatus();
  }});
  std::map<std::string, int64_t> seen;
  Json saves = Json::array();
  int64_t current = 0;
  const auto look = [&](const std::string& at) {
    std::map<std::string, int64_t> now = WeightsIn(directory);
    for (const auto& [file, steps] : now) {
      if (seen.contains(file) && seen[file] == steps) continue;
      saves.push_back({{"at", at}, {"file", file}, {"train_steps", steps}});
    }
    seen = std::move(now);
    return OkStatus();
  };
  LambdaCallback watcher({
      .on_epoch_begin =
          [&](int64_t epoch) {
            current = epoch;
            return OkStatus();
          },
      .on_epoch_end = [&](int64_t epoch, Logs&) { return look(StrCat("epoch ", epoch, " end")); },
      .on_train_batch_end =
          [&](int64_t batch, const Logs&) {
            return look(StrCat("epoch ", current, " batch ", batch));
          },
  });
  FitOptions fit{.batch_size = 2,
                 .epochs = static_cast<int64_t>(values.size()),
                 .validation = ValidationData{Ones(2), Ones(2)},
                 .shuffle = false,
                 .callbacks = {&script, &checkpoint, &watcher},
                 .verbose = Verbose::kSilent};
  const auto history = model->Fit(Ones(4), Ones(4), fit);
  std::vector<std::string> files;
  for (const auto& [file, steps] : WeightsIn(directory)) files.push_back(file);
  fs::remove_all(directory);
  if (golden.contains("raises")) return CheckError(golden, history.status());
  if (!history.ok()) return history.status().ToString();
  if (saves != golden["saves"]) return StrCat("saves ", saves.dump());
  if (Json(files) != golden["files"]) return StrCat("files ", Json(files).dump());
  const bool best_agrees =
      golden["best"].is_null()
          ? !checkpoint.best()
          : checkpoint.best() && std::abs(*checkpoint.best() - golden["best"].get<double>()) < 1e-6;
  return best_agrees ? "" : "another best value";
}

struct Steps {
  Json made = Json::array();
  double weight_at_begin = -1, weight_at_end = -1;
  std::vector<int64_t> epochs;
  Status status;
};

double WeightOf(Model& model) {
  const auto weights = model.GetWeights();
  EXPECT_TRUE(weights.ok()) << weights.status();
  return weights.ok() ? (*weights)[0].data<float>()[0] : -1;
}

// A new model, that fails at the end of a step if it is given one.
Steps Train(const Json& golden, const std::string& directory, const Json& fails_at) {
  const auto model = CountingModel(1.0, Counted());
  const Arguments a(golden["arguments"]);
  BackupAndRestoreOptions o{.directory = directory};
  a.Get("save_freq", &o.save_freq);
  a.Get("double_checkpoint", &o.double_checkpoint);
  a.Get("delete_checkpoint", &o.delete_checkpoint);
  BackupAndRestore backup(o);
  Steps steps;
  int64_t current = 0;
  LambdaCallback watcher({
      .on_train_begin =
          [&] {
            steps.weight_at_begin = WeightOf(*model);
            return OkStatus();
          },
      .on_epoch_begin =
          [&](int64_t epoch) {
            current = epoch;
            return OkStatus();
          },
      .on_train_batch_end = [&](int64_t batch, const Logs&) -> Status {
        const Json step = Json::array({current, batch});
        steps.made.push_back(step);
        return step == fails_at ? errors::Aborted("as the test wants it") : OkStatus();
      },
  });
  const auto history = model->Fit(Ones(6), Ones(6),
                                  {.batch_size = 2,
                                   .epochs = golden["epochs"],
                                   .shuffle = false,
                                   .callbacks = {&backup, &watcher},
                                   .verbose = Verbose::kSilent});
  steps.status = history.status();
  steps.weight_at_end = WeightOf(*model);
  if (history.ok()) {
    for (const History::Epoch& epoch : history->epochs()) steps.epochs.push_back(epoch.epoch);
  }
  return steps;
}

std::string CheckBackup(const Json& golden) {
  const std::string directory = NewDirectory() + "/b";
  EXPECT_EQ(golden["steps_per_epoch"], kStepsPerEpoch);
  const Steps first = Train(golden, directory, golden["fails_at_epoch_batch"]);
  if (!errors::IsAborted(first.status)) return first.status.ToString();
  if (first.made != golden["first_run"] || first.weight_at_end != golden["weight_at_failure"]) {
    return StrCat("the first run makes ", first.made.dump());
  }
  if (fs::exists(directory) == golden["files_after_failure"].empty()) return "no backup, or one";
  const Steps second = Train(golden, directory, Json());
  if (!second.status.ok()) return second.status.ToString();
  // What the backup has, and the steps behind it.
  Json want = golden["second_run"];
  double begin = golden["weight_at_second_start"];
  if (const auto freq = golden["arguments"].find("save_freq"); freq != golden["arguments"].end()) {
    // The step whose end failed is not in a backup.
    const int64_t every = *freq, made = static_cast<int64_t>(first.made.size()) - 1;
    const int64_t saved = made / every * every;
    begin = static_cast<double>(saved);
    want = Json::array();
    for (int64_t i = saved; i < golden["epochs"].get<int64_t>() * kStepsPerEpoch; ++i) {
      want.push_back({i / kStepsPerEpoch, i % kStepsPerEpoch});
    }
  }
  if (second.made != want) return StrCat("the second run makes ", second.made.dump());
  if (second.weight_at_begin != begin) return StrCat("begins with ", second.weight_at_begin);
  constexpr double kAllSteps = 12;
  if (second.weight_at_end != kAllSteps) return StrCat("ends with ", second.weight_at_end);
  if (Json(second.epochs) != golden["epochs_in_second_history"]) return "other epochs";
  if (fs::exists(directory) == golden["files_at_end"].empty()) return "files at the end";
  return "";
}

template <typename Check>
void CheckAll(const std::string& family, const Check& check) {
  const Json golden = LoadGolden(StrCat("callbacks/", family, ".json"));
  Tally tally(StrCat("callbacks/", family));
  int number = 0;
  for (const Json& each : golden["cases"]) {
    tally.Add(StrCat(number++, " ", each["arguments"].dump()), check(each));
  }
}

TEST(CheckpointCallbacksGolden, ModelCheckpoint) { CheckAll("model_checkpoint", CheckSaves); }
TEST(CheckpointCallbacksGolden, BackupAndRestore) { CheckAll("backup_and_restore", CheckBackup); }

}  // namespace
}  // namespace millrace::testing
