// SPDX-License-Identifier: Apache-2.0
// Models that read data sets: the same steps as on tensors, and what is said where they do not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/fit/counting_model.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 21, kFeatures = 4, kClasses = 3;

Tensor Features() {
  Tensor x(kFloat, Shape({kRows, kFeatures}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 101.0f;
  }
  return x;
}

Tensor Labels() {
  Tensor y(kInt64, Shape({kRows}));
  for (int64_t i = 0; i < kRows; ++i) y.data<int64_t>()[i] = (i * 5) % kClasses;
  return y;
}

Dataset Rows() { return Dataset::FromTensorSlices({Features(), Labels()}); }

std::unique_ptr<Model> Classifier() {
  auto model = std::make_unique<Model>(layers::Sequential({layers::Dense(
      kClasses, {.activation = "softmax", .kernel_initializer = initializers::GlorotUniform(7)})}));
  EXPECT_TRUE(model
                  ->Compile({.optimizer = "sgd",
                             .loss = "sparse_categorical_crossentropy",
                             .metrics = {"accuracy"}})
                  .ok());
  return model;
}

FitOptions InOrder(FitOptions options = {}) {
  options.batch_size = 8;
  options.epochs = 3;
  options.shuffle = false;
  options.verbose = Verbose::kSilent;
  return options;
}

void ExpectError(const Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  for (const std::string& part : parts) {
    EXPECT_NE(Message(status).find(part), std::string_view::npos)
        << "no '" << part << "' in: " << status;
  }
}

void ExpectSameRuns(const FitOptions& on_tensors, const Dataset& batches,
                    const FitOptions& on_batches) {
  const auto tensors = Classifier(), dataset = Classifier();
  const auto a = tensors->Fit(Features(), Labels(), on_tensors);
  const auto b = dataset->Fit(batches, on_batches);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(a->ToCsv(), b->ToCsv());
  EXPECT_EQ(a->params().steps, b->params().steps);
}

TEST(DatasetFitTest, TrainsAsOnTensors) { ExpectSameRuns(InOrder(), Rows().Batch(8), InOrder()); }

TEST(DatasetFitTest, GoesOnWhereTheLastEpochEnded) {
  FitOptions options = InOrder({.steps_per_epoch = 2});
  options.epochs = 1;
  ExpectSameRuns(options, Rows().Batch(8).Repeat(), options);
}

TEST(DatasetFitTest, WeighsClasses) {
  FitOptions options = InOrder({.class_weight = {{0, 0.25}, {2, 3.0}}});
  ExpectSameRuns(options, Rows().Batch(8), options);
}

TEST(DatasetFitTest, WeighsSamples) {
  Tensor weights(kFloat, Shape({kRows}));
  for (int64_t i = 0; i < kRows; ++i) weights.data<float>()[i] = static_cast<float>(i % 3);
  ExpectSameRuns(InOrder({.sample_weight = weights}),
                 Dataset::FromTensorSlices({Features(), Labels(), weights}).Batch(8), InOrder());
}

TEST(DatasetFitTest, WeighsSamplesByNumbersBelowZero) {
  Tensor weights(kFloat, Shape({kRows}));
  for (int64_t i = 0; i < kRows; ++i) weights.data<float>()[i] = static_cast<float>(i % 5) - 1;
  ExpectSameRuns(InOrder({.sample_weight = weights}),
                 Dataset::FromTensorSlices({Features(), Labels(), weights}).Batch(8), InOrder());
}

// Batches of 8 with weights of samples, of which that of row 13 is `bad`.
Dataset RowsWithABadWeight(double bad) {
  Tensor weights(kDouble, Shape({kRows}));
  std::fill_n(weights.data<double>(), kRows, 1.0);
  weights.data<double>()[13] = bad;
  return Dataset::FromTensorSlices({Features(), Labels(), weights}).Batch(8);
}

TEST(DatasetFitTest, AWeightThatIsNotFiniteIsToldWithItsBatchAndRow) {
  // The last is infinite as the float that it becomes.
  for (const double bad : {static_cast<double>(NAN), -static_cast<double>(INFINITY), 1e300}) {
    const std::vector<std::string> parts = {"sample_weight must be finite", "component 2",
                                            "row 5 of the batch", "Filter"};
    const Dataset rows = RowsWithABadWeight(bad);
    const auto model = Classifier();
    const Status trained = model->Fit(rows, InOrder()).status();
    ExpectError(trained, parts);
    ExpectError(trained, {"epoch 0, batch 1"});
    const auto weights = model->GetWeights();
    ASSERT_TRUE(weights.ok()) << weights.status();
    for (const float w : (*weights)[0].flat<float>()) EXPECT_TRUE(std::isfinite(w));
    const Status tested = model->Evaluate(rows, {.verbose = Verbose::kSilent}).status();
    ExpectError(tested, parts);
    ExpectError(tested, {"test batch 1"});
    const Status validated =
        model->Fit(Rows().Batch(8), InOrder({.validation_dataset = rows})).status();
    ExpectError(validated, parts);
    ExpectError(validated, {"test batch 1"});
  }
}

TEST(DatasetFitTest, ABatchWithABadWeightChangesNothing) {
  for (const int64_t steps_per_execution : {1, 3}) {
    Model model(layers::Sequential(
        {layers::BatchNormalization(), layers::Dense(kClasses, {.activation = "softmax"})}));
    ASSERT_TRUE(model
                    .Compile({.optimizer = "sgd",
                              .loss = "sparse_categorical_crossentropy",
                              .steps_per_execution = steps_per_execution})
                    .ok());
    ASSERT_TRUE(model.Build({{PartialShape({-1, kFeatures}), kFloat}}).ok());
    const auto before = model.GetWeights();
    const Dataset rows = RowsWithABadWeight(NAN).Skip(1);
    ExpectError(model.Fit(rows, InOrder()).status(), {"row 5 of the batch", "epoch 0, batch 0"});
    const auto after = model.GetWeights();
    ASSERT_TRUE(before.ok() && after.ok());
    ASSERT_EQ(before->size(), after->size());
    for (std::size_t i = 0; i < before->size(); ++i) {
      EXPECT_TRUE(TensorsEqual((*before)[i], (*after)[i])) << i;
    }
  }
}

TEST(DatasetFitTest, ValidatesOnADataSet) {
  ExpectSameRuns(InOrder({.validation = ValidationData{Features(), Labels()}}), Rows().Batch(8),
                 InOrder({.validation_dataset = Rows().Batch(8)}));
}

TEST(DatasetFitTest, EndsWithDataOfUnknownNumber) {
  const auto model = Classifier();
  const Dataset some =
      Rows().Batch(8).Filter([](const Scope& scope, std::span<const Output> element) {
        return ops::Greater(scope, ops::Size(scope, element[1]), 5);
      });
  ASSERT_EQ(some.cardinality(), Dataset::kUnknown);
  int64_t steps = 0;
  LambdaCallback count({.on_train_batch_end = [&](int64_t, const Logs&) {
    ++steps;
    return OkStatus();
  }});
  const auto history = model->Fit(some, InOrder({.callbacks = {&count}}));
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->epochs().size(), 3u);
  EXPECT_EQ(steps, 6);
}

