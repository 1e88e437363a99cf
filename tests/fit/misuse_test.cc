// SPDX-License-Identifier: Apache-2.0
// What beginners get wrong, and what they are told: each answer says what is wrong, where, and what
// to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "tests/fit/counting_model.h"
#include "tests/fit/small_models.h"

namespace millrace {
namespace {

using testing::Classifier;
using testing::Column;
using testing::Counted;
using testing::CountingModel;
using testing::ExpectError;
using testing::Labels;
using testing::Numbers;
using testing::Ones;
using testing::Quietly;

TEST(MisuseTest, FitBeforeCompile) {
  Model model(std::make_shared<testing::Counter>());
  ExpectError(model.Fit(Ones(2), Ones(2)).status(), StatusCode::kFailedPrecondition,
              {"Fit needs", "call Compile("});
  ExpectError(model.Evaluate(Ones(2), Ones(2)).status(), StatusCode::kFailedPrecondition,
              {"Evaluate needs"});
}

TEST(MisuseTest, UnknownNames) {
  Model model(std::make_shared<testing::Counter>());
  ExpectError(model.Compile({.optimizer = "adamm", .loss = "mse"}), StatusCode::kInvalidArgument,
              {"no optimizer 'adamm'", "adamw"});
  ExpectError(model.Compile({.loss = "crossentropy"}), StatusCode::kInvalidArgument,
              {"no loss 'crossentropy'", "categorical_crossentropy"});
  ExpectError(model.Compile({.loss = "mse", .metrics = {"acuracy"}}), StatusCode::kInvalidArgument,
              {"no metric 'acuracy'", "accuracy"});
  ExpectError(model.Compile({.loss = "mse", .metrics = {"mae", "mae"}}),
              StatusCode::kInvalidArgument, {"two metrics are called 'mae'"});
}

TEST(MisuseTest, NothingToMinimise) {
  Model model(std::make_shared<testing::Counter>());
  ASSERT_TRUE(model.Compile({.optimizer = "sgd"}).ok());
  ExpectError(model.Fit(Ones(2), Ones(2)).status(), StatusCode::kInvalidArgument,
              {"nothing to minimise", "no loss"});
}

TEST(MisuseTest, DifferentNumbersOfSamples) {
  const auto model = CountingModel(1.0, Counted());
  ExpectError(model->Fit(Ones(5), Ones(4)).status(), StatusCode::kInvalidArgument,
              {"Data cardinality is ambiguous", "'x' sizes: 5", "'y' sizes: 4"});
  ExpectError(
      model->Fit(Ones(5), Ones(5), {.validation = ValidationData{Ones(2), Ones(3)}}).status(),
      StatusCode::kInvalidArgument, {"validation: ", "'x' sizes: 2"});
}

TEST(MisuseTest, OptionsThatCannotBe) {
  const auto model = CountingModel(1.0, Counted());
  const auto fit = [&](const FitOptions& o) { return model->Fit(Ones(4), Ones(4), o).status(); };
  ExpectError(fit({.batch_size = 0}), StatusCode::kInvalidArgument, {"batch_size", "not 0"});
  ExpectError(fit({.epochs = -1}), StatusCode::kInvalidArgument, {"epochs"});
  ExpectError(fit({.steps_per_epoch = 0}), StatusCode::kInvalidArgument, {"steps_per_epoch"});
  ExpectError(fit({.validation_split = 1.5}), StatusCode::kInvalidArgument, {"validation_split"});
  ExpectError(fit({.validation_split = 0.9999}), StatusCode::kInvalidArgument,
              {"leaves none to train on"});
  ExpectError(fit({.class_weight = {{0, 1.0}}, .sample_weight = Ones(4)}),
              StatusCode::kInvalidArgument, {"class_weight or sample_weight"});
  ExpectError(fit({.callbacks = {nullptr}}), StatusCode::kInvalidArgument, {"null"});
  ExpectError(model->Predict(Ones(4), {.batch_size = -3}).status(), StatusCode::kInvalidArgument,
              {"batch_size", "-3"});
}

TEST(MisuseTest, AProcessThatIsToEndWithoutABackup) {
  const auto model = CountingModel(1.0, Counted());
  LambdaCallback notice({.on_train_batch_end = [](int64_t batch, const Logs&) {
    if (batch == 2) NoticePreemption();
    return OkStatus();
  }});
  const Status status =
      model->Fit(Ones(8), Ones(8), {.batch_size = 1, .epochs = 5, .callbacks = {&notice}}).status();
  ForgetPreemption();
  ExpectError(status, StatusCode::kCancelled,
              {"this process is to end (signal 15)", "in epoch 0 after 4 steps", "no callback"});
}

TEST(MisuseTest, NoSamples) {
  const auto model = CountingModel(1.0, Counted());
  ExpectError(model->Fit(Ones(0), Ones(0)).status(), StatusCode::kInvalidArgument, {"no samples"});
  ExpectError(model->Fit(Tensor::Scalar<float>(1), Ones(1)).status(), StatusCode::kInvalidArgument,
              {"x is one number"});
  ExpectError(model->Predict(Tensor()).status(), StatusCode::kInvalidArgument, {"without a value"});
}

TEST(MisuseTest, LabelsThatAreNoClasses) {
  const auto model = Classifier(3);
  Tensor y = Labels(6, 3);
  y.data<int64_t>()[4] = 3;
  ExpectError(model->Fit(Numbers(6, 4), y).status(), StatusCode::kInvalidArgument,
              {"label 3 of sample 4", "3 classes", "0 to 2"});
  y.data<int64_t>()[4] = -1;
  ExpectError(model->Evaluate(Numbers(6, 4), y).status(), StatusCode::kInvalidArgument,
              {"label -1 of sample 4"});
}

TEST(MisuseTest, SamplesOfAnotherShape) {
  const auto model = Classifier(3);
  ASSERT_TRUE(model->Fit(Numbers(6, 4), Labels(6, 3), Quietly()).ok());
  ExpectError(model->Predict(Numbers(6, 5)).status(), StatusCode::kInvalidArgument,
              {"[?,4]", "[?,5]"});
  ExpectError(model->Predict({Numbers(6, 4), Numbers(6, 4)}).status(), StatusCode::kInvalidArgument,
              {"1 input"});
}

TEST(MisuseTest, MetricsThatDoNotFitTheShapes) {
  Model model(layers::Sequential({layers::Dense(3)}));
  ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse", .metrics = {"mse"}}).ok());
  const Status status = model.Fit(Numbers(6, 4), Numbers(6, 2)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
}

TEST(MisuseTest, AScheduleIsNotSet) {
  Model model(std::make_shared<testing::Counter>());
  ASSERT_TRUE(
      model
          .Compile({.optimizer = optimizers::Sgd(
                        {.learning_rate = schedules::ExponentialDecay(
                             {.initial_learning_rate = 0.1, .decay_steps = 2, .decay_rate = 0.5})}),
                    .loss = Counted()})
          .ok());
  LearningRateScheduler scheduler([](int64_t, double rate) { return rate; });
  ExpectError(model.Fit(Ones(2), Ones(2), Quietly({.callbacks = {&scheduler}})).status(),
              StatusCode::kFailedPrecondition,
              {"callback LearningRateScheduler", "`LearningRateSchedule`", "not settable"});
}

TEST(MisuseTest, AnErrorOfACallbackEndsFit) {
  const auto model = CountingModel(1.0, Counted());
  LambdaCallback fails({.on_epoch_end = [](int64_t epoch, Logs&) {
    return epoch == 1 ? errors::Unavailable("the disk is full") : OkStatus();
  }});
  ExpectError(model->Fit(Ones(2), Ones(2), Quietly({.epochs = 5, .callbacks = {&fails}})).status(),
              StatusCode::kUnavailable,
              {"callback LambdaCallback", "end of epoch 1", "the disk is full"});
  const auto weights = model->GetWeights();
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)[0].scalar<float>(), 2.0f);
}

TEST(MisuseTest, AnExceptionOfACallbackEndsFitAsAnErrorDoes) {
  const auto model = CountingModel(1.0, Counted());
  LambdaCallback throws({.on_epoch_end = [](int64_t epoch, Logs&) -> Status {
    if (epoch == 1) throw std::runtime_error("no such key");
    return OkStatus();
  }});
  ExpectError(model->Fit(Ones(2), Ones(2), Quietly({.epochs = 5, .callbacks = {&throws}})).status(),
              StatusCode::kInternal, {"callback LambdaCallback", "end of epoch 1", "no such key"});
  const auto history = model->Fit(Ones(2), Ones(2), Quietly({.epochs = 1}));
  EXPECT_TRUE(history.ok()) << "the model can be trained on: " << history.status();
}

TEST(MisuseTest, ALossThatIsNanSaysWhere) {
  const auto model = CountingModel(1.0, testing::Scripted());
  TerminateOnNan terminate({.return_error = true});
  ExpectError(model
                  ->Fit(Ones(3), Column({1, NAN, 1}),
                        Quietly({.batch_size = 1, .shuffle = false, .callbacks = {&terminate}}))
                  .status(),
              StatusCode::kInvalidArgument, {"epoch 0, batch 1", "NaN or Inf loss"});
}

TEST(MisuseTest, WeightsOfAnotherModel) {
  const auto model = Classifier(3);
  ExpectError(model->SetWeights({}), StatusCode::kFailedPrecondition, {"call Build"});
  ASSERT_TRUE(model->Build({{.shape = PartialShape({-1, 4})}}).ok());
  auto weights = model->GetWeights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  weights->pop_back();
  ExpectError(model->SetWeights(*weights), StatusCode::kInvalidArgument, {"4 weights", "3 values"});
  weights->push_back(Ones(7));
  ExpectError(model->SetWeights(*weights), StatusCode::kInvalidArgument,
              {"weight 3", "bias", "[7,1]"});
}

TEST(MisuseTest, DataThatEndWithinAnEpochEndIt) {
  const auto model = CountingModel(1.0, Counted());
  const auto history =
      model->Fit(Ones(6), Ones(6), Quietly({.batch_size = 2, .epochs = 2, .steps_per_epoch = 2}));
  ASSERT_TRUE(history.ok()) << history.status();
  const auto weights = model->GetWeights();
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)[0].scalar<float>(), 3.0f);
}

