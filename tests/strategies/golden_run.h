// SPDX-License-Identifier: Apache-2.0
// The runs of tests/goldens/training/strategies: their networks, and a training loop written by
// hand with a strategy.
#ifndef TESTS_STRATEGIES_GOLDEN_RUN_H_
#define TESTS_STRATEGIES_GOLDEN_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "millrace/millrace.h"
#include "tests/fit/network_of.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {

inline constexpr GoldenTolerance kGoldenValues{1e-4, 1e-5};

// "mlp SGD 2 replicas".
std::string RunName(const Json& run);
std::shared_ptr<Layer> GoldenNetwork(const Json& network);
// Builds and compiles the model, with the weights of the file. Empty if that went well.
std::string PrepareModel(Model* model, const Json& network, CompileOptions options);
// With the tolerance of the run's optimizer; empty if all agree.
std::string WeightDifference(const StatusOr<std::vector<Tensor>>& got, const Json& want,
                             const Json& run);

// A loop as a user would write it: losses of replicas divided by the global batch, gradients summed
// over all replicas, one update. Two passes over the data in batches of "global_batch".
class HandLoop {
 public:
  HandLoop(const Json& network, const Json& run, std::shared_ptr<Strategy> strategy);

  // Empty if steps and final weights agree with the file.
  std::string Run();

 private:
  std::string Build();
  std::vector<Output> Replica(ReplicaContext& context, const PerReplica& x, const PerReplica& y);
  std::string Step(int64_t first, const Json& want);
  std::string CompareReplicas(const std::vector<Tensor>& got, const Json& want) const;

  const Json& network_;
  const Json& run_;
  const std::shared_ptr<Strategy> strategy_;
  const std::shared_ptr<Layer> layers_;
  const int64_t global_batch_;
  const Tensor x_, y_;
  Graph graph_;
  std::optional<Session> session_;
  CompileOptions compiled_;
  std::vector<Output> feeds_, losses_, rows_, gradients_;
  Output loss_;
  Operation step_;
};

}  // namespace millrace::testing

#endif  // TESTS_STRATEGIES_GOLDEN_RUN_H_
