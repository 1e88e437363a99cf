// SPDX-License-Identifier: Apache-2.0
// Models of several workers that compute in a smaller type than float32.
#include <gtest/gtest.h>

#include <thread>

#include "millrace/local_cluster.h"
#include "tests/fit/mixed_models.h"

namespace millrace::testing {
namespace {

TEST(MixedPrecision, WorkersTrainAsOneAndAgreeOnTheScale) {
  const auto cluster = LocalCluster::Start({.workers = 2}).value();
  for (const char* precision : kBoth) {
    std::vector<std::unique_ptr<Model>> models(2);
    std::vector<Status> statuses(2);
    std::vector<std::thread> threads;
    for (std::size_t worker = 0; worker < 2; ++worker) {
      // Each waits for the other from its strategy on.
      threads.emplace_back([&, worker] {
        const int task = static_cast<int>(worker);
        auto strategy = MakeStrategy(
            "multi_worker_mirrored",
            {.task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = task},
             .target = cluster->target("worker", task),
             .communication = {.timeout_seconds = 30}});
        statuses[worker] = strategy.status();
        if (!strategy.ok()) return;
        models[worker] = Plain(precision, *strategy);
        statuses[worker] = models[worker]->Fit(X(), Y(), TwoEpochs()).status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
    ExpectSame(*models[0]->GetWeights(), *models[1]->GetWeights());
    const auto one = Plain(precision, nullptr);
    ASSERT_TRUE(one->Fit(X(), Y(), TwoEpochs()).ok());
    ExpectNear(*one->GetWeights(), *models[0]->GetWeights(), ToleranceOf(precision));
    if (ScalerOf(*models[0]) == nullptr) continue;
    EXPECT_EQ(ScaleOf(*models[0]), ScaleOf(*models[1]));
  }
}

}  // namespace
}  // namespace millrace::testing