TEST(MisuseTest, AShapeThatTheNextLayerCannotTakeNamesBothLayersAndLines) {
  Model model(layers::Sequential(
      {layers::Dense(4, {.name = "first"}), layers::Conv2D(2, 3, {.name = "second"})}));
  ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
  ExpectError(model.Fit(Numbers(6, 4), Numbers(6, 4)).status(), StatusCode::kInvalidArgument,
              {"layer 'second' (Conv2D, made at misuse_test.cc:", "[?,4]",
               "layer 'first' (Dense, made at misuse_test.cc:"});
}

TEST(MisuseTest, InputsThatCannotBeMergedAreBothNamed) {
  std::shared_ptr<Layer> left = layers::Dense(3, {.name = "left"}),
                         right = layers::Dense(5, {.name = "right"}), add = layers::Add("sum");
  Model model(layers::Functional({left, right, add}, [=](Pass& pass, std::span<const Output> x) {
    return (*add)(pass, {(*left)(pass, x[0]), (*right)(pass, x[0])});
  }));
  ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
  ExpectError(model.Fit(Numbers(6, 4), Numbers(6, 3)).status(), StatusCode::kInvalidArgument,
              {"layer 'sum' (Add, made at misuse_test.cc:", "[?,5]", "layer 'right' (Dense"});
}

