// SPDX-License-Identifier: Apache-2.0
// Handwritten digits with layers and fit, as a Keras program would train them: synthetic digits, or
// with --data_dir the idx files of MNIST. With --min_accuracy it fails below that; --strategy and
// --replicas say where it trains (docs/strategies.md).
#include <cstdio>

#include "examples/training_flags.h"
#include "millrace/digits.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/strategy.h"

namespace mr = millrace;

mr::Status Train(const mr::Digits& digits, const mr::examples::TrainingFlags& flags) {
  namespace layers = mr::layers;
  auto strategy = mr::MakeStrategy(flags.strategy, {.replicas = static_cast<int>(flags.replicas),
                                                    .server = {.insecure = flags.insecure}});
  if (!strategy.ok()) return strategy.status();
  mr::Model model(
      layers::Sequential({layers::Dense(512, {.activation = "relu"}), layers::Dropout(0.2),
                          layers::Dense(10, {.activation = "softmax"})}),
      {.seed = 1, .strategy = *strategy});
  mr::Status status = model.Compile(
      {.optimizer = "adam", .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
  if (!status.ok()) return status;
  mr::EarlyStopping stop({.patience = 2, .restore_best_weights = true});
  auto history = model.Fit(
      digits.train.images, digits.train.labels,
      {.batch_size = flags.batch_size,
       .epochs = flags.epochs,
       .validation = mr::ValidationData{digits.validation.images, digits.validation.labels},
       .callbacks = {&stop}});
  if (!history.ok()) return history.status();
  std::printf("%s", model.Summary().c_str());
  auto test = model.Evaluate(digits.test.images, digits.test.labels);
  if (!test.ok()) return test.status();
  const double accuracy = (*test)["accuracy"];
  std::printf("test accuracy: %.4f\n", accuracy);
  return mr::examples::CheckAccuracy(accuracy, flags);
}

int main(int argc, char** argv) {
  mr::examples::TrainingFlags flags;
  CLI::App app("Trains a net on handwritten digits with layers and fit", "mnist_keras");
  mr::examples::AddDigitsFlag(app, flags);
  mr::examples::AddTrainingFlags(app, flags);
  return mr::examples::RunProgram(app, argc, argv, [&] {
    const auto digits = mr::examples::GetDigits(flags);
    return digits.ok() ? Train(*digits, flags) : digits.status();
  });
}
