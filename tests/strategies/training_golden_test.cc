// SPDX-License-Identifier: Apache-2.0
// Fit and loops by hand with several replicas against what Keras and TensorFlow recorded under
// MirroredStrategy.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/millrace.h"
#include "tests/strategies/golden_run.h"

namespace millrace::testing {
namespace {

// Keras' batch normalization of a replica without samples is not a number, and spreads.
bool HasEmptyReplica(const Json& run) { return run["replicas"] == 4; }
bool IsNormalized(const Json& run) {
  return run["model"] == "cnn" || run["model"] == "mlp_batchnorm";
}

// Of a row that several samples name Keras squares the parts of the gradient apart.
bool SquaresRowsApart(const Json& run) {
  return run["model"] == "embedding" && run["optimizer"]["class"] != "SGD";
}

class WeightRecorder : public Callback {
 public:
  Status OnEpochEnd(int64_t, Logs&) override {
    weights.push_back(model()->GetWeights());
    return OkStatus();
  }
  std::vector<StatusOr<std::vector<Tensor>>> weights;
};

std::string FitOf(const Json& golden, const Json& run) {
  const Json& network = golden["models"][run["model"].get<std::string>()];
  const auto strategy = MirroredStrategy({.replicas = run["replicas"].get<int>()});
  if (!strategy.ok()) return strategy.status().ToString();
  Model model(GoldenNetwork(network), {.strategy = *strategy});
  // Keras weighs replicas alike, whatever they have of the last batch.
  CompileOptions compile = CompileOptionsOf(network, run);
  compile.replica_loss = ReplicaLoss::kMeanOfReplicas;
  const auto data = [&](const char* name) { return TensorOf(network["data"][name]); };
  if (std::string why = PrepareModel(&model, network, std::move(compile)); !why.empty()) return why;
  WeightRecorder recorder;
  FitOptions options{.batch_size = run["global_batch"].get<int64_t>(),
                     .epochs = run["epochs"].get<int64_t>(),
                     .validation = ValidationData{data("xv"), data("yv")},
                     .validation_batch_size = run["validation_batch"].get<int64_t>(),
                     .shuffle = false,
                     .callbacks = {&recorder},
                     .verbose = Verbose::kSilent};
  const auto history = model.Fit(data("x"), data("y"), options);
  if (!history.ok()) return history.status().ToString();
  for (const auto& [name, values] : run["history"].items()) {
    // Keras' replicas keep moving averages of their own, and test with those.
    if (IsNormalized(run) && name.starts_with("val_")) continue;
    const std::vector<double> got = history->values(name);
    const std::string why = Difference(
        Tensor::FromValues<double>(std::span(got), Shape({static_cast<int64_t>(got.size())})),
        values, kGoldenValues);
    if (!why.empty()) return StrCat("history of ", name, ": ", why);
  }
  for (std::size_t i = 0; i < recorder.weights.size(); ++i) {
    const std::string why =
        WeightDifference(recorder.weights[i], run["weights_after_epoch"][i], run);
    if (!why.empty()) return StrCat("after epoch ", i, ": ", why);
  }
  return recorder.weights.size() == run["weights_after_epoch"].size() ? "" : "other epochs";
}

TEST(MirroredTrainingGolden, FitsAsKerasDoes) {
  const Json golden = LoadGolden("strategies/mirrored_training.json");
  Tally tally("strategies/mirrored_training fit");
  for (const Json& run : golden["fit"]) {
    const bool is_left_out = run.contains("raises") || SquaresRowsApart(run) ||
                             (IsNormalized(run) && HasEmptyReplica(run));
    if (is_left_out) {
      tally.LeaveOut();
      continue;
    }
    tally.Add(RunName(run), FitOf(golden, run));
  }
}

TEST(MirroredTrainingGolden, LoopsByHandTrainAsTensorFlowsDo) {
  const Json golden = LoadGolden("strategies/mirrored_training.json");
  Tally tally("strategies/mirrored_training custom_loop");
  for (const Json& run : golden["custom_loop"]) {
    if (IsNormalized(run) && HasEmptyReplica(run)) {
      tally.LeaveOut();
      continue;
    }
    const auto strategy = MirroredStrategy({.replicas = run["replicas"].get<int>()});
    if (!strategy.ok()) {
      tally.Add(RunName(run), strategy.status().ToString());
      continue;
    }
    const Json& network = golden["models"][run["model"].get<std::string>()];
    HandLoop loop(network, run, *strategy);
    tally.Add(RunName(run), loop.Run());
  }
}

}  // namespace
}  // namespace millrace::testing
