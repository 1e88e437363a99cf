// SPDX-License-Identifier: Apache-2.0
// A model with its variables on parameter servers, trained by several workers with Fit, all in one
// process: strings are looked up in a vocabulary on the way.
//
//   ps_fit --workers=3 --ps=2
//
// The model learns which words are said of a friend. Where the servers are processes or machines of
// their own, the strategy takes their cluster and the address of one of them instead.
#include <cstdio>
#include <string>
#include <vector>

#include "examples/training_flags.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/local_cluster.h"
#include "millrace/model.h"
#include "millrace/preprocessing_layers.h"
#include "millrace/status_macros.h"
#include "millrace/strategy.h"

namespace mr = millrace;
namespace layers = mr::layers;

struct Flags : mr::examples::TrainingFlags {
  int64_t workers = 3, ps = 2, samples = 1280;
};

const std::vector<std::string> kFriendly = {"kind", "loyal", "warm", "honest", "funny"};
const std::vector<std::string> kUnfriendly = {"rude", "cold", "sly", "mean", "vain"};

// A word each, and whether it is a friendly one.
void MakeSamples(int64_t count, mr::Tensor* words, mr::Tensor* friendly) {
  *words = mr::Tensor(mr::kString, mr::Shape({count, 1}));
  *friendly = mr::Tensor(mr::kFloat, mr::Shape({count, 1}));
  for (int64_t i = 0; i < count; ++i) {
    const bool is_friendly = (i * 7 + i / 5) % 2 == 0;
    const auto& of = is_friendly ? kFriendly : kUnfriendly;
    words->data<std::string>()[i] = of[static_cast<size_t>(i * 13) % of.size()];
    friendly->data<float>()[i] = is_friendly ? 1.0f : 0.0f;
  }
}

mr::Status Train(const Flags& flags) {
  const int workers = static_cast<int>(flags.workers);
  // A thread more than there are workers, so that no step waits for another's.
  MR_ASSIGN_OR_RETURN(const auto cluster,
                      mr::LocalCluster::Start({.workers = workers,
                                               .ps = static_cast<int>(flags.ps),
                                               .server = {.inter_op_threads = workers + 1}}));
  mr::StrategyOptions options;
  options.task.cluster = cluster->spec();
  options.target = cluster->target("worker", 0);
  MR_ASSIGN_OR_RETURN(const auto strategy, mr::MakeStrategy("parameter_server", options));

  std::vector<std::string> vocabulary = kFriendly;
  vocabulary.insert(vocabulary.end(), kUnfriendly.begin(), kUnfriendly.end());
  const auto size = static_cast<int64_t>(vocabulary.size()) + 1;  // and one for other words
  mr::Model model(
      layers::Sequential({layers::StringLookup(vocabulary), layers::Embedding(size, 4),
                          layers::Flatten(), layers::Dense(1, {.activation = "sigmoid"})}),
      {.seed = 1, .strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile({.optimizer = mr::optimizers::Adam({.learning_rate = 0.01}),
                                    .loss = "binary_crossentropy",
                                    .metrics = {"accuracy"}}));
  mr::Tensor words, friendly;
  MakeSamples(flags.samples, &words, &friendly);
  MR_ASSIGN_OR_RETURN(
      const mr::History history,
      model.Fit(words, friendly, {.batch_size = flags.batch_size, .epochs = flags.epochs}));
  const double accuracy = history.values("accuracy").back();
  std::printf("%d workers, variables at:\n", strategy->num_replicas_in_sync());
  for (const mr::Variable& weight : model.weights()) {
    std::printf("  %s %s\n", weight.name().c_str(), weight.handle.op().device().c_str());
  }
  std::printf("accuracy %.4f\n", accuracy);
  return mr::examples::CheckAccuracy(accuracy, flags);
}

int main(int argc, char** argv) {
  Flags flags;
  flags.epochs = 5;
  flags.batch_size = 64;
  CLI::App app("Trains with Fit, with variables on parameter servers", "ps_fit");
  app.add_option("--workers", flags.workers, "Workers, which compute")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--ps", flags.ps, "Parameter servers, which keep the variables")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--samples", flags.samples, "Words in the data")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  mr::examples::AddLengthFlags(app, flags, "Words of a step, for all workers together");
  return mr::examples::RunProgram(app, argc, argv, [&] { return Train(flags); });
}
