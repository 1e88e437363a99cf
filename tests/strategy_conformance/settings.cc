// SPDX-License-Identifier: Apache-2.0
#include "tests/strategy_conformance/settings.h"

#include <thread>

#include "base/status_macros.h"
#include "millrace/partitioners.h"

namespace millrace::testing {
namespace {

// The strategy of each process, and the servers behind them.
struct Processes {
  std::unique_ptr<LocalCluster> cluster;
  std::vector<std::shared_ptr<Strategy>> strategies;
};

// Four replicas are two workers with two devices each.
StatusOr<Processes> Workers(int replicas) {
  const int workers = replicas == 1 ? 1 : 2;
  Processes made;
  MR_ASSIGN_OR_RETURN(
      made.cluster,
      LocalCluster::Start({.workers = workers, .server = {.num_cpu_devices = replicas / workers}}));
  // Each waits for the others.
  std::vector<StatusOr<std::shared_ptr<Strategy>>> strategies(static_cast<std::size_t>(workers),
                                                              std::shared_ptr<Strategy>());
  std::vector<std::thread> threads;
  for (int task = 0; task < workers; ++task) {
    threads.emplace_back([&, task] {
      strategies[static_cast<std::size_t>(task)] = MakeStrategy(
          "multi_worker_mirrored",
          {.replicas = replicas / workers,
           .task = {.cluster = made.cluster->spec(), .job_name = "worker", .task_index = task},
           .target = made.cluster->target("worker", task)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& strategy : strategies) {
    MR_RETURN_IF_ERROR(strategy.status());
    made.strategies.push_back(*std::move(strategy));
  }
  return made;
}

StatusOr<Processes> Make(const Setting& setting) {
  if (setting.strategy == "multi_worker_mirrored") return Workers(setting.replicas);
  Processes made;
  StrategyOptions options{.replicas = setting.replicas};
  if (setting.strategy == "parameter_server") {
    MR_ASSIGN_OR_RETURN(made.cluster, LocalCluster::Start({.workers = setting.replicas, .ps = 2}));
    options.task.cluster = made.cluster->spec();
    options.target = made.cluster->target("worker", 0);
    // With one replica tables are in one piece, else in two.
    if (setting.replicas > 1) options.variable_partitioner = FixedShards(2);
  }
  MR_ASSIGN_OR_RETURN(auto strategy, MakeStrategy(setting.strategy, options));
  made.strategies.push_back(std::move(strategy));
  return made;
}

}  // namespace

std::vector<Setting> AllSettings() {
  std::vector<Setting> all = {{"default", 1}, {"one_device", 1}};
  for (const char* name :
       {"mirrored", "central_storage", "multi_worker_mirrored", "parameter_server"}) {
    for (const int replicas : {1, 2, 4}) all.push_back({name, replicas});
  }
  return all;
}

std::vector<Results> RunUnder(const Setting& setting, const Program& program) {
  StatusOr<Processes> processes = Make(setting);
  if (!processes.ok()) return {processes.status()};
  std::vector<Results> results(processes->strategies.size(), std::vector<Tensor>());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = program(processes->strategies[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace millrace::testing
