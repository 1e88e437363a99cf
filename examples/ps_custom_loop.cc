// SPDX-License-Identifier: Apache-2.0
// A loop by hand on parameter servers: a coordinator schedules steps, and whichever of the workers
// is free makes the next one. All in one process:
//
//   ps_custom_loop --workers=3 --ps=2
//
// The data set looks strings up in vocabularies, for each worker by itself; the model learns
// whether the avenger is among the heroes of a row. Its table of embeddings is cut over the
// parameter servers. Where servers are processes or machines of their own, the strategy takes their
// cluster and the address of one of them instead.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "examples/training_flags.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/local_cluster.h"
#include "millrace/losses.h"
#include "millrace/metrics.h"
#include "millrace/partitioners.h"
#include "millrace/preprocessing_layers.h"
#include "millrace/status_macros.h"
#include "millrace/strategy.h"

namespace mr = millrace;
namespace layers = mr::layers;

struct Flags : mr::examples::TrainingFlags {
  int64_t workers = 3, ps = 2, steps_per_epoch = 100;
};

const std::vector<std::string> kHeroes = {"avenger",   "ironman",  "batman",      "hulk",
                                          "spiderman", "kingkong", "wonder_woman"};
const std::vector<std::string> kAnswers = {"yes", "no"};

// Three heroes each, and whether the first of them all is there.
mr::Dataset Examples() {
  constexpr int64_t kCount = 200, kEach = 3;
  const auto heroes = static_cast<int64_t>(kHeroes.size());
  mr::Tensor features(mr::kString, mr::Shape({kCount, kEach}));
  mr::Tensor labels(mr::kString, mr::Shape({kCount, 1}));
  for (int64_t i = 0; i < kCount; ++i) {
    // Three that differ: steps of one, two or three around the circle of seven.
    const int64_t first = i % heroes, step = 1 + (i / heroes) % 3;
    bool is_there = false;
    for (int64_t k = 0; k < kEach; ++k) {
      const int64_t hero = (first + k * step) % heroes;
      is_there = is_there || hero == 0;
      features.data<std::string>()[i * kEach + k] = kHeroes[static_cast<size_t>(hero)];
    }
    labels.data<std::string>()[i] = kAnswers[is_there ? 0 : 1];
  }
  return mr::Dataset::FromTensorSlices({features, labels});
}

// Numbers for both.
std::vector<mr::Output> LookUp(const mr::Scope& scope, std::span<const mr::Output> element) {
  mr::Pass pass(scope, /*training=*/false);
  return {(*layers::StringLookup(kHeroes))(pass, element[0]),
          (*layers::StringLookup(kAnswers, {.num_oov_indices = 0}))(pass, element[1])};
}

// What the steps train.
struct Trained {
  std::shared_ptr<mr::Layer> net = layers::Sequential(
      {layers::Embedding(static_cast<int64_t>(kHeroes.size()) + 1, 16384),
       layers::GlobalAveragePooling1D(), layers::Dense(1, {.activation = "sigmoid"})});
  std::unique_ptr<mr::Optimizer> optimizer = mr::optimizers::RmsProp({.learning_rate = 0.001});
  mr::metrics::Metric accuracy = mr::metrics::BinaryAccuracy();
};

// A step of the one replica that a worker has.
mr::FunctionParts MakeStep(mr::Strategy& strategy, mr::Graph& graph, const mr::Scope& worker,
                           std::span<const mr::Output> batch, Trained* trained) {
  mr::FunctionParts parts;
  const mr::Scope variables = strategy.VariableScope(graph.root());
  const auto losses = strategy.Run(worker, [&](mr::ReplicaContext& context) {
    const mr::Scope& scope = context.scope();
    mr::Pass pass(scope, variables, /*training=*/true);
    pass.SetPartitioner(strategy.variable_partitioner());
    const mr::Output labels = mr::ops::Cast(scope, batch[1], mr::kFloat);
    const mr::Output predicted = (*trained->net)(pass, batch[0]);
    const mr::Output loss = mr::losses::BinaryCrossentropy()(scope, labels, predicted);
    parts.targets.push_back(trained->accuracy.Update(variables, {labels, predicted, {}}));
    const auto gradients =
        trained->optimizer->ComputeGradients(scope, loss, trained->net->trainable_weights());
    if (!gradients.ok()) return std::vector<mr::Output>();
    const auto applied = trained->optimizer->ApplyGradients(scope, *gradients, nullptr);
    if (applied.ok()) parts.targets.push_back(*applied);
    return std::vector{loss};
  });
  if (losses.ok() && !losses->empty()) parts.outputs = losses->at(0).values;
  return parts;
}

