// SPDX-License-Identifier: Apache-2.0
// Models with several inputs and outputs.
#include <gtest/gtest.h>

#include <map>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/fit/small_models.h"
#include "tests/training_goldens/golden.h"

namespace millrace {
namespace {

using testing::ExpectError;
using testing::Labels;
using testing::Quietly;

// Two inputs, of 3 and 2 features; a value and the logits of three classes.
std::unique_ptr<Layer> TwoByTwo() {
  std::shared_ptr<Layer> hidden = layers::Dense(
      4, {.activation = "tanh", .kernel_initializer = initializers::GlorotUniform(1)});
  std::shared_ptr<Layer> both = layers::Concatenate();
  std::shared_ptr<Layer> value =
      layers::Dense(1, {.kernel_initializer = initializers::GlorotUniform(2), .name = "value"});
  std::shared_ptr<Layer> kind =
      layers::Dense(3, {.activation = "softmax",
                        .kernel_initializer = initializers::GlorotUniform(3),
                        .name = "kind"});
  return layers::Functional({hidden, both, value, kind}, {"value", "kind"},
                            [=](Pass& pass, std::span<const Output> x) {
                              const Output all = (*both)(pass, {(*hidden)(pass, x[0]), x[1]});
                              return std::vector<Output>{(*value)(pass, all), (*kind)(pass, all)};
                            });
}

CompileOptions Compiled() {
  return {.optimizer = optimizers::Sgd({.learning_rate = 0.1}),
          .losses = {{"value", "mse"}, {"kind", "sparse_categorical_crossentropy"}},
          .loss_weights = {{"value", 0.5}, {"kind", 2.0}},
          .output_metrics = {{"value", {"mae"}}, {"kind", {"accuracy"}}}};
}

std::unique_ptr<Model> Trained(CompileOptions options) {
  auto model = std::make_unique<Model>(TwoByTwo());
  const Status compiled = model->Compile(std::move(options));
  EXPECT_TRUE(compiled.ok()) << compiled;
  return model;
}

const Tensor kA = testing::Numbers(24, 3), kB = testing::Numbers(24, 2);

std::vector<Tensor> Truth() { return {testing::Numbers(24, 1), Labels(24, 3)}; }

// Empty if the logs have these values and no others. The losses of single outputs are not compared:
// Keras takes the mean of batches, however many samples they have, where its `loss` and all of ours
// are means of samples.
std::string Difference(const std::map<std::string, std::vector<double>>& got,
                       const testing::Json& want) {
  if (got.size() != want.size()) return StrCat(got.size(), " names, not ", want.size());
  for (const auto& [name, values] : got) {
    if (!want.contains(name)) return StrCat("Keras has no ", name);
    if (name.ends_with("_loss")) continue;
    const testing::Json list = want[name].is_array() ? want[name] : testing::Json{want[name]};
    const std::string why = testing::Difference(
        Tensor::FromValues<double>(std::span(values), Shape({static_cast<int64_t>(values.size())})),
        list, {1e-4, 1e-5});
    if (!why.empty()) return StrCat(name, ": ", why);
  }
  return "";
}

TEST(OutputsTest, HistoriesWeightsAndPredictionsAreThoseOfKeras) {
  const testing::Json golden = testing::LoadGolden("outputs/two_outputs.json");
  const auto tensor = [&](const char* name) { return testing::TensorOf(golden[name]); };
  const Samples x = {tensor("a"), tensor("b")}, y = {tensor("value"), tensor("kind")};
  std::vector<Tensor> begin;
  for (const auto& w : golden["initial_weights"]) begin.push_back(testing::TensorOf(w));
  for (const auto& run : golden["runs"]) {
    const bool weighs_losses = run["weighs_losses"], weighs_samples = run["weighs_samples"];
    CompileOptions options = Compiled();
    options.loss_weights.clear();
    if (weighs_losses) options.loss_weights = {{"value", 0.3}, {"kind", 2.0}};
    const auto model = Trained(std::move(options));
    ASSERT_TRUE(model->Build({{PartialShape({-1, 3})}, {PartialShape({-1, 2})}}).ok());
    ASSERT_TRUE(model->SetWeights(begin).ok());
    FitOptions fit = Quietly({.batch_size = 8, .epochs = 3, .shuffle = false});
    if (weighs_samples) fit.sample_weight = tensor("sample_weight");
    const auto history = model->Fit(x, y, fit);
    ASSERT_TRUE(history.ok()) << history.status();
    std::map<std::string, std::vector<double>> values;
    for (const std::string& name : history->names()) values[name] = history->values(name);
    EXPECT_EQ(Difference(values, run["history"]), "");
    const auto evaluated = model->Evaluate(x, y, {.batch_size = 5, .verbose = Verbose::kSilent});
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    values.clear();
    for (const auto& [name, value] : *evaluated) values[name] = {value};
    EXPECT_EQ(Difference(values, run["evaluate"]), "");
    EXPECT_NEAR((*evaluated)["loss"],
                (weighs_losses ? 0.3 : 1.0) * (*evaluated)["value_loss"] +
                    (weighs_losses ? 2.0 : 1.0) * (*evaluated)["kind_loss"],
                1e-5);
    const auto predicted = model->PredictOutputs(x, {.batch_size = 4});
    const auto weights = model->GetWeights();
    ASSERT_TRUE(predicted.ok() && weights.ok());
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(testing::Difference((*predicted)[i], run["predict"][i]["data"], {1e-4, 1e-5}), "");
    }
    for (std::size_t i = 0; i < weights->size(); ++i) {
      EXPECT_EQ(testing::Difference((*weights)[i], run["weights"][i]["data"], {1e-4, 1e-5}), "");
    }
  }
}

TEST(OutputsTest, LossesAndMetricsAreLoggedByTheNamesOfOutputs) {
  const auto model = Trained(Compiled());
  const auto history = model->Fit(
      {kA, kB}, Truth(),
      Quietly({.batch_size = 8, .epochs = 20, .validation = ValidationData{{kA, kB}, Truth()}}));
  ASSERT_TRUE(history.ok()) << history.status();
  const std::vector<std::string> names = {
      "kind_accuracy", "kind_loss",      "loss",          "val_kind_accuracy", "val_kind_loss",
      "val_loss",      "val_value_loss", "val_value_mae", "value_loss",        "value_mae"};
  std::vector<std::string> logged = history->names();
  std::sort(logged.begin(), logged.end());
  EXPECT_EQ(logged, names);
  for (std::size_t epoch = 0; epoch < 20; ++epoch) {
    EXPECT_NEAR(
        history->values("loss")[epoch],
        0.5 * history->values("value_loss")[epoch] + 2.0 * history->values("kind_loss")[epoch],
        1e-5);
  }
  EXPECT_LT(history->values("loss").back(), history->values("loss").front());
}

TEST(OutputsTest, PredictionsAreATensorForEachOutput) {
  const auto model = Trained(Compiled());
  const auto outputs = model->PredictOutputs({kA, kB}, {.batch_size = 7});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_EQ((*outputs)[0].shape(), Shape({24, 1}));
  EXPECT_EQ((*outputs)[1].shape(), Shape({24, 3}));
  const auto evaluated = model->Evaluate({kA, kB}, Truth(), {.verbose = Verbose::kSilent});
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  double squares = 0;
  for (int i = 0; i < 24; ++i) {
    const double d = (*outputs)[0].data<float>()[i] - Truth()[0].data<float>()[i];
    squares += d * d;
  }
  EXPECT_NEAR((*evaluated)["value_loss"], squares / 24, 1e-6);
  ExpectError(model->Predict({kA, kB}).status(), StatusCode::kInvalidArgument,
              {"value, kind", "PredictOutputs"});
}

TEST(OutputsTest, DataSetsAndExecutionsTrainAsTensorsDo) {
  const auto of_tensors = Trained(Compiled());
  const auto a =
      of_tensors->Fit({kA, kB}, Truth(), Quietly({.batch_size = 5, .epochs = 3, .shuffle = false}));
  ASSERT_TRUE(a.ok()) << a.status();
  for (const int64_t steps : {1, 2}) {
    CompileOptions options = Compiled();
    options.steps_per_execution = steps;
    const auto of_batches = Trained(std::move(options));
    ASSERT_TRUE(of_batches->Build({{PartialShape({-1, 3})}, {PartialShape({-1, 2})}}).ok());
    const Dataset rows = Dataset::FromTensorSlices({kA, kB, Truth()[0], Truth()[1]}).Batch(5);
    const auto b = of_batches->Fit(rows, Quietly({.epochs = 3}));
    ASSERT_TRUE(b.ok()) << b.status();
    for (const char* name : {"loss", "value_mae", "kind_loss", "kind_accuracy"}) {
      EXPECT_EQ(a->values(name), b->values(name)) << name;
    }
  }
}

TEST(OutputsTest, AnOutputWithoutALossIsPredictedAndNotTrained) {
  const auto model = Trained({.optimizer = "sgd", .losses = {{"value", "mse"}}});
  ASSERT_TRUE(model->Build({{PartialShape({-1, 3})}, {PartialShape({-1, 2})}}).ok());
  const auto before = model->GetWeights();
  const auto history = model->Fit({kA, kB}, Truth(), Quietly());
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->names(), (std::vector<std::string>{"loss", "value_loss"}));
  const auto after = model->GetWeights();
  ASSERT_TRUE(before.ok() && after.ok());
  // hidden, value, kind: kernel and bias of each.
  EXPECT_NE((*before)[2].flat<float>()[0], (*after)[2].flat<float>()[0]);
  EXPECT_EQ((*before)[4].flat<float>()[0], (*after)[4].flat<float>()[0]);
}