TEST(DatasetFitTest, EvaluatesAndPredictsRowByRow) {
  const auto model = Classifier();
  const auto a = model->Evaluate(Features(), Labels(), {.verbose = Verbose::kSilent});
  const auto b = model->Evaluate(Rows().Batch(5), {.verbose = Verbose::kSilent});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_NEAR((*a)["loss"], (*b)["loss"], 1e-6);
  EXPECT_EQ((*a)["accuracy"], (*b)["accuracy"]);
  const auto of_tensors = model->Predict(Features());
  const auto of_batches = model->Predict(Rows().Batch(5));
  ASSERT_TRUE(of_tensors.ok() && of_batches.ok()) << of_batches.status();
  ASSERT_EQ(of_tensors->shape(), of_batches->shape());
  for (int64_t i = 0; i < of_tensors->num_elements(); ++i) {
    EXPECT_NEAR(of_tensors->data<float>()[i], of_batches->data<float>()[i], 1e-6);
  }
}

TEST(DatasetFitTest, AnEndlessOneNeedsSteps) {
  const auto model = Classifier();
  ExpectError(model->Fit(Rows().Batch(8).Repeat(), InOrder()).status(),
              {"infinitely repeating dataset", "steps_per_epoch", "Repeat"});
  ExpectError(model->Fit(Rows().Batch(8), InOrder({.validation_dataset = Rows().Batch(8).Repeat()}))
                  .status(),
              {"validation_steps"});
}

TEST(DatasetFitTest, SamplesThatAreNoBatches) {
  ExpectError(Classifier()->Fit(Rows(), InOrder()).status(), {"call Batch(n)"});
}

