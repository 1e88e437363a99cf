// SPDX-License-Identifier: Apache-2.0
// Two workers, each with a graph and a session of its own, against what TensorFlow recorded of two
// processes under MultiWorkerMirroredStrategy.
#include <gtest/gtest.h>

#include <thread>

#include "base/strings.h"
#include "tests/strategies/golden_run.h"

namespace millrace::testing {
namespace {

constexpr int kWorkers = 2;

StatusOr<std::shared_ptr<Strategy>> WorkerOf(const LocalCluster& cluster, int task) {
  return MultiWorkerMirroredStrategy(
      {.task = {.cluster = cluster.spec(), .job_name = "worker", .task_index = task},
       .target = cluster.target("worker", task)});
}

TEST(MultiWorkerGolden, LoopsByHandTrainAsTensorFlowsDo) {
  const Json golden = LoadGolden("strategies/multi_worker.json");
  const Json models = LoadGolden("strategies/mirrored_training.json")["models"];
  Tally tally("strategies/multi_worker custom_loop");
  const std::size_t runs = golden["workers"][0]["custom_loop"].size();
  for (std::size_t r = 0; r < runs; ++r) {
    const auto cluster = LocalCluster::Start({.workers = kWorkers});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    std::vector<std::string> why(kWorkers);
    std::vector<std::thread> threads;
    for (int task = 0; task < kWorkers; ++task) {
      threads.emplace_back([&, task] {
        const auto i = static_cast<std::size_t>(task);
        const Json& run = golden["workers"][i]["custom_loop"][r];
        const auto strategy = WorkerOf(**cluster, task);
        if (!strategy.ok()) {
          why[i] = strategy.status().ToString();
          return;
        }
        HandLoop loop(models[run["model"].get<std::string>()], run, *strategy);
        why[i] = loop.Run();
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string name = RunName(golden["workers"][0]["custom_loop"][r]);
    for (int task = 0; task < kWorkers; ++task) {
      tally.Add(StrCat(name, " worker ", task), why[static_cast<std::size_t>(task)]);
    }
  }
}

}  // namespace
}  // namespace millrace::testing
