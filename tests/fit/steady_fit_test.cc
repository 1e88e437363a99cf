// SPDX-License-Identifier: Apache-2.0
// Warm steps of Fit that read a data set take no memory of ours: counted over whole steps, from the
// end of one to the end of another, the making of batches included.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tests/fit/small_models.h"
#include "tests/sessions/malloc_count.h"

namespace millrace {
namespace {

using testing::MallocCount;

constexpr int64_t kRows = 256, kFeatures = 16, kClasses = 4, kBatch = 16;

// Counts between the ends of two steps. Reads no logs, so that none are made.
class CountsSteps : public Callback {
 public:
  CountsSteps(int64_t first, int64_t steps) : first_(first), last_(first + steps) {}
  bool reads_batch_logs() const override { return false; }
  Status OnTrainBatchEnd(int64_t, const Logs&) override {
    ++ended_;
    if (ended_ == first_) testing::BeginMallocCount();
    if (ended_ == last_) count_ = testing::EndMallocCount();
    return OkStatus();
  }
  const MallocCount& count() const { return count_; }
  int64_t ended() const { return ended_; }

 private:
  const int64_t first_, last_;
  int64_t ended_ = 0;
  MallocCount count_{.ours = -1};
};

Dataset Rows() {
  return Dataset::FromTensorSlices(
      {testing::Numbers(kRows, kFeatures), testing::Labels(kRows, kClasses)});
}

std::vector<Output> Halve(const Scope& scope, std::span<const Output> row) {
  return {Expr(scope, row[0]) * 0.5f, row[1]};
}

struct Case {
  const char* name;
  std::function<Dataset()> data;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class SteadyFitTest : public ::testing::TestWithParam<Case> {};

TEST_P(SteadyFitTest, WarmStepsTakeNoMemory) {
  constexpr int64_t kWarm = 40, kSteps = 8;
  Model model(
      layers::Sequential({layers::Dense(8, {.activation = "relu"}),
                          layers::Dense(kClasses, {.activation = "softmax"})}),
      {.seed = 3, .session = {.inter_op_threads = -1, .intra_op_threads = -1}});
  ASSERT_TRUE(
      model.Compile({.optimizer = "adam", .loss = "sparse_categorical_crossentropy"}).ok());
  CountsSteps count(kWarm, kSteps);
  const auto history = model.Fit(
      GetParam().data(), testing::Quietly({.steps_per_epoch = 100, .callbacks = {&count}}));
  ASSERT_TRUE(history.ok()) << history.status();
  ASSERT_GE(count.ended(), kWarm + kSteps);
  EXPECT_EQ(count.count().ours, 0) << "in " << kSteps << " steps; the first are printed above";
}

INSTANTIATE_TEST_SUITE_P(
    Pipelines, SteadyFitTest,
    ::testing::Values(
        Case{"Batch", [] { return Rows().Batch(kBatch).Repeat(); }},
        Case{"Shuffle", [] { return Rows().Repeat().Shuffle(64).Batch(kBatch); }},
        Case{"Map", [] { return Rows().Repeat().Map(Halve).Batch(kBatch); }},
        Case{"ShuffleMapBatch", [] { return Rows().Repeat().Shuffle(64).Map(Halve).Batch(kBatch); }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace millrace
