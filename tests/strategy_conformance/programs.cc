// SPDX-License-Identifier: Apache-2.0
#include "tests/strategy_conformance/programs.h"

#include <cmath>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace::testing {
namespace {

constexpr int64_t kFeatures = 5, kClasses = 3;

// Numbers without a pattern, the same on every machine.
Tensor Samples(int64_t rows) {
  Tensor x(kFloat, Shape({rows, kFeatures}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 7919 + 13) % 101) / 50.0f - 1.0f;
  }
  return x;
}

Tensor Labels(int64_t rows) {
  Tensor y(kInt64, Shape({rows}));
  for (int64_t i = 0; i < rows; ++i) y.data<int64_t>()[i] = (i * 31 + i / 3) % kClasses;
  return y;
}

Tensor Weights(int64_t rows) {
  Tensor w(kFloat, Shape({rows}));
  for (int64_t i = 0; i < rows; ++i) w.data<float>()[i] = static_cast<float>(i % 4) * 0.5f;
  return w;
}

std::shared_ptr<Layer> Classifier(bool regularized = false) {
  layers::DenseOptions first{.activation = "tanh",
                             .kernel_initializer = initializers::GlorotUniform(3)};
  if (regularized) first.kernel_regularizer = regularizers::L2(0.02);
  return layers::Sequential(
      {layers::Dense(6, first),
       layers::Dense(kClasses, {.kernel_initializer = initializers::GlorotUniform(4)})});
}

CompileOptions Options() {
  return {.optimizer = optimizers::Sgd({.learning_rate = 0.2, .momentum = 0.9}),
          .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
          .metrics = {"accuracy"}};
}

FitOptions Fitting(int64_t epochs, int64_t batch_size = 8) {
  return {
      .batch_size = batch_size, .epochs = epochs, .shuffle = false, .verbose = Verbose::kSilent};
}

Tensor Numbers(const std::vector<double>& values) {
  return Tensor::FromValues<double>(std::span(values),
                                    Shape({static_cast<int64_t>(values.size())}));
}

// The weights, and the history by name.
Results After(Model& model, const StatusOr<History>& history) {
  MR_RETURN_IF_ERROR(history.status());
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> all, model.GetWeights());
  for (const std::string& name : history->names()) all.push_back(Numbers(history->values(name)));
  return all;
}