TEST(MisuseTest, LabelsThatTheLossCannotCompareSayBothShapes) {
  Model model(layers::Sequential({layers::Dense(3)}));
  ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
  ExpectError(model.Fit(Numbers(6, 4), Numbers(6, 2)).status(), StatusCode::kInvalidArgument,
              {"loss 'mean_squared_error'", "predictions [?,3]", "labels [?,2]"});
}

TEST(MisuseTest, AMetricOfOtherShapesSaysBothShapes) {
  Model model(layers::Sequential({layers::Dense(3)}));
  ASSERT_TRUE(
      model
          .Compile({.optimizer = "sgd",
                    .loss = losses::Loss("own",
                                         [](const Scope& s, const Output&, const Output& p) {
                                           return losses::LossValues{Expr(s, p).Mean({-1})};
                                         }),
                    .metrics = {"mae"}})
          .ok());
  ExpectError(model.Fit(Numbers(6, 4), Numbers(6, 2)).status(), StatusCode::kInvalidArgument,
              {"metric 'mae'", "predictions [?,3]", "labels [?,2]"});
}

TEST(MisuseTest, ALabelOfADataSetThatIsNoClassSaysWhichThereAre) {
  const auto model = Classifier(3);
  Tensor y = Labels(6, 3);
  y.data<int64_t>()[5] = 7;
  const Dataset rows = Dataset::FromTensorSlices({Numbers(6, 4), y}).Batch(2);
  ExpectError(model->Fit(rows, Quietly()).status(), StatusCode::kInvalidArgument,
              {"7", "labels are 0 to 2", "epoch 0, batch 2"});
}

