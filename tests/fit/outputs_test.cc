// Models with several inputs and outputs.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/fit/small_models.h"

namespace millrace {
namespace {

using testing::ExpectError;
using testing::Labels;
using testing::Numbers;
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

const Tensor kA = Numbers(24, 3), kB = Numbers(24, 2);

std::vector<Tensor> Truth() { return {Numbers(24, 1), Labels(24, 3)}; }

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
