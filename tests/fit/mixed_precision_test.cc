// SPDX-License-Identifier: Apache-2.0
// ModelOptions::precision: what computes in the smaller type and what stays a float, scales of the
// loss, files, replicas and workers, and loops of one's own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/keras_optimizers.h"
#include "millrace/saved_model.h"
#include "millrace/strategy.h"
#include "tests/fit/mixed_models.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;

layers::LayerPtr Net() {
  return layers::Sequential(
      {layers::Dense(8,
                     {.activation = "relu", .kernel_initializer = initializers::GlorotUniform(3)}),
       layers::BatchNormalization(),
       layers::Dense(kClasses, {.kernel_initializer = initializers::GlorotUniform(4)})});
}

std::unique_ptr<Model> MakeModel(const std::string& precision,
                                 std::shared_ptr<Strategy> strategy = nullptr) {
  auto model = std::make_unique<Model>(
      Net(), ModelOptions{.seed = 5, .strategy = std::move(strategy), .precision = precision});
  const Status status =
      model->Compile({.optimizer = optimizers::Sgd({.learning_rate = 0.1, .momentum = 0.9}),
                      .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                      .metrics = {"accuracy"}});
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

std::string NewPath() {
  static int number = 0;
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string path =
      StrCat(folder == nullptr ? "/tmp" : folder, "/mixed", getpid(), "_", number++);
  fs::remove_all(path);
  return path;
}

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

// How many nodes of this op take this type.
int CountNodes(const Graph& graph, std::string_view op, DataType type) {
  int count = 0;
  for (const Operation& node : graph.operations()) {
    if (node.type() == op && node.num_outputs() > 0 && node.output(0).dtype() == type) ++count;
  }
  return count;
}

TEST(MixedPrecision, NamesWhatThereIs) {
  Model model(Net(), {.name = "net", .precision = "mixed_float8"});
  const std::vector<std::string> parts = {"model 'net'", "'mixed_float8'", "float32",
                                          "mixed_bfloat16", "mixed_float16"};
  ExpectError(model.Compile({.optimizer = "sgd", .loss = "mse"}), StatusCode::kInvalidArgument,
              parts);
  ExpectError(model.Build({{PartialShape({-1, kFeatures}), kFloat}}), StatusCode::kInvalidArgument,
              parts);
  ExpectError(model.Predict(X()).status(), StatusCode::kInvalidArgument, parts);

  layers::LayerPtr dense = layers::Dense(1);
  dense->set_precision("half");
  Model other{std::shared_ptr<Layer>(std::move(dense))};
  ExpectError(other.Predict(X()).status(), StatusCode::kInvalidArgument,
              {"'dense'", "'half'", "mixed_float16"});
}

TEST(MixedPrecision, ComputesInTheSmallerTypeAndKeepsWeightsInFloat) {
  for (const char* precision : kBoth) {
    const DataType type = TypeOf(precision);
    const auto model = MakeModel(precision);
    const auto history = model->Fit(X(), Y(), TwoEpochs());
    ASSERT_TRUE(history.ok()) << history.status();
    EXPECT_LT(history->values("loss").back(), history->values("loss").front());
    // Two of the way through, and for each the gradients of its kernel and its input.
    EXPECT_EQ(CountNodes(model->graph(), "MatMul", type), 6) << precision;
    EXPECT_EQ(CountNodes(model->graph(), "MatMul", kFloat), 0) << precision;
    EXPECT_EQ(CountNodes(model->graph(), "FusedBatchNormV3", kFloat), 1) << precision;
    for (const Variable& v : Variables(model->graph())) {
      EXPECT_TRUE(v.dtype() == kFloat || !IsFloating(v.dtype())) << v.name();
    }
    const auto predicted = model->Predict(X());
    ASSERT_TRUE(predicted.ok()) << predicted.status();
    EXPECT_EQ(predicted->dtype(), type);
  }
}

TEST(MixedPrecision, FitsEvaluatesAndPredictsOnDatasetsAndBatches) {
  for (const char* precision : kBoth) {
    const auto model = MakeModel(precision);
    const Dataset batches = Dataset::FromTensorSlices({X(), Y()}).Batch(8);
    ASSERT_TRUE(model->Fit(batches, TwoEpochs()).ok());
    const auto logs = model->Evaluate(batches, {.verbose = Verbose::kSilent});
    const auto again = model->TestOnBatch(X(), Y());
    ASSERT_TRUE(logs.ok() && again.ok());
    EXPECT_NEAR(*logs->Find("loss"), *again->Find("loss"), 1e-2);
    ASSERT_TRUE(model->TrainOnBatch(X(), Y()).ok());
    const auto whole = model->Predict(X()), parts = model->Predict(X(), {.batch_size = 5});
    ASSERT_TRUE(whole.ok() && parts.ok());
    EXPECT_EQ(parts->dtype(), TypeOf(precision));
    EXPECT_EQ(parts->shape(), Shape({kRows, kClasses}));
  }
}

TEST(MixedPrecision, SeveralStepsInOneCallAreThoseOfSingleOnes) {
  for (const char* precision : kBoth) {
    const auto single = Plain(precision, nullptr), several = Plain(precision, nullptr);
    ASSERT_TRUE(several
                    ->Compile({.optimizer = optimizers::Sgd({.learning_rate = 0.1}),
                               .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                               .steps_per_execution = 3})
                    .ok());
    ASSERT_TRUE(single->Fit(X(), Y(), TwoEpochs()).ok());
    const auto history = several->Fit(X(), Y(), TwoEpochs());
    ASSERT_TRUE(history.ok()) << history.status();
    ExpectSame(*single->GetWeights(), *several->GetWeights());
  }
}

TEST(MixedPrecision, ALastLayerMayStayInFloat) {
  layers::LayerPtr softmax = layers::Activation("softmax");
  softmax->set_precision("float32");
  Model model(layers::Sequential({layers::Dense(kClasses), std::move(softmax)}),
              {.precision = "mixed_bfloat16"});
  const auto predicted = model.Predict(X());
  ASSERT_TRUE(predicted.ok()) << predicted.status();
  EXPECT_EQ(predicted->dtype(), kFloat);
  EXPECT_EQ(CountNodes(model.graph(), "MatMul", kBfloat16), 1);
}

TEST(MixedPrecision, ScalesTheLossOfHalvesOnly) {
  EXPECT_NE(ScalerOf(*MakeModel("mixed_float16")), nullptr);
  EXPECT_EQ(ScalerOf(*MakeModel("mixed_bfloat16")), nullptr);
  EXPECT_EQ(ScalerOf(*MakeModel("float32")), nullptr);

  Model model(Net(), {.precision = "mixed_float16"});
  auto given = std::make_unique<optimizers::LossScale>(
      optimizers::Sgd(), optimizers::LossScaleOptions{.initial_scale = 8});
  const Optimizer* const same = given.get();
  ASSERT_TRUE(model.Compile({.optimizer = std::move(given), .loss = "mse"}).ok());
  EXPECT_EQ(model.optimizer(), same);
  ExpectError(model.Compile({.optimizer = GradientDescent({.learning_rate = 0.1}), .loss = "mse"}),
              StatusCode::kInvalidArgument, {"mixed_float16", "keras_optimizers.h"});
}

TEST(MixedPrecision, ScalesNoLossIfItIsNotTo) {
  Model model(layers::Sequential({layers::Dense(1)}), {.precision = "mixed_float16"});
  ASSERT_TRUE(model
                  .Compile({.optimizer = optimizers::Sgd({.learning_rate = 1e-3}),
                            .loss = "mse",
                            .auto_scale_loss = false})
                  .ok());
  EXPECT_EQ(ScalerOf(model), nullptr);
  ASSERT_TRUE(model.Build({{PartialShape({-1, kFeatures}), kFloat}}).ok());
  const auto before = model.GetWeights();
  // Overflows where it is scaled: see the next test.
  Tensor far(kFloat, Shape({kRows, 1}));
  std::fill_n(far.data<float>(), kRows, 1000.0f);
  ASSERT_TRUE(model.TrainOnBatch(X(), far).ok());
  const auto after = model.GetWeights();
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_FALSE(TensorsEqual((*before)[0], (*after)[0]));
  for (const float w : (*after)[0].flat<float>()) EXPECT_TRUE(std::isfinite(w));

  // One that scales stays, and one that knows nothing of scales may be taken.
  auto given = std::make_unique<optimizers::LossScale>(optimizers::Sgd());
  const Optimizer* const same = given.get();
  ASSERT_TRUE(
      model.Compile({.optimizer = std::move(given), .loss = "mse", .auto_scale_loss = false}).ok());
  EXPECT_EQ(model.optimizer(), same);
  const Status plain = model.Compile({.optimizer = GradientDescent({.learning_rate = 1e-3}),
                                      .loss = "mse",
                                      .auto_scale_loss = false});
  EXPECT_TRUE(plain.ok()) << plain;
  ExpectError(model.Compile({.optimizer = GradientDescent({.learning_rate = 0.1}), .loss = "mse"}),
              StatusCode::kInvalidArgument, {"auto_scale_loss"});
}

TEST(MixedPrecision, AStepWithAnOverflowChangesNoWeightAndHalvesTheScale) {
  Model model(layers::Sequential({layers::Dense(1)}), {.precision = "mixed_float16"});
  ASSERT_TRUE(model
                  .Compile({.optimizer = optimizers::Sgd({.learning_rate = 1e-3}),
                            .loss = "mse",
                            .check_numerics = true})
                  .ok());
  ASSERT_TRUE(model.Build({{PartialShape({-1, kFeatures}), kFloat}}).ok());
  const auto before = model.GetWeights();
  // The gradient of the bias is minus 2000, which a half has no room for 32768 times.
  Tensor far(kFloat, Shape({kRows, 1}));
  std::fill_n(far.data<float>(), kRows, 1000.0f);
  ASSERT_TRUE(model.TrainOnBatch(X(), far).ok());
  EXPECT_EQ(ScaleOf(model), 16384);
  const auto after = model.GetWeights();
  ASSERT_TRUE(before.ok() && after.ok());
  ExpectSame(*before, *after);
  int steps = 0;
  while (steps < 20 && TensorsEqual(model.GetWeights()->at(0), before->at(0))) {
    ASSERT_TRUE(model.TrainOnBatch(X(), far).ok());
    ++steps;
  }
  EXPECT_EQ(ScaleOf(model), 32);
  EXPECT_EQ(steps, 10);
}

TEST(MixedPrecision, TheRateOfAScaledOptimizerIsReadAndSet) {
  const auto model = MakeModel("mixed_float16");
  ASSERT_TRUE(model->TrainOnBatch(X(), Y()).ok());
  EXPECT_NEAR(*model->GetLearningRate(), 0.1, 1e-6);
  ASSERT_TRUE(model->SetLearningRate(0.02).ok());
  EXPECT_NEAR(*model->GetLearningRate(), 0.02, 1e-7);
}

TEST(MixedPrecision, FilesAreThoseOfAFloatModel) {
  const auto wide = MakeModel("float32");
  ASSERT_TRUE(wide->Fit(X(), Y(), TwoEpochs()).ok());
  const auto weights = wide->GetWeights();
  ASSERT_TRUE(weights.ok());
  for (const char* precision : kBoth) {
    const auto mixed = MakeModel(precision);
    ASSERT_TRUE(mixed->TrainOnBatch(X(), Y()).ok());
    ASSERT_TRUE(mixed->SetWeights(*weights).ok());
    for (const WeightsFormat format : {WeightsFormat::kObjects, WeightsFormat::kNames}) {
      const std::string a = NewPath(), b = NewPath();
      ASSERT_TRUE(wide->SaveWeights(a, format).ok());
      ASSERT_TRUE(mixed->SaveWeights(b, format).ok());
      EXPECT_EQ(Contents(a + ".index"), Contents(b + ".index"));
      EXPECT_EQ(Contents(a + ".data-00000-of-00001"), Contents(b + ".data-00000-of-00001"));
      ASSERT_TRUE(mixed->TrainOnBatch(X(), Y()).ok());
      ASSERT_TRUE(mixed->LoadWeights(a).ok());
      ExpectSame(*mixed->GetWeights(), *weights);
    }
    // What is exported computes in floats.
    const std::string folder = NewPath();
    const Status exported = ExportSavedModel(*mixed, folder);
    ASSERT_TRUE(exported.ok()) << exported;
    const auto loaded = LoadSavedModel(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto got = loaded->Run(kServingDefault, {{"keras_tensor", X()}});
    ASSERT_TRUE(got.ok()) << got.status();
    const auto want = wide->Predict(X());
    ASSERT_TRUE(want.ok());
    ASSERT_EQ(got->at("output_0").dtype(), kFloat);
    ExpectNear({got->at("output_0")}, {*want}, 1e-6f);
  }
}

TEST(MixedPrecision, GoesOnFromABackupBitForBit) {
  const auto train = [](Model& model, const std::string& folder, int64_t dies_in_epoch) {
    BackupAndRestore backup({.directory = folder});
    LambdaCallback killer({.on_epoch_begin = [&](int64_t epoch) -> Status {
      return epoch == dies_in_epoch ? errors::Aborted("killed by the test") : OkStatus();
    }});
    FitOptions o = TwoEpochs();
    o.epochs = 4;
    o.callbacks = {&backup, &killer};
    return model.Fit(X(), Y(), o).status();
  };
  const auto whole = MakeModel("mixed_float16");
  ASSERT_TRUE(train(*whole, NewPath(), -1).ok());
  const std::string folder = NewPath();
  EXPECT_EQ(train(*MakeModel("mixed_float16"), folder, 2).code(), StatusCode::kAborted);
  const auto second = MakeModel("mixed_float16");
  const Status gone_on = train(*second, folder, -1);
  ASSERT_TRUE(gone_on.ok()) << gone_on;
  ExpectSame(*second->GetWeights(), *whole->GetWeights());
  const std::vector<Variable> a = second->optimizer()->variables();
  const std::vector<Variable> b = whole->optimizer()->variables();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(
        TensorsEqual(*second->session()->Eval(a[i].read), *whole->session()->Eval(b[i].read)))
        << a[i].name();
  }
}

TEST(MixedPrecision, ReplicasOfOneProcessTrainAsOne) {
  for (const char* precision : kBoth) {
    const auto one = Plain(precision, nullptr);
    const auto two = Plain(precision, MirroredStrategy({.replicas = 2}).value());
    ASSERT_TRUE(one->Fit(X(), Y(), TwoEpochs()).ok());
    const auto history = two->Fit(X(), Y(), TwoEpochs());
    ASSERT_TRUE(history.ok()) << history.status();
    ExpectNear(*one->GetWeights(), *two->GetWeights(), ToleranceOf(precision));
    EXPECT_EQ(CountNodes(two->graph(), "MatMul", kFloat), 0);
    EXPECT_EQ(two->Predict(X())->dtype(), TypeOf(precision));
  }
}

TEST(MixedPrecision, LoopsOfOnesOwnSayItToThePass) {
  for (const char* precision : kBoth) {
    Graph graph;
    const Scope root = graph.root();
    const auto net = layers::Sequential(
        {layers::Dense(4, {.activation = "gelu"}), layers::LayerNormalization(), layers::Dense(1)});
    Pass pass(root, /*training=*/true);
    pass.SetPrecision(precision);
    EXPECT_EQ(pass.compute_type(), TypeOf(precision));
    const Output x = Placeholder(root, kFloat, PartialShape({-1, kFeatures}));
    const Output y = (*net)(pass, x);
    ASSERT_TRUE(graph.status().ok()) << graph.status();
    EXPECT_EQ(y.dtype(), TypeOf(precision));
    const Output loss = Expr(root, y).Cast(kFloat).Square().Mean();
    optimizers::LossScale optimizer(optimizers::Sgd({.learning_rate = 0.1}));
    const auto train = optimizer.Minimize(root, loss, nullptr);
    ASSERT_TRUE(train.ok()) << train.status();
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({InitializeVariables(root)}).ok());
    std::vector<float> seen;
    for (int i = 0; i < 10; ++i) {
      const auto got = session->Run({{x, X()}}, {loss}, {*train});
      ASSERT_TRUE(got.ok()) << got.status();
      seen.push_back(got->at(0).TryScalar<float>().value_or(NAN));
    }
    EXPECT_LT(seen.back(), seen.front());
  }
  Graph graph;
  Pass pass(graph.root(), true);
  pass.SetPrecision("float64");
  ExpectError(graph.status(), StatusCode::kInvalidArgument, {"'float64'", "mixed_bfloat16"});
}

TEST(MixedPrecision, WhatLayersAddToTheLossIsAFloat) {
  Model model(
      layers::Sequential({layers::Dense(4, {.kernel_regularizer = regularizers::L2(0.01),
                                            .activity_regularizer = regularizers::L2(0.01)}),
                          layers::ActivityRegularization(0.01, 0.01), layers::Dense(1)}),
      {.precision = "mixed_float16"});
  ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
  const auto logs = model.TrainOnBatch(X(), Ones(kRows));
  ASSERT_TRUE(logs.ok()) << logs.status();
  EXPECT_TRUE(std::isfinite(*logs->Find("loss")));
}

}  // namespace
}  // namespace millrace::testing
