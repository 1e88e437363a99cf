// SPDX-License-Identifier: Apache-2.0
// Warm steps of Fit that read a data set take no memory: counted over whole steps, the making of
// batches included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/fit/small_models.h"
#include "tests/sessions/malloc_count.h"

namespace millrace {
namespace {

using testing::MallocCount;

constexpr int64_t kRows = 4096, kFeatures = 16, kClasses = 4, kBatch = 16;

constexpr int64_t kWarm = 40, kSteps = 8, kRounds = 24;

// Counts from the end of one step to the end of another, again and again until a round takes
// nothing. Reads no logs, so that none are made.
class CountsSteps : public Callback {
 public:
  bool reads_batch_logs() const override { return false; }
  Status OnTrainBatchEnd(int64_t batch, const Logs&) override {
    const int64_t after = batch + 1 - kWarm;
    if (after < 0 || after % kSteps != 0 || least_ == 0) return OkStatus();
    if (after > 0) {
      const MallocCount count = testing::EndMallocCount();
      least_ = least_ < 0 ? count.ours : std::min(least_, count.ours);
      ++rounds_;
    }
    if (least_ == 0 || rounds_ == kRounds) {
      model()->set_stop_training(true);
    } else {
      testing::BeginMallocCount();
    }
    return OkStatus();
  }
  int64_t least() const { return least_; }

 private:
  int64_t rounds_ = 0, least_ = -1;
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

// A thread more may come where one has not yet gone idle, and takes memory, some times in the life
// of a program. What takes memory in every step does so in every round.
TEST_P(SteadyFitTest, WarmStepsTakeNoMemory) {
  Model model(layers::Sequential({layers::Dense(8, {.activation = "relu"}),
                                  layers::Dense(kClasses, {.activation = "softmax"})}),
              {.seed = 3, .session = {.inter_op_threads = -1, .intra_op_threads = -1}});
  ASSERT_TRUE(model.Compile({.optimizer = "adam", .loss = "sparse_categorical_crossentropy"}).ok());
  CountsSteps count;
  // Within one pass over the data.
  static_assert(kWarm + kSteps * kRounds < kRows / kBatch);
  const auto history = model.Fit(GetParam().data(), testing::Quietly({.callbacks = {&count}}));
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(count.least(), 0) << "calls of malloc in " << kSteps
                              << " steps; where the first came from is printed above";
}

INSTANTIATE_TEST_SUITE_P(
    Pipelines, SteadyFitTest,
    ::testing::Values(
        Case{"Batch", [] { return Rows().Batch(kBatch); }},
        Case{"Shuffle", [] { return Rows().Shuffle(64).Batch(kBatch); }},
        Case{"Map", [] { return Rows().Map(Halve).Batch(kBatch); }},
        Case{"ParallelMap", [] { return Rows().Map(Halve, {.num_parallel = 2}).Batch(kBatch); }},
        Case{"ParallelMapPrefetch",
             [] {
               return Rows()
                   .Shuffle(64)
                   .Map(Halve, {.num_parallel = kAutotune})
                   .Batch(kBatch)
                   .Prefetch(2);
             }},
        Case{"All", [] { return Rows().Shuffle(64).Map(Halve).Batch(kBatch).Prefetch(2); }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace millrace