TEST(DatasetFitTest, ElementsOfTheWrongComponents) {
  ExpectError(
      Classifier()->Fit(Dataset::FromTensorSlices({Features()}).Batch(8), InOrder()).status(),
      {"there is no y"});
  const Tensor y = Labels();
  ExpectError(Classifier()
                  ->Fit(Dataset::FromTensorSlices({Features(), y, y, y}).Batch(8), InOrder())
                  .status(),
              {"4 components", "inputs, y, weights"});
  ExpectError(Classifier()->Fit(Rows().Batch(8), InOrder({.validation_split = 0.5})).status(),
              {"Take(n)"});
}

// The first rows, all features times `factor`.
Tensor Part(int64_t rows, float factor) {
  const Tensor all = Features();
  Tensor x(kFloat, Shape({rows, kFeatures}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = all.data<float>()[i] * factor;
  }
  return x;
}

Tensor LabelsOfPart(int64_t rows) {
  const Tensor all = Labels();
  Tensor y(kInt64, Shape({rows}));
  std::copy_n(all.data<int64_t>(), rows, y.data<int64_t>());
  return y;
}

std::size_t NumNodes(Model& model) { return model.graph().operations().size(); }

// `more` are stages behind batches. The numbers are those of tensors in each round; whether the
// graph grows no more is what is given back.
bool LoopOverDataSetsMadeAnew(const std::function<Dataset(const Dataset&)>& more) {
  const auto on_batches = Classifier(), on_tensors = Classifier();
  std::vector<std::size_t> nodes;
  for (int round = 0; round < 4; ++round) {
    const int64_t rows = kRows - 3 * round;
    const Tensor x = Part(rows, 1.0f + static_cast<float>(round)), y = LabelsOfPart(rows);
    const auto made = [&](int64_t size) {
      return more(Dataset::FromTensorSlices({x, y}).Batch(size));
    };
    const auto a = on_batches->Fit(made(8), InOrder());
    const auto b = on_tensors->Fit(x, y, InOrder());
    EXPECT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    if (!a.ok() || !b.ok()) return false;
    EXPECT_EQ(a->ToCsv(), b->ToCsv()) << round;
    EXPECT_EQ(a->params().steps, b->params().steps) << round;
    const auto tested = on_batches->Evaluate(made(5), {.verbose = Verbose::kSilent});
    const auto expected =
        on_tensors->Evaluate(x, y, {.batch_size = 5, .verbose = Verbose::kSilent});
    EXPECT_TRUE(tested.ok() && expected.ok()) << tested.status() << expected.status();
    if (!tested.ok() || !expected.ok()) return false;
    EXPECT_NEAR((*tested)["loss"], (*expected)["loss"], 1e-6) << round;
    const auto predicted = on_batches->Predict(made(4));
    EXPECT_TRUE(predicted.ok()) << predicted.status();
    if (!predicted.ok()) return false;
    EXPECT_EQ(predicted->dim(0), rows);
    nodes.push_back(NumNodes(*on_batches));
  }
  return nodes.back() == nodes[1];
}

TEST(DatasetFitTest, OneThatIsMadeAnewTakesThePlaceOfOneThatIsGone) {
  EXPECT_TRUE(LoopOverDataSetsMadeAnew([](const Dataset& batches) { return batches; }));
  EXPECT_TRUE(LoopOverDataSetsMadeAnew([](const Dataset& batches) {
    return batches
        .Map([](const Scope& scope, std::span<const Output> batch) {
          return std::vector<Output>{Expr(scope, batch[0]) * 1.0f, batch[1]};
        })
        .Prefetch(2);
  }));
}

TEST(DatasetFitTest, OneThatKeepsElementsHasAPlaceOfItsOwn) {
  EXPECT_FALSE(LoopOverDataSetsMadeAnew([](const Dataset& batches) { return batches.Cache(); }));
}

TEST(DatasetFitTest, OrdersForASeedBeginAnewWithEachDataSet) {
  const auto rows = [] { return Rows().Shuffle(kRows, {.seed = 5}).Batch(4); };
  const auto on_gone = Classifier(), on_kept = Classifier();
  std::vector<Dataset> kept;
  for (int round = 0; round < 3; ++round) {
    kept.push_back(rows());
    const auto a = on_gone->Fit(rows(), InOrder());
    const auto b = on_kept->Fit(kept.back(), InOrder());
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    EXPECT_EQ(a->ToCsv(), b->ToCsv()) << round;
  }
  EXPECT_LT(NumNodes(*on_gone), NumNodes(*on_kept));
}

TEST(DatasetFitTest, MistakesOfTheDataSetAreTold) {
  EXPECT_FALSE(Classifier()->Fit(Rows().Batch(0), InOrder()).ok());
  EXPECT_FALSE(Classifier()->Fit(Dataset(), InOrder()).ok());
}

}  // namespace
}  // namespace millrace
