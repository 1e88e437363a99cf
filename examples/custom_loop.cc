// SPDX-License-Identifier: Apache-2.0
// The net of mnist_keras with a loop of one's own: layers, loss, optimizer and metric are put into
// a graph by hand, and every step is a call of a prepared run.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "millrace/digits.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/losses.h"
#include "millrace/metrics.h"
#include "millrace/session.h"

namespace mr = millrace;
namespace layers = mr::layers;

mr::StatusOr<float> Train(const mr::Digits& digits) {
  mr::Graph graph;
  graph.SetSeed(1);
  const mr::Scope root = graph.root();
  const mr::Output images = mr::Placeholder(root, mr::kFloat, {-1, mr::kDigitPixels});
  const mr::Output labels = mr::Placeholder(root, mr::kInt64, {-1});

  const auto net = layers::Sequential(
      {layers::Dense(256, {.activation = "relu"}), layers::Dropout(0.2), layers::Dense(10)});
  mr::Pass training(root.Named("train"), root, true), testing(root.Named("test"), root, false);
  const mr::Output logits = (*net)(training, images);
  const mr::Output loss =
      mr::losses::SparseCategoricalCrossentropy({.from_logits = true})(root, labels, logits);
  const auto optimizer = mr::optimizers::Adam();
  auto gradients = optimizer->ComputeGradients(root, loss, net->trainable_weights());
  if (!gradients.ok()) return gradients.status();
  auto train = optimizer->ApplyGradients(root, *gradients, nullptr);
  if (!train.ok()) return train.status();
  mr::metrics::Metric accuracy = mr::metrics::SparseCategoricalAccuracy();
  const mr::Operation measure =
      accuracy.Update(root, {labels, (*net)(testing, images), mr::Output()});
  const mr::Output measured = accuracy.Result(root);
  const mr::Operation init = mr::InitializeVariables(root);

  auto session = mr::Session::Create(graph);
  if (!session.ok()) return session.status();
  if (mr::Status status = session->RunTargets({init}); !status.ok()) return status;
  const mr::Output feeds[] = {images, labels}, fetches[] = {loss};
  const mr::Operation targets[] = {*train};
  auto step = session->MakeCallable(feeds, fetches, targets);
  if (!step.ok()) return step.status();
  mr::BatchSource batches(digits.train, 64, /*seed=*/1);
  const int64_t steps_per_epoch = digits.train.size() / 64;
  std::vector<mr::Tensor> result;
  for (int64_t i = 0; i < 3 * steps_per_epoch; ++i) {
    const mr::BatchSource::Batch batch = batches.Next();
    const mr::Tensor values[] = {batch.images, batch.labels};
    if (mr::Status status = step->Run(values, &result); !status.ok()) return status;
    if ((i + 1) % steps_per_epoch == 0) {
      std::printf("step %lld - loss: %.4f\n", static_cast<long long>(i + 1),
                  result[0].scalar<float>());
    }
  }
  auto done =
      session->Run({{images, digits.test.images}, {labels, digits.test.labels}}, {}, {measure});
  if (!done.ok()) return done.status();
  auto value = session->Eval(measured);
  if (!value.ok()) return value.status();
  return value->scalar<float>();
}

int main() {
  const mr::StatusOr<float> accuracy =
      Train(mr::SyntheticDigits({.train = 6000, .validation = 100, .test = 1000}));
  if (!accuracy.ok()) {
    std::printf("%s\n", accuracy.status().ToString().c_str());
    return 1;
  }
  std::printf("test accuracy: %.4f\n", *accuracy);
  return *accuracy > 0.9f ? 0 : 1;
}