TEST(MisuseTest, ADataSetOfUnknownSizeIsReadToItsEnd) {
  const auto model = CountingModel(1.0, Counted());
  const Dataset some = Dataset::FromTensorSlices({Ones(7), Ones(7)})
                           .Filter([](const Scope& s, std::span<const Output>) {
                             return ops::Identity(s, Constant(s, Tensor::Scalar<bool>(true)));
                           })
                           .Batch(2);
  const auto history = model->Fit(some, Quietly({.epochs = 2}));
  ASSERT_TRUE(history.ok()) << history.status();
  const auto weights = model->GetWeights();
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)[0].scalar<float>(), 8.0f);
}

// What `run` writes to standard error, whichever way it ends.
std::string LogOf(const std::function<void()>& run) {
  ::testing::internal::CaptureStderr();
  run();
  return ::testing::internal::GetCapturedStderr();
}

void ExpectParts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
}

TEST(MisuseTest, AStepThatIsBuiltAgainSaysHowOftenAndWhichArgumentChanged) {
  const auto model = Classifier(3);
  const Tensor x = Numbers(6, 4);
  Tensor few(kInt32, Shape({6}));
  std::fill_n(few.data<int32_t>(), 6, 1);
  const auto fit = [&](const Tensor& y, const FitOptions& options = {}) {
    return LogOf([&] { EXPECT_TRUE(model->Fit(x, y, Quietly(options)).ok()); });
  };
  EXPECT_EQ(fit(Labels(6, 3)).find("built again"), std::string::npos);
  // Of other sizes, but the same type and shape.
  EXPECT_EQ(fit(Labels(6, 3), {.batch_size = 2}).find("built again"), std::string::npos);
  ExpectParts(fit(few),
              {"model 'model'", "the train step is built again",
               "2 times in all, once for these arguments", "y was int64 [?] and is int32"});
  ExpectParts(fit(few, {.sample_weight = Column({1, 1, 1, 1, 1, 1})}),
              {"3 times in all", "sample_weight was none and is float [?,1]"});
  EXPECT_EQ(fit(few).find("built again"), std::string::npos);
  ASSERT_TRUE(model->Compile({.optimizer = "sgd", .loss = "sparse_categorical_crossentropy"}).ok());
  ExpectParts(fit(few), {"4 times in all, 2 times for these arguments", "sample_weight was"});
  // Data sets that are there at the same time.
  const auto rows = [&] { return Dataset::FromTensorSlices({x, few}).Batch(2); };
  const Dataset first = rows(), second = rows();
  ExpectParts(LogOf([&] { EXPECT_TRUE(model->Fit(first, Quietly()).ok()); }),
              {"5 times in all", "the data set was none and is number 1"});
  ExpectParts(LogOf([&] { EXPECT_TRUE(model->Fit(second, Quietly()).ok()); }),
              {"6 times in all", "the data set was number 1", "is number 2", "the same data set"});
  // Those that are made anew for each call read by the nodes of the one before.
  ExpectParts(LogOf([&] { EXPECT_TRUE(model->Fit(rows(), Quietly()).ok()); }),
              {"7 times in all", "the data set was number 2", "is number 3"});
  const auto again = [&] { EXPECT_TRUE(model->Fit(rows(), Quietly()).ok()); };
  EXPECT_EQ(LogOf(again).find("built again"), std::string::npos);
}

TEST(MisuseTest, DataThatRunOutSayWhatWasSeenAndExpectedAndTheFix) {
  const auto model = CountingModel(1.0, Counted());
  const std::string tensors = LogOf([&] {
    EXPECT_TRUE(
        model->Fit(Ones(7), Ones(7), Quietly({.batch_size = 2, .epochs = 2, .steps_per_epoch = 3}))
            .ok());
  });
  ExpectParts(tensors, {"Your input ran out of data", "Epoch 2 ends after 1 of 3 steps",
                        "rows seen in them: 1", "7 samples, 4 batches", "2 epochs want 6",
                        "leave steps_per_epoch out", "at most 2"});
  // Of a number that is not known before.
  const Dataset some = Dataset::FromTensorSlices({Ones(5), Ones(5)})
                           .Filter([](const Scope& s, std::span<const Output>) {
                             return ops::Identity(s, Constant(s, Tensor::Scalar<bool>(true)));
                           })
                           .Batch(2);
  const std::string filtered =
      LogOf([&] { EXPECT_TRUE(model->Fit(some, Quietly({.steps_per_epoch = 5})).ok()); });
  ExpectParts(filtered, {"Epoch 1 ends after 3 of 5 steps", "the data set", "3 batches",
                         "rows seen in them: 5", "at most 3"});
}

