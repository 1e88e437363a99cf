// SPDX-License-Identifier: Apache-2.0
// The same weights bit for bit, however many replicas, workers and threads there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/strings.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Weights = StatusOr<std::vector<Tensor>>;

constexpr int64_t kRows = 29, kBatch = 16, kFeatures = 6, kClasses = 3;

Tensor Samples() {
  Tensor x(kFloat, Shape({kRows, kFeatures}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 7919 + 13) % 101) / 37.0f - 1.3f;
  }
  return x;
}

Tensor Labels() {
  Tensor y(kInt64, Shape({kRows}));
  for (int64_t i = 0; i < kRows; ++i) y.data<int64_t>()[i] = (i * 31 + i / 3) % kClasses;
  return y;
}

struct Setting {
  bool is_normalized = true;
  bool is_dataset = false;
  int threads = 0;
};

// The last batch leaves one piece with fewer rows.
Weights Train(const std::shared_ptr<Strategy>& strategy, const Setting& setting) {
  layers::LayerList list;
  list.push_back(layers::Dense(9, {.activation = "tanh"}));
  if (setting.is_normalized) list.push_back(layers::BatchNormalization({.synchronized = true}));
  list.push_back(layers::Dropout(0.3));
  list.push_back(layers::Dense(kClasses));
  ModelOptions options{.seed = 11, .strategy = strategy};
  options.session.inter_op_threads = setting.threads;
  options.session.intra_op_threads = setting.threads;
  Model model(layers::Sequential(std::move(list)), options);
  if (Status s =
          model.Compile({.optimizer = "adam",
                         .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
      !s.ok()) {
    return s;
  }
  const FitOptions fit{
      .batch_size = kBatch, .epochs = 3, .shuffle = false, .verbose = Verbose::kSilent};
  const auto history =
      setting.is_dataset ? model.Fit(Dataset::FromTensorSlices({Samples(), Labels()}).Batch(kBatch),
                                     {.epochs = 3, .verbose = Verbose::kSilent})
                         : model.Fit(Samples(), Labels(), fit);
  if (!history.ok()) return history.status();
  return model.GetWeights();
}

Weights TrainMirrored(int replicas, const Setting& setting, int pieces = 4) {
  const auto strategy = MakeStrategy(
      "mirrored", {.replicas = replicas, .deterministic = true, .micro_batches = pieces});
  return strategy.ok() ? Train(*strategy, setting) : Weights(strategy.status());
}

// A worker for each number of devices.
std::vector<Weights> TrainWorkers(const std::vector<int>& devices, const Setting& setting,
                                  int pieces = 4) {
  const int most = *std::max_element(devices.begin(), devices.end());
  const int workers = static_cast<int>(devices.size());
  const auto cluster =
      LocalCluster::Start({.workers = workers, .server = {.num_cpu_devices = most}}).value();
  std::vector<Weights> all(devices.size(), std::vector<Tensor>());
  std::vector<std::thread> threads;
  for (int task = 0; task < workers; ++task) {
    threads.emplace_back([&, task] {
      const auto strategy = MakeStrategy(
          "multi_worker_mirrored",
          {.replicas = devices[static_cast<std::size_t>(task)],
           .task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = task},
           .target = cluster->target("worker", task),
           .communication = {.timeout_seconds = 60},
           .deterministic = true,
           .micro_batches = pieces});
      all[static_cast<std::size_t>(task)] =
          strategy.ok() ? Train(*strategy, setting) : Weights(strategy.status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

void ExpectEqual(const Weights& got, const Weights& want) {
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got->size(), want->size());
  for (std::size_t i = 0; i < got->size(); ++i) {
    EXPECT_TRUE(TensorsEqual(got->at(i), want->at(i))) << "weight " << i;
  }
}

TEST(Deterministic, TrainsTheSameOnAnyNumberOfReplicas) {
  for (const bool is_dataset : {false, true}) {
    const Weights alone = TrainMirrored(1, {.is_dataset = is_dataset});
    for (const int replicas : {2, 4}) {
      SCOPED_TRACE(StrCat(replicas, " replicas"));
      ExpectEqual(TrainMirrored(replicas, {.is_dataset = is_dataset}), alone);
    }
  }
}

TEST(Deterministic, TrainsTheSameWithAnyNumberOfThreads) {
  const Weights alone = TrainMirrored(1, {.threads = 1});
  for (const int threads : {2, 5}) {
    SCOPED_TRACE(StrCat(threads, " threads"));
    ExpectEqual(TrainMirrored(2, {.threads = threads}), alone);
  }
}

TEST(Deterministic, TrainsTheSameOnAnyNumberOfWorkers) {
  for (const bool is_dataset : {false, true}) {
    const Setting setting{.is_normalized = false, .is_dataset = is_dataset};
    const Weights alone = TrainMirrored(1, setting);
    for (const std::vector<int>& devices :
         std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1, 1}, {3, 1}, {1, 2, 1}}) {
      SCOPED_TRACE(StrCat("devices of workers: ", StrJoin(devices, ", ")));
      for (const Weights& weights : TrainWorkers(devices, setting)) ExpectEqual(weights, alone);
    }
  }
}

TEST(Deterministic, TrainsTheSameOnWorkersOfSeveralPiecesForEachOfUnequalDevices) {
  const Setting setting{.is_normalized = false};
  const Weights alone = TrainMirrored(1, setting, /*pieces=*/6);
  for (const Weights& weights : TrainWorkers({2, 1}, setting, 6)) ExpectEqual(weights, alone);
}

TEST(Deterministic, NeedsPiecesThatCanBeDealtOut) {
  const auto uneven =
      MakeStrategy("mirrored", {.replicas = 3, .deterministic = true, .micro_batches = 4});
  EXPECT_THAT(uneven.status().ToString(),
              HasSubstr("micro_batches is 4, of which 3 replicas cannot have as many each"));
  for (const Weights& weights : TrainWorkers({2, 1}, {})) {
    EXPECT_THAT(weights.status().ToString(),
                HasSubstr("micro_batches is 4, of which 3 replicas cannot have as many each"));
  }
  const auto other = MakeStrategy("central_storage", {.deterministic = true});
  EXPECT_THAT(other.status().ToString(), HasSubstr("is for mirrored and multi_worker_mirrored"));
}

}  // namespace
}  // namespace millrace