Results Fit(const std::shared_ptr<Strategy>& strategy, int64_t rows) {
  Model model(Classifier(), {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  return After(model, model.Fit(Samples(rows), Labels(rows), Fitting(3)));
}

// Batches of another order in every epoch, and validation.
Results ShuffledFit(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(Classifier(), {.seed = 17, .strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  FitOptions options = Fitting(2);
  options.shuffle = true;
  options.validation = ValidationData{Samples(7), Labels(7)};
  return After(model, model.Fit(Samples(24), Labels(24), options));
}

// Last batches of 1 to 7 samples, so that some replicas have none.
Results UnevenLastBatches(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  std::vector<Tensor> all;
  Model model(Classifier(), {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  for (int64_t rows = 9; rows < 16; ++rows) {
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> got,
                        After(model, model.Fit(Samples(rows), Labels(rows), Fitting(1))));
    all.insert(all.end(), got.begin(), got.end());
  }
  return all;
}

Results WeightedAndRegularized(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(Classifier(/*regularized=*/true), {.strategy = strategy});
  CompileOptions compile = Options();
  compile.weighted_metrics = {"accuracy"};
  MR_RETURN_IF_ERROR(model.Compile(std::move(compile)));
  FitOptions options = Fitting(2);
  options.sample_weight = Weights(21);
  return After(model, model.Fit(Samples(21), Labels(21), options));
}

Results FitOfADataset(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(Classifier(), {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  const Dataset batches = Dataset::FromTensorSlices({Samples(21), Labels(21)}).Batch(8);
  return After(model, model.Fit(batches, Fitting(2)));
}

// Every replica's part has the rows of the others, and so the statistics of the whole batch.
Results BatchNorm(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(
      layers::Sequential(
          {// A bias would be taken away again, and its gradient is rounding alone.
           layers::Dense(4,
                         {.use_bias = false, .kernel_initializer = initializers::GlorotUniform(5)}),
           layers::BatchNormalization({.momentum = 0.8}),
           layers::Dense(kClasses, {.kernel_initializer = initializers::GlorotUniform(6)})}),
      {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  constexpr int64_t kRows = 32, kBatch = 16, kDifferent = 4;
  Tensor x(kFloat, Shape({kRows, kFeatures})), y(kInt64, Shape({kRows}));
  const Tensor rows = Samples(2 * kDifferent), labels = Labels(2 * kDifferent);
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t from = (i / kBatch) * kDifferent + i % kDifferent;
    for (int64_t j = 0; j < kFeatures; ++j) {
      x.data<float>()[i * kFeatures + j] = rows.data<float>()[from * kFeatures + j];
    }
    y.data<int64_t>()[i] = labels.data<int64_t>()[from];
  }
  return After(model, model.Fit(x, y, Fitting(3, kBatch)));
}

// The statistics of the whole batch, however it is cut, in images and with masks too.
Results SynchronizedBatchNorm(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(
      layers::Sequential(
          {layers::Dense(4,
                         {.use_bias = false, .kernel_initializer = initializers::GlorotUniform(5)}),
           layers::BatchNormalization({.momentum = 0.8, .synchronized = true}),
           layers::Dense(4, {.activation = "tanh",
                             .use_bias = false,
                             .kernel_initializer = initializers::GlorotUniform(9)}),
           layers::BatchNormalization({.momentum = 0.8, .synchronized = true}),
           layers::Dense(kClasses, {.kernel_initializer = initializers::GlorotUniform(6)})}),
      {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  // The last batch has one row for each of two replicas, or for two of four.
  return After(model, model.Fit(Samples(18), Labels(18), Fitting(2)));
}

// Replicas without samples must not spoil what batch normalization keeps: the numbers of several
// replicas are not those of one, but they are numbers.
Results BatchNormOfFewSamples(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(layers::Sequential({layers::BatchNormalization(), layers::Dense(kClasses)}),
              {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> got,
                      After(model, model.Fit(Samples(9), Labels(9), Fitting(2))));
  for (const Tensor& t : got) {
    if (t.dtype() != kFloat) continue;
    for (int64_t i = 0; i < t.num_elements(); ++i) {
      if (!std::isfinite(t.data<float>()[i])) return errors::Internal("not a number after fit");
    }
  }
  return std::vector<Tensor>();
}

Results Embeddings(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(
      layers::Sequential(
          {layers::Embedding(9, 4,
                             {.embeddings_initializer = initializers::RandomUniform(
                                  {.minval = -0.5, .maxval = 0.5, .seed = 7})}),
           layers::GlobalAveragePooling1D(),
           layers::Dense(kClasses, {.kernel_initializer = initializers::GlorotUniform(8)})}),
      {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  Tensor ids(kInt64, Shape({21, 3}));
  for (int64_t i = 0; i < ids.num_elements(); ++i) ids.data<int64_t>()[i] = (i * 5 + i / 7) % 9;
  return After(model, model.Fit(ids, Labels(21), Fitting(2)));
}

Results Metrics(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(Classifier(), {.strategy = strategy});
  CompileOptions compile = Options();
  compile.metrics = {"accuracy", MetricSpec("top2", metrics::SparseTopKCategoricalAccuracy(2))};
  MR_RETURN_IF_ERROR(model.Compile(std::move(compile)));
  std::vector<Tensor> all;
  for (const int64_t batch_size : {4, 8, 32}) {
    MR_ASSIGN_OR_RETURN(const Logs logs,
                        model.Evaluate(Samples(21), Labels(21),
                                       {.batch_size = batch_size, .verbose = Verbose::kSilent}));
    for (const auto& [name, value] : logs) all.push_back(Tensor::Scalar<double>(value));
  }
  return all;
}

Results OfDatasets(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(Classifier(), {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  const Dataset batches = Dataset::FromTensorSlices({Samples(21), Labels(21)}).Batch(8);
  MR_ASSIGN_OR_RETURN(const Logs logs, model.Evaluate(batches, {.verbose = Verbose::kSilent}));
  std::vector<Tensor> all;
  for (const auto& [name, value] : logs) all.push_back(Tensor::Scalar<double>(value));
  MR_ASSIGN_OR_RETURN(const Tensor y,
                      model.Predict(Dataset::FromTensorSlices({Samples(21)}).Batch(8)));
  all.push_back(y);
  return all;
}

Results PredictOrder(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Model model(Classifier(), {.strategy = strategy});
  std::vector<Tensor> all;
  for (const int64_t rows : {1, 3, 8, 11}) {
    MR_ASSIGN_OR_RETURN(const Tensor y, model.Predict(Samples(rows), {.batch_size = 4}));
    if (y.dim(0) != rows) return errors::Internal(y.dim(0), " predictions of ", rows);
    all.push_back(y);
  }
  return all;
}

// As a user would write it: the model's layers, without the model.
Results CustomLoop(const std::shared_ptr<Strategy>& strategy, const std::string&) {
  Graph graph;
  const Scope root = strategy->RootScope(graph.root());
  const std::shared_ptr<Layer> net = Classifier();
  const Output x = Placeholder(root.WithOpName("x"), kFloat, PartialShape({-1, kFeatures}));
  const Output y = Placeholder(root.WithOpName("y"), kInt64, PartialShape({-1}));
  const PerReplica xs = strategy->Split(root, x), ys = strategy->Split(root, y);
  const losses::Loss loss =
      losses::SparseCategoricalCrossentropy({.from_logits = true}).With(losses::Reduction::kSum);
  Status failed;
  MR_ASSIGN_OR_RETURN(
      const std::vector<PerReplica> results, strategy->Run(root, [&](ReplicaContext& context) {
        const auto i = static_cast<std::size_t>(context.local_replica());
        Pass pass(context.scope(), strategy->VariableScope(graph.root()), true);
        const Output predicted = (*net)(pass, xs.values[i]);
        const Output own =
            Expr(context.scope(), loss(context.scope(), ys.values[i], predicted)) / 8.0f;
        std::vector<Output> handles, made = {own};
        for (const Variable& v : net->trainable_weights()) handles.push_back(v.handle);
        const auto gradients = Gradients(context.scope(), {{own}}, handles);
        failed = gradients.status();
        for (std::size_t k = 0; failed.ok() && k < handles.size(); ++k) {
          made.push_back(context.AllReduce(ReduceOp::kSum,
                                           ops::EnsureShape(context.scope(), gradients->at(k),
                                                            net->trainable_weights()[k].shape())));
        }
        return made;
      }));
  MR_RETURN_IF_ERROR(failed);
  std::vector<GradientAndVariable> gradients;
  std::vector<Operation> computed;
  for (std::size_t k = 0; k + 1 < results.size(); ++k) {
    gradients.push_back({results[k + 1].values[0], net->trainable_weights()[k]});
    for (const Output& g : results[k + 1].values) computed.push_back(g.op());
  }
  const auto optimizer = optimizers::Sgd({.learning_rate = 0.2, .momentum = 0.9});
  MR_ASSIGN_OR_RETURN(
      const Operation step,
      optimizer->ApplyGradients(root.WithControlDependencies(computed), gradients, nullptr));
  const Output total = strategy->Reduce(root, ReduceOp::kSum, results[0]);
  const Operation init = InitializeVariables(root);
  MR_RETURN_IF_ERROR(graph.status());
  SessionOptions options;
  MR_RETURN_IF_ERROR(strategy->ConfigureSession(&options));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph, options));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  std::vector<Tensor> all;
  for (int64_t first = 0; first < 21; first += 8) {
    const int64_t end = std::min<int64_t>(21, first + 8);
    MR_ASSIGN_OR_RETURN(const auto got, session.Run({{x, Samples(21).Slice(first, end)},
                                                     {y, Labels(21).Slice(first, end)}},
                                                    {total}, {step}));
    all.push_back(got[0]);
  }
  for (const Variable& v : net->weights()) {
    MR_ASSIGN_OR_RETURN(Tensor value, session.Eval(v.read));
    all.push_back(std::move(value));
  }
  return all;
}

// One epoch, a checkpoint, and the second epoch by a model that has read it.
StatusOr<std::string> TrainAndSave(const std::shared_ptr<Strategy>& strategy,
                                   const std::string& prefix) {
  Model model(Classifier(), {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  MR_RETURN_IF_ERROR(model.Fit(Samples(21), Labels(21), Fitting(1)).status());
  if (strategy != nullptr && !strategy->is_chief()) return prefix;
  MR_ASSIGN_OR_RETURN(const auto saver, Saver::Create(model.graph()));
  return saver->Save(*model.session(), prefix, {.write_meta_graph = false});
}

Results RestoreAndTrain(const std::shared_ptr<Strategy>& strategy, const std::string& prefix) {
  Model model(Classifier(), {.strategy = strategy});
  MR_RETURN_IF_ERROR(model.Compile(Options()));
  // Makes the optimizer's variables too.
  MR_RETURN_IF_ERROR(model.Fit(Samples(21), Labels(21), Fitting(0)).status());
  MR_ASSIGN_OR_RETURN(const auto saver, Saver::Create(model.graph()));
  MR_RETURN_IF_ERROR(saver->Restore(*model.session(), prefix));
  return After(model, model.Fit(Samples(21), Labels(21), Fitting(1)));
}

Results SavedHereResumedAlone(const std::shared_ptr<Strategy>& strategy,
                              const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const std::string prefix, TrainAndSave(strategy, StrCat(directory, "/here")));
  if (!strategy->is_chief()) return std::vector<Tensor>();
  return RestoreAndTrain(nullptr, prefix);
}

Results SavedAloneResumedHere(const std::shared_ptr<Strategy>& strategy,
                              const std::string& directory) {
  MR_ASSIGN_OR_RETURN(
      const std::string prefix,
      TrainAndSave(nullptr, StrCat(directory, "/alone_", strategy->first_replica())));
  return RestoreAndTrain(strategy, prefix);
}

}  // namespace

std::vector<NamedProgram> AllPrograms() {
  return {{"Fit", [](const auto& s, const auto&) { return Fit(s, 21); }},
          {"ShuffledFit", ShuffledFit},
          {"UnevenLastBatches", UnevenLastBatches},
          {"WeightedAndRegularized", WeightedAndRegularized},
          {"FitOfADataset", FitOfADataset},
          {"BatchNorm", BatchNorm},
          {"SynchronizedBatchNorm", SynchronizedBatchNorm},
          {"BatchNormOfFewSamples", BatchNormOfFewSamples},
          {"Embeddings", Embeddings},
          {"Metrics", Metrics},
          {"OfDatasets", OfDatasets},
          {"PredictOrder", PredictOrder},
          {"CustomLoop", CustomLoop},
          {"SavedHereResumedAlone", SavedHereResumedAlone},
          {"SavedAloneResumedHere", SavedAloneResumedHere}};
}

}  // namespace millrace::testing
