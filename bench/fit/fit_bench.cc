// SPDX-License-Identifier: Apache-2.0
// Microseconds per step of a small net: Model::Fit, with and without logs of batches, beside a bare
// loop over a prepared call of the same step (forward, loss, two metrics' sums, Adam) fed with
// slices of the same samples.
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/session.h"

namespace mr = millrace;
namespace layers = mr::layers;

constexpr int64_t kSteps = 2000, kBatch = 32, kFeatures = 16, kClasses = 4, kRepeats = 5;

std::unique_ptr<mr::Layer> Net() {
  return layers::Sequential({layers::Dense(32, {.activation = "relu"}),
                             layers::Dense(kClasses, {.activation = "softmax"})});
}

mr::SessionOptions InOneThread() {
  mr::SessionOptions options;
  options.inter_op_threads = -1;
  options.intra_op_threads = 1;
  return options;
}

// The best of several, after one that is not counted.
mr::StatusOr<double> MicrosPerStep(const std::function<mr::Status()>& run) {
  double best = 1e30;
  for (int64_t i = 0; i <= kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (mr::Status status = run(); !status.ok()) return status;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i > 0) best = std::min(best, took.count() / kSteps);
  }
  return best;
}

mr::StatusOr<double> BareLoop(const mr::Tensor& x, const mr::Tensor& y) {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output images = mr::Placeholder(root, mr::kFloat, {-1, kFeatures});
  const mr::Output labels = mr::Placeholder(root, mr::kInt64, {-1});
  const auto net = Net();
  mr::Pass pass(root, true);
  const mr::Output predictions = (*net)(pass, images);
  const mr::Output loss = mr::losses::SparseCategoricalCrossentropy()(root, labels, predictions);
  mr::metrics::Metric mean = mr::metrics::Mean("loss");
  mr::metrics::Metric accuracy = mr::metrics::SparseCategoricalAccuracy();
  const mr::Operation sums[] = {mean.Update(root, {mr::Output(), loss, mr::Output()}),
                                accuracy.Update(root, {labels, predictions, mr::Output()})};
  const auto optimizer = mr::optimizers::Adam();
  auto train = optimizer->Minimize(root, loss, nullptr);
  if (!train.ok()) return train.status();
  const mr::Operation init = mr::InitializeVariables(root);
  auto session = mr::Session::Create(graph, InOneThread());
  if (!session.ok()) return session.status();
  if (mr::Status status = session->RunTargets({init}); !status.ok()) return status;
  const mr::Output feeds[] = {images, labels};
  const mr::Operation targets[] = {*train, sums[0], sums[1]};
  auto step = session->MakeCallable(feeds, {}, targets);
  if (!step.ok()) return step.status();
  std::vector<mr::Tensor> none;
  return MicrosPerStep([&]() -> mr::Status {
    for (int64_t i = 0; i < kSteps; ++i) {
      const mr::Tensor batch[] = {x.Slice(i * kBatch, (i + 1) * kBatch),
                                  y.Slice(i * kBatch, (i + 1) * kBatch)};
      if (mr::Status status = step->Run(batch, &none); !status.ok()) return status;
    }
    return mr::OkStatus();
  });
}

mr::StatusOr<double> FitLoop(const mr::Tensor& x, const mr::Tensor& y, bool reads_logs,
                             bool shuffle) {
  mr::Model model(Net(), {.session = InOneThread()});
  mr::Status status = model.Compile(
      {.optimizer = "adam", .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
  if (!status.ok()) return status;
  mr::TerminateOnNan reader;
  mr::FitOptions options;
  options.batch_size = kBatch;
  options.shuffle = shuffle;
  options.verbose = mr::Verbose::kSilent;
  if (reads_logs) options.callbacks = {&reader};
  return MicrosPerStep([&] { return model.Fit(x, y, options).status(); });
}

int main() {
  mr::Tensor x(mr::kFloat, mr::Shape({kSteps * kBatch, kFeatures}));
  mr::Tensor y(mr::kInt64, mr::Shape({kSteps * kBatch}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 7919) % 1009) / 1009.0f;
  }
  for (int64_t i = 0; i < y.num_elements(); ++i) y.data<int64_t>()[i] = (i * 31) % kClasses;
  const std::pair<const char*, std::function<mr::StatusOr<double>()>> rows[] = {
      {"bare loop over a prepared call", [&] { return BareLoop(x, y); }},
      {"fit, nobody reads logs of batches", [&] { return FitLoop(x, y, false, false); }},
      {"fit, shuffled", [&] { return FitLoop(x, y, false, true); }},
      {"fit, logs of every batch", [&] { return FitLoop(x, y, true, false); }},
  };
  std::printf("microseconds per step, best of %lld runs of %lld steps\n",
              static_cast<long long>(kRepeats), static_cast<long long>(kSteps));
  for (const auto& [name, run] : rows) {
    const mr::StatusOr<double> micros = run();
    if (!micros.ok()) {
      std::printf("%s: %s\n", name, micros.status().ToString().c_str());
      return 1;
    }
    std::printf("%-36s %8.1f\n", name, *micros);
  }
  return 0;
}
