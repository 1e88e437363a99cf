// SPDX-License-Identifier: Apache-2.0
// A small convolutional net on handwritten digits, trained by one process or by several: the
// strategy is all that differs. With several workers, `millrace run` starts the program once for
// each and says in TF_CONFIG which one it is:
//
//   millrace run --workers 2 -- multi_worker_mnist --strategy=multi_worker_mirrored
//
// Synthetic digits, or with --data_dir the idx files of MNIST.
#include <cstdio>

#include "examples/training_flags.h"
#include "millrace/digits.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/strategy.h"

namespace mr = millrace;

struct Flags : mr::examples::TrainingFlags {
  int64_t steps = 70;
};

mr::Status Train(const mr::Digits& digits, const Flags& flags) {
  namespace layers = mr::layers;
  auto strategy = mr::MakeStrategy(flags.strategy, {.replicas = static_cast<int>(flags.replicas),
                                                    .server = {.insecure = flags.insecure}});
  if (!strategy.ok()) return strategy.status();
  mr::Model model(
      layers::Sequential({layers::Reshape({28, 28, 1}),
                          layers::Conv2D(32, {3, 3}, {.activation = "relu"}), layers::Flatten(),
                          layers::Dense(128, {.activation = "relu"}), layers::Dense(10)}),
      {.seed = 1, .strategy = *strategy});
  mr::Status status =
      model.Compile({.optimizer = mr::optimizers::Sgd({.learning_rate = 0.001}),
                     .loss = mr::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                     .metrics = {"accuracy"}});
  if (!status.ok()) return status;
  // The batch of all replicas, so that each has its own, however many there are.
  const int64_t global_batch = flags.batch_size * (*strategy)->num_replicas_in_sync();
  const bool is_chief = (*strategy)->is_chief();
  auto history = model.Fit(digits.train.images, digits.train.labels,
                           {.batch_size = global_batch,
                            .epochs = flags.epochs,
                            .steps_per_epoch = flags.steps,
                            .verbose = is_chief ? mr::Verbose::kAuto : mr::Verbose::kSilent});
  if (!history.ok()) return history.status();
  const double accuracy = history->values("accuracy").back();
  if (is_chief) std::printf("%s: accuracy %.4f\n", (*strategy)->Description().c_str(), accuracy);
  return mr::examples::CheckAccuracy(accuracy, flags);
}

int main(int argc, char** argv) {
  Flags flags;
  flags.epochs = 3;
  flags.batch_size = 64;
  CLI::App app("Trains a convolutional net on handwritten digits, by one process or by several",
               "multi_worker_mnist");
  mr::examples::AddDigitsFlag(app, flags);
  mr::examples::AddTrainingFlags(app, flags, "Images of a step for each replica");
  app.add_option("--steps", flags.steps, "Steps of an epoch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return mr::examples::RunProgram(app, argc, argv, [&] {
    const auto digits = mr::examples::GetDigits(flags);
    return digits.ok() ? Train(*digits, flags) : digits.status();
  });
}