// A model whose first layer divides by the first feature.
std::unique_ptr<Model> Divider(int64_t steps_per_execution = 1) {
  std::unique_ptr<Model> model(new Model(
      layers::Sequential({layers::Lambda(
                              [](Pass& pass, std::span<const Output> x) -> Output {
                                const Expr all(pass.scope(), x[0]);
                                return ops::RealDiv(pass.scope().WithOpName("quotient"), all,
                                                    ops::Slice(pass.scope(), all, {0, 0}, {-1, 1}));
                              },
                              "divide"),
                          layers::Dense(1, {.kernel_initializer = initializers::Ones()})})));
  EXPECT_TRUE(model
                  ->Compile({.optimizer = optimizers::Sgd({.learning_rate = 0.01}),
                             .loss = "mse",
                             .steps_per_execution = steps_per_execution,
                             .check_numerics = true})
                  .ok());
  return model;
}

Tensor WithAZeroInRow(int64_t row) {
  Tensor x(kFloat, Shape({6, 2}));
  std::fill_n(x.data<float>(), 12, 1.0f);
  x.data<float>()[2 * row] = 0;
  return x;
}

TEST(MisuseTest, TheFirstNodeThatIsNotFiniteIsNamedWithItsStepAndNothingIsTrained) {
  for (const int64_t steps_per_execution : {1, 3}) {
    const auto model = Divider(steps_per_execution);
    ExpectError(model->Fit(WithAZeroInRow(4), Ones(6), Quietly({.batch_size = 2, .shuffle = false}))
                    .status(),
                StatusCode::kInvalidArgument,
                {"first value that is NaN or infinite is that of node 'train/sequential/divide/",
                 "quotient' (RealDiv, misuse_test.cc:", "epoch 0, batch 2"});
    const auto weights = model->GetWeights();
    ASSERT_TRUE(weights.ok()) << weights.status();
    // Of the two good steps.
    EXPECT_TRUE(std::isfinite((*weights)[0].data<float>()[0]));
    EXPECT_LT((*weights)[0].data<float>()[0], 1.0f);
  }
}

TEST(MisuseTest, NoMovingAverageIsChangedByAStepThatIsNotFinite) {
  for (const int64_t steps_per_execution : {1, 3}) {
    Model model(
        layers::Sequential({layers::BatchNormalization(), layers::Dropout(0.5), layers::Dense(1)}));
    ASSERT_TRUE(model
                    .Compile({.optimizer = "sgd",
                              .loss = "mse",
                              .steps_per_execution = steps_per_execution,
                              .check_numerics = true})
                    .ok());
    Tensor x(kFloat, Shape({6, 2}));
    std::fill_n(x.data<float>(), 12, 1.0f);
    x.data<float>()[8] = INFINITY;  // of the last batch
    ExpectError(model.Fit(x, Ones(6), Quietly({.batch_size = 2, .shuffle = false})).status(),
                StatusCode::kInvalidArgument, {"infinite is that of x;", "epoch 0, batch 2"});
    const auto weights = model.GetWeights();
    ASSERT_TRUE(weights.ok()) << weights.status();
    for (const Tensor& weight : *weights) {
      if (weight.dtype() != kFloat) continue;
      for (const float value : weight.flat<float>()) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST(MisuseTest, SamplesThatAreNotFiniteAreNamedBeforeNodes) {
  const auto model = Divider();
  Tensor x = WithAZeroInRow(0);
  x.data<float>()[0] = 1;
  x.data<float>()[7] = NAN;
  ExpectError(model->Fit(x, Ones(6), Quietly({.batch_size = 2, .shuffle = false})).status(),
              StatusCode::kInvalidArgument, {"infinite is that of x;", "epoch 0, batch 1"});
}

TEST(MisuseTest, ValuesThatAreInfiniteOnTheWayAloneAreNoError) {
  // exp(-infinity) is a good zero.
  Model model(layers::Sequential({layers::Lambda(
                                      [](Pass& pass, std::span<const Output> x) -> Output {
                                        const Expr all(pass.scope(), x[0]);
                                        return (all - 2.0f).Max(0.0f).Log().Exp() + all;
                                      },
                                      "masked"),
                                  layers::Dense(1)}));
  ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse", .check_numerics = true}).ok());
  const Status status = model.Fit(Ones(4), Ones(4), Quietly()).status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MisuseTest, TerminatingOnNanSaysHowToFindTheNode) {
  const auto model = CountingModel(1.0, testing::Scripted());
  TerminateOnNan terminate({.return_error = true});
  ExpectError(model->Fit(Ones(1), Column({NAN}), Quietly({.callbacks = {&terminate}})).status(),
              StatusCode::kInvalidArgument, {"check_numerics = true"});
}

}  // namespace
}  // namespace millrace