TEST(OutputsTest, AStepOnOneBatchTakesAllLabels) {
  const auto model = Trained(Compiled());
  const auto trained = model->TrainOnBatch({kA, kB}, Truth());
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_TRUE(trained->Find("kind_loss").has_value());
}

TEST(OutputsTest, WhatDoesNotFitTheOutputsIsNamed) {
  Model model(TwoByTwo());
  ExpectError(model.Compile({.optimizer = "sgd", .losses = {{"values", "mse"}}}),
              StatusCode::kInvalidArgument, {"'values'", "there are value, kind"});
  const auto trained = Trained(Compiled());
  ExpectError(trained->Fit({kA, kB}, Truth()[0]).status(), StatusCode::kInvalidArgument,
              {"2 outputs, value, kind", "1 tensors of labels"});
  std::vector<Tensor> bad = Truth();
  bad[1].data<int64_t>()[3] = 9;
  ExpectError(Trained(Compiled())->Fit({kA, kB}, bad).status(), StatusCode::kInvalidArgument,
              {"label 9 of sample 3", "output 'kind'", "0 to 2"});
  Model single(layers::Sequential({layers::Dense(1)}));
  ExpectError(single.Compile({.optimizer = "sgd", .losses = {{"a", "mse"}}}),
              StatusCode::kInvalidArgument, {"'a'", "has one"});
  Model two_names(layers::Functional({}, {"a", "a"}, [](Pass&, std::span<const Output> x) {
    return std::vector<Output>{x[0], x[0]};
  }));
  ExpectError(two_names.Build({{PartialShape({-1, 2})}}), StatusCode::kInvalidArgument,
              {"another one", "'a', 'a'"});
  Model too_few(layers::Functional(
      {}, {"a", "b"}, [](Pass&, std::span<const Output> x) { return std::vector<Output>{x[0]}; }));
  ExpectError(too_few.Build({{PartialShape({-1, 2})}}), StatusCode::kInvalidArgument,
              {"2 outputs, a, b", "returned 1"});
}

}  // namespace
}  // namespace millrace