mr::Status Train(const Flags& flags) {
  const int workers = static_cast<int>(flags.workers), ps = static_cast<int>(flags.ps);
  MR_ASSIGN_OR_RETURN(const auto cluster, mr::LocalCluster::Start({.workers = workers, .ps = ps}));
  mr::StrategyOptions options;
  options.task.cluster = cluster->spec();
  options.target = cluster->target("worker", 0);
  options.variable_partitioner = mr::MinSize({.max_shards = ps});
  MR_ASSIGN_OR_RETURN(const auto strategy, mr::MakeStrategy("parameter_server", options));

  mr::Graph graph;
  graph.SetSeed(1);
  MR_ASSIGN_OR_RETURN(const auto coordinator, mr::ClusterCoordinator::Create(graph, strategy));
  MR_ASSIGN_OR_RETURN(
      const auto batch,
      coordinator->CreatePerWorkerDataset("data", [&](const mr::InputContext& context) {
        return Examples()
            .Map(LookUp)
            .Shuffle(200, {.seed = 1})
            .Repeat()
            .Batch(context.PerReplicaBatchSize(flags.batch_size).value_or(1));
      }));
  Trained trained;
  MR_ASSIGN_OR_RETURN(const auto step,
                      coordinator->AddFunction("step", [&](const mr::Scope& worker) {
                        return MakeStep(*strategy, graph, worker, batch, &trained);
                      }));
  const mr::Scope root = strategy->RootScope(graph.root());
  const mr::Operation init = mr::InitializeVariables(root), reset = trained.accuracy.Reset(root);
  const mr::Output accuracy = trained.accuracy.Result(root);
  MR_RETURN_IF_ERROR(graph.status());

  MR_RETURN_IF_ERROR(coordinator->Run({}, {}, std::span(&init, 1)).status());
  std::printf("%d workers, variables at:\n", coordinator->num_workers());
  for (const mr::Variable& weight : trained.net->weights()) {
    std::printf("  %s %s\n", weight.name().c_str(), weight.handle.op().device().c_str());
  }
  float last = 0;
  for (int64_t epoch = 0; epoch < flags.epochs; ++epoch) {
    MR_RETURN_IF_ERROR(coordinator->Run({}, {}, std::span(&reset, 1)).status());
    mr::RemoteValue loss;
    for (int64_t i = 0; i < flags.steps_per_epoch; ++i) {
      MR_ASSIGN_OR_RETURN(loss, coordinator->Schedule(step));
    }
    MR_RETURN_IF_ERROR(coordinator->Join());
    MR_ASSIGN_OR_RETURN(const auto got, coordinator->Run({}, std::span(&accuracy, 1)));
    MR_ASSIGN_OR_RETURN(const auto lost, loss.Fetch());
    last = got[0].scalar<float>();
    std::printf("Finished epoch %lld, accuracy is %.4f, the last loss %.4f\n",
                static_cast<long long>(epoch), static_cast<double>(last),
                static_cast<double>(lost[0].scalar<float>()));
  }
  return mr::examples::CheckAccuracy(last, flags);
}

int main(int argc, char** argv) {
  Flags flags;
  flags.epochs = 4;
  flags.batch_size = 32;
  CLI::App app("Trains in a loop by hand, with variables on parameter servers", "ps_custom_loop");
  app.add_option("--workers", flags.workers, "Workers, which make the steps")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--ps", flags.ps, "Parameter servers, which keep the variables")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--steps_per_epoch", flags.steps_per_epoch, "Steps that are scheduled for one")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  mr::examples::AddLengthFlags(app, flags, "Rows of a step");
  return mr::examples::RunProgram(app, argc, argv, [&] { return Train(flags); });
}
