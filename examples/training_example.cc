// SPDX-License-Identifier: Apache-2.0
// Trains a small classifier: the example of docs/training.md, compiled and run as a test.
#include <cstdio>
#include <vector>

#include "millrace/millrace.h"

namespace mr = millrace;

mr::StatusOr<float> TrainWords() {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output words = mr::Placeholder(root.WithOpName("words"), mr::kInt32, {-1});
  const mr::Output classes = mr::Placeholder(root.WithOpName("classes"), mr::kInt64, {-1});

  // Two classes of words that a table of six rows tells apart.
  const mr::Variable table =
      mr::MakeVariable(root, "table", {6, 4}, mr::initializers::RandomUniform({.seed = 7}));
  const mr::Variable w = mr::MakeVariable(root, "w", {4, 2}, mr::initializers::GlorotUniform(8));
  const mr::Variable b = mr::MakeVariable(root, "b", {2}, mr::initializers::Zeros());
  const mr::Output rows = mr::ops::GatherV2(root, table.read, words, 0);
  const mr::Output logits = mr::ops::MatMul(root, rows, w.read) + b;

  const auto loss_function = mr::losses::SparseCategoricalCrossentropy({.from_logits = true});
  const mr::Output loss = loss_function(root, classes, logits);
  const mr::Variable step = mr::GlobalStep(root);
  auto optimizer = mr::optimizers::Adam({.learning_rate = mr::schedules::CosineDecay(
                                             {.initial_learning_rate = 0.1, .decay_steps = 200}),
                                         .common = {.global_clip_norm = 1.0}});
  auto train = optimizer->Minimize(root, loss, &step);
  if (!train.ok()) return train.status();

  mr::metrics::Metric accuracy = mr::metrics::SparseCategoricalAccuracy();
  const mr::Operation measure = accuracy.Update(root, {classes, logits, mr::Output()});
  const mr::Output measured = accuracy.Result(root);
  const mr::Operation init = mr::InitializeVariables(root);

  auto session = mr::Session::Create(graph);
  if (!session.ok()) return session.status();
  if (mr::Status status = session->RunTargets({init}); !status.ok()) return status;
  const std::vector<mr::Feed> batch = {
      {words, mr::Tensor::FromValues<int32_t>({0, 1, 2, 3, 4, 5})},
      {classes, mr::Tensor::FromValues<int64_t>({0, 1, 1, 0, 0, 1})}};
  for (int i = 0; i < 100; ++i) {
    const mr::Operation targets[] = {*train};
    if (auto out = session->Run(batch, {}, targets); !out.ok()) return out.status();
  }
  const mr::Operation targets[] = {measure};
  if (auto out = session->Run(batch, {}, targets); !out.ok()) return out.status();
  auto result = session->Eval(measured);
  if (!result.ok()) return result.status();
  return result->scalar<float>();
}

int main() {
  const mr::StatusOr<float> accuracy = TrainWords();
  if (!accuracy.ok()) {
    std::printf("%s\n", accuracy.status().ToString().c_str());
    return 1;
  }
  std::printf("accuracy: %.3f\n", *accuracy);
  return *accuracy == 1.0f ? 0 : 1;
}
