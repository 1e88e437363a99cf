// SPDX-License-Identifier: Apache-2.0
// Calls that no program should make: each is answered by a status, none ends the program, trains to
// NaN or does nothing without a word.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "base/strings.h"
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

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr auto kInvalid = StatusCode::kInvalidArgument;

Tensor Weights(const std::vector<float>& values) {
  return Tensor::FromValues<float>(std::span(values), Shape({static_cast<int64_t>(values.size())}));
}

float Count(Model& model) {
  const auto weights = model.GetWeights();
  EXPECT_TRUE(weights.ok()) << weights.status();
  return weights.ok() ? (*weights)[0].scalar<float>() : -1;
}

TEST(HostileCallsTest, WeightsThatAreNotFiniteAreRefused) {
  const auto model = CountingModel(1.0, Counted());
  const auto fit = [&](const FitOptions& o) {
    return model->Fit(Ones(2), Ones(2), Quietly(o)).status();
  };
  ExpectError(fit({.class_weight = {{0, 1}, {1, kNan}}}), kInvalid,
              {"class_weight", "class 1", "nan"});
  ExpectError(fit({.class_weight = {{1, -kInf}}}), kInvalid, {"class_weight", "-inf"});
  const Tensor bad = Weights({1, NAN});
  ExpectError(fit({.sample_weight = bad}), kInvalid, {"sample_weight of sample 1", "nan"});
  ExpectError(fit({.validation = ValidationData{Ones(2), Ones(2), bad}}), kInvalid,
              {"validation: ", "sample_weight of sample 1"});
  ExpectError(model->Evaluate(Ones(2), Ones(2), {.sample_weight = bad}).status(), kInvalid,
              {"sample_weight of sample 1"});
  ExpectError(model->TrainOnBatch(Ones(2), Ones(2), bad).status(), kInvalid, {"sample_weight"});
  ExpectError(model->TestOnBatch(Ones(2), Ones(2), Weights({INFINITY, 1})).status(), kInvalid,
              {"sample_weight of sample 0", "inf"});
  const Dataset rows = Dataset::FromTensorSlices({Ones(2), Ones(2)}).Batch(1);
  ExpectError(model->Fit(rows, Quietly({.class_weight = {{1, kNan}}})).status(), kInvalid,
              {"class_weight", "class 1"});
  // Rewards as weights: less than zero is a number as well.
  EXPECT_TRUE(fit({.sample_weight = Weights({-1, 0})}).ok());
  EXPECT_TRUE(fit({.class_weight = {{1, 0}}}).ok());
}

TEST(HostileCallsTest, ClassesBelowZeroWeighTheSameInMemoryAndInADataSet) {
  const Tensor y = Column({-1, 1, 1});
  const std::map<int64_t, double> weights = {{-1, 4.0}};
  const auto memory = CountingModel(1.0, Counted()), dataset = CountingModel(1.0, Counted());
  ASSERT_TRUE(memory->Fit(Ones(3), y, Quietly({.class_weight = weights})).ok());
  ASSERT_TRUE(dataset
                  ->Fit(Dataset::FromTensorSlices({Ones(3), y}).Batch(3),
                        Quietly({.class_weight = weights}))
                  .ok());
  EXPECT_FLOAT_EQ(Count(*memory), 2.0f);  // (4 + 1 + 1) / 3
  EXPECT_FLOAT_EQ(Count(*dataset), 2.0f);
}

TEST(HostileCallsTest, AClassWeightOfAHugeClassIsRefusedForADataSet) {
  const auto model = CountingModel(1.0, Counted());
  const Dataset rows = Dataset::FromTensorSlices({Ones(2), Ones(2)}).Batch(1);
  for (const int64_t label : {int64_t{1} << 60, -(int64_t{1} << 60)}) {
    ExpectError(model->Fit(rows, Quietly({.class_weight = {{label, 2.0}}})).status(), kInvalid,
                {"class_weight names the class", StrCat(label)});
  }
}

TEST(HostileCallsTest, EpochsThatHaveBeenAreAnError) {
  const auto model = CountingModel(1.0, Counted());
  const auto fit = [&](const FitOptions& o) {
    return model->Fit(Ones(2), Ones(2), Quietly(o)).status();
  };
  ExpectError(fit({.epochs = 3, .initial_epoch = 5}), kInvalid, {"initial_epoch is 5", "epochs 3"});
  EXPECT_TRUE(fit({.epochs = 3, .initial_epoch = 3}).ok());
  ExpectError(fit({.validation_split = 0.5, .validation_epochs = {1, 0}}), kInvalid,
              {"validation_epochs count from 1"});
  ExpectError(fit({.validation_split = kNan}), kInvalid, {"validation_split", "nan"});
  ExpectError(fit({.validation_split = -0.5}), kInvalid, {"validation_split"});
  ExpectError(fit({.validation_split = 1}), kInvalid, {"validation_split"});
}

TEST(HostileCallsTest, ABatchMayBeLargerThanAnyData) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto model = CountingModel(1.0, Counted());
  ASSERT_TRUE(model->Fit(Ones(3), Ones(3), Quietly({.batch_size = kMost, .epochs = 2})).ok());
  EXPECT_EQ(Count(*model), 2.0f);
  EXPECT_TRUE(model->Predict(Ones(3), {.batch_size = kMost}).ok());
}

TEST(HostileCallsTest, ADataSetThatTurnsOutToBeEmptyIsAnError) {
  const auto model = CountingModel(1.0, Counted());
  const Dataset none = Dataset::FromTensorSlices({Ones(4), Ones(4)})
                           .Filter([](const Scope& s, std::span<const Output>) {
                             return ops::Identity(s, Constant(s, Tensor::Scalar<bool>(false)));
                           })
                           .Batch(2);
  ExpectError(model->Fit(none, Quietly()).status(), kInvalid, {"has no batches"});
  ExpectError(model->Evaluate(none, {.verbose = Verbose::kSilent}).status(), kInvalid,
              {"has no batches"});
  ExpectError(model->Predict(none).status(), kInvalid, {"no batches"});
  const Dataset empty = Dataset::FromTensorSlices({Ones(0), Ones(0)}).Batch(2);
  ExpectError(model->Fit(empty, Quietly()).status(), kInvalid, {"has no batches"});
}

TEST(HostileCallsTest, AModelNeedsLayersAndBuildInputs) {
  Model null(nullptr);
  ASSERT_TRUE(null.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
  ExpectError(null.Fit(Ones(2), Ones(2), Quietly()).status(), kInvalid, {"null layer"});
  Model predicts(nullptr);
  ExpectError(predicts.Predict(Ones(2)).status(), kInvalid, {"null layer"});
  Model functional(layers::Functional(
      {}, [](Pass& pass, std::span<const Output> x) { return ops::Identity(pass.scope(), x[0]); }));
  ExpectError(functional.Build({}), kInvalid, {"no inputs"});
  Model empty(layers::Sequential({}));
  ExpectError(empty.Predict(Ones(2)).status(), kInvalid, {"has no layers"});
}

TEST(HostileCallsTest, TheSameLayerTwiceHasItsWeightsOnce) {
  const std::shared_ptr<Layer> layer = layers::Dense(4);
  Model model(layers::Sequential({layer, layer}));
  ASSERT_TRUE(model.Build({{.shape = PartialShape({-1, 4})}}).ok());
  EXPECT_EQ(model.weights().size(), 2u);
  const std::shared_ptr<Layer> other = layers::Dense(3);
  Model differs(layers::Sequential({other, other}));
  ExpectError(differs.Build({{.shape = PartialShape({-1, 4})}}), kInvalid,
              {"layer 'dense'", "[3,3]", "[4,3]"});
}

TEST(HostileCallsTest, RatesThatAreNotFiniteAreNotSet) {
  const auto model = CountingModel(1.0, Counted());
  ASSERT_TRUE(model->Fit(Ones(1), Ones(1), Quietly()).ok());
  ExpectError(model->SetLearningRate(kNan), kInvalid, {"SetLearningRate", "nan"});
  ExpectError(model->SetLearningRate(kInf), kInvalid, {"inf"});
  EXPECT_TRUE(model->SetLearningRate(0).ok());
  ExpectError(model->Compile({.loss = "mse", .loss_weights = {{"", kNan}}}), kInvalid,
              {"loss_weights", "nan"});
}

TEST(HostileCallsTest, TypesThatDoNotFitAreNamed) {
  const auto model = Classifier(3);
  Tensor texts(kString, Shape({4}));
  ExpectError(model->Fit(Numbers(4, 4), texts, Quietly()).status(), kInvalid,
              {"'sparse_categorical_crossentropy'", "string"});
  const auto words = Classifier(3);
  Tensor samples(kString, Shape({4, 4}));
  ExpectError(words->Fit(samples, Labels(4, 3), Quietly()).status(), kInvalid,
              {"layer 'dense'", "string"});
  // Images of bytes are numbers to a layer.
  const auto bytes = Classifier(3);
  Tensor pixels(kUint8, Shape({4, 4}));
  std::fill_n(pixels.data<uint8_t>(), 16, uint8_t{7});
  EXPECT_TRUE(bytes->Fit(pixels, Labels(4, 3), Quietly()).ok());
}

TEST(HostileCallsTest, LabelsOfAnyTypeThatAreNoClassesAreNamed) {
  const auto model = Classifier(3);
  Tensor doubles(kDouble, Shape({2}));
  doubles.data<double>()[0] = 0;
  doubles.data<double>()[1] = kNan;
  ExpectError(model->Fit(Numbers(2, 4), doubles, Quietly()).status(), kInvalid,
              {"label nan of sample 1"});
  Tensor bytes(kInt8, Shape({2}));
  bytes.data<int8_t>()[0] = 0;
  bytes.data<int8_t>()[1] = -1;
  ExpectError(model->Fit(Numbers(2, 4), bytes, Quietly()).status(), kInvalid,
              {"label -1 of sample 1"});
}

TEST(HostileCallsTest, ARowThatIsNotInTheTableEndsTheStep) {
  for (const int64_t id : {int64_t{-1}, int64_t{5}, std::numeric_limits<int64_t>::max()}) {
    Model model(layers::Sequential({layers::Embedding(5, 2), layers::Flatten(), layers::Dense(1)}));
    ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
    Tensor ids(kInt64, Shape({2, 1}));
    ids.data<int64_t>()[0] = 0;
    ids.data<int64_t>()[1] = id;
    ExpectError(model.Fit(ids, Ones(2), Quietly()).status(), kInvalid, {StrCat(id), "5"});
  }
}

TEST(HostileCallsTest, AnOptimizerIsOneModelsOwn) {
  const CompileOptions options{.optimizer = optimizers::Adam({.learning_rate = 0.1}),
                               .loss = "mse"};
  Model first(layers::Sequential({layers::Dense(1)})),
      second(layers::Sequential({layers::Dense(1)}));
  ASSERT_TRUE(first.Compile(options).ok());
  ASSERT_TRUE(second.Compile(options).ok());
  ASSERT_TRUE(first.Fit(Numbers(4, 2), Ones(4), Quietly()).ok());
  ExpectError(second.Fit(Numbers(4, 2), Ones(4), Quietly()).status(),
              StatusCode::kFailedPrecondition, {"optimizer 'adam' belongs to the graph"});
}

// A metric of one sum, one of whose functions throws.
metrics::Metric::Rule ThrowingIn(const std::string& which) {
  const auto check = [which](const char* function) {
    if (which == function) throw std::runtime_error("no such sum");
  };
  return {.sums =
              [check](const PartialShape&, const PartialShape&) {
                check("sums");
                return std::vector<metrics::Metric::Sum>{{"total", Shape({})}};
              },
          .additions =
              [check](const Scope& scope, const metrics::Batch& batch) {
                check("additions");
                return std::vector<Expr>{Expr(scope, batch.y_pred).Sum()};
              },
          .result =
              [check](const std::vector<Expr>& sums) {
                check("result");
                return sums[0];
              }};
}

Status FitWithMetric(metrics::Metric::Rule rule) {
  Model model(layers::Sequential({layers::Dense(1)}));
  const Status compiled = model.Compile({.optimizer = "sgd",
                                         .loss = Counted(),
                                         .metrics = {metrics::Metric("mine", std::move(rule))}});
  return compiled.ok() ? model.Fit(Ones(2), Ones(2), Quietly()).status() : compiled;
}

TEST(HostileCallsTest, RulesOfMetricsThatDoNotFitAreErrors) {
  metrics::Metric::Rule none = ThrowingIn("");
  none.additions = [](const Scope&, const metrics::Batch&) { return std::vector<Expr>(); };
  ExpectError(FitWithMetric(none), kInvalid, {"metric 'mine'", "1 sums", "0 additions"});
  EXPECT_TRUE(FitWithMetric(ThrowingIn("")).ok());
}

TEST(HostileCallsTest, WhatFunctionsOfAModelThrowIsAStatus) {
  const auto predict = [](std::shared_ptr<Layer> layer) {
    Model model(layers::Sequential({std::move(layer)}));
    return model.Predict(Ones(2)).status();
  };
  const layers::PassFunction throws = [](Pass&, std::span<const Output>) -> Output {
    throw std::runtime_error("no such column");
  };
  ExpectError(predict(layers::Lambda(throws)), StatusCode::kInternal,
              {"layer 'lambda'", "no such column"});
  ExpectError(predict(layers::Lambda(nullptr)), kInvalid, {"layer 'lambda'", "function is null"});
  ExpectError(predict(layers::Functional({}, nullptr)), kInvalid, {"function is null"});
  const losses::Loss loss("mine", [](const Scope&, const Output&, const Output&) {
    return throw std::runtime_error("no such label"), losses::LossValues{};
  });
  const auto model = CountingModel(1.0, loss);
  ExpectError(model->Fit(Ones(2), Ones(2), Quietly()).status(), StatusCode::kInternal,
              {"loss 'mine'", "no such label"});
  for (const char* which : {"sums", "additions", "result"}) {
    ExpectError(FitWithMetric(ThrowingIn(which)), StatusCode::kInternal,
                {"metric 'mine'", which, "no such sum"});
  }
  const Dataset mapped =
      Dataset::Range(3).Map([](const Scope&, std::span<const Output>) -> std::vector<Output> {
        throw std::runtime_error("no such file");
      });
  ExpectError(mapped.status(), StatusCode::kInternal, {"'Map'", "no such file"});
}

// ---- Callbacks ----------------------------------------------------------------------

TEST(HostileCallsTest, ACallbackDoesNotCompileTheModelThatTrains) {
  const auto model = CountingModel(1.0, Counted());
  Status compiled;
  LambdaCallback compiles({.on_train_batch_end = [&](int64_t, const Logs&) {
    compiled = model->Compile({.optimizer = "sgd", .loss = Counted()});
    return OkStatus();
  }});
  ASSERT_TRUE(model->Fit(Ones(2), Ones(2), Quietly({.callbacks = {&compiles}})).ok());
  ExpectError(compiled, StatusCode::kFailedPrecondition, {"Compile was called by a callback"});
  EXPECT_TRUE(model->Compile({.optimizer = "sgd", .loss = Counted()}).ok()) << "after Fit";
  EXPECT_TRUE(model->Fit(Ones(2), Ones(2), Quietly()).ok());
}

TEST(HostileCallsTest, ACallbackThatCallsFitForEverIsStopped) {
  const auto model = CountingModel(1.0, Counted());
  std::unique_ptr<LambdaCallback> again;
  again = std::make_unique<LambdaCallback>(LambdaCallbackOptions{.on_train_begin = [&] {
    return model->Fit(Ones(1), Ones(1), Quietly({.callbacks = {again.get()}})).status();
  }});
  ExpectError(model->Fit(Ones(1), Ones(1), Quietly({.callbacks = {again.get()}})).status(),
              StatusCode::kFailedPrecondition, {"deep within each other's callbacks"});
  EXPECT_EQ(model->training_run(), nullptr);
  EXPECT_TRUE(model->Fit(Ones(1), Ones(1), Quietly()).ok());
}

TEST(HostileCallsTest, ACallbackMayFitOnce) {
  const auto model = CountingModel(1.0, Counted());
  LambdaCallback inner({.on_epoch_end = [&](int64_t, Logs&) {
    return model->Fit(Ones(3), Ones(3), Quietly({.batch_size = 1})).status();
  }});
  const auto history =
      model->Fit(Ones(2), Ones(2), Quietly({.batch_size = 1, .callbacks = {&inner}}));
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(Count(*model), 5.0f);
}

TEST(HostileCallsTest, ADataSetThatACallbackHasReadIsNotTakenForOneThatHasEnded) {
  const auto model = CountingModel(1.0, Counted());
  const Dataset rows = Dataset::FromTensorSlices({Ones(6), Ones(6)}).Batch(2);
  LambdaCallback inner({.on_train_batch_end = [&](int64_t batch, const Logs&) {
    return batch == 0 ? model->Fit(rows, Quietly()).status() : OkStatus();
  }});
  ExpectError(model->Fit(rows, Quietly({.callbacks = {&inner}})).status(),
              StatusCode::kFailedPrecondition, {"a call within a callback has read", "batch 1"});
  EXPECT_TRUE(model->Fit(rows, Quietly()).ok());
}

// Fails, or throws, in one hook.
class Failing : public Callback {
 public:
  Failing(std::string hook, bool throws) : hook_(std::move(hook)), throws_(throws) {}
  std::string kind() const override { return "Failing"; }
  void SetModel(Model* model) override {
    Callback::SetModel(model);
    if (hook_ == "SetModel") throw std::runtime_error("from SetModel");
  }
  void SetParams(const LoopParams& params) override {
    Callback::SetParams(params);
    if (hook_ == "SetParams") throw std::runtime_error("from SetParams");
  }
  Status OnTrainRestore() override { return At("OnTrainRestore"); }
  Status OnTrainBegin() override { return At("OnTrainBegin"); }
  Status OnTrainEnd(const Logs&) override { return At("OnTrainEnd"); }
  Status OnEpochBegin(int64_t) override { return At("OnEpochBegin"); }
  Status OnEpochEnd(int64_t, Logs&) override { return At("OnEpochEnd"); }
  Status OnTrainBatchBegin(int64_t) override { return At("OnTrainBatchBegin"); }
  Status OnTrainBatchEnd(int64_t, const Logs&) override { return At("OnTrainBatchEnd"); }
  Status OnTestBegin() override { return At("OnTestBegin"); }
  Status OnTestEnd(const Logs&) override { return At("OnTestEnd"); }
  Status OnTestBatchBegin(int64_t) override { return At("OnTestBatchBegin"); }
  Status OnTestBatchEnd(int64_t, const Logs&) override { return At("OnTestBatchEnd"); }
  Status OnPredictBegin() override { return At("OnPredictBegin"); }
  Status OnPredictEnd() override { return At("OnPredictEnd"); }
  Status OnPredictBatchBegin(int64_t) override { return At("OnPredictBatchBegin"); }
  Status OnPredictBatchEnd(int64_t, const Tensor&) override { return At("OnPredictBatchEnd"); }

 private:
  Status At(const char* hook) const {
    if (hook_ != hook) return OkStatus();
    if (throws_) throw std::runtime_error(StrCat("from ", hook));
    return Status(StatusCode::kUnavailable, StrCat("from ", hook));
  }

  const std::string hook_;
  const bool throws_;
};

TEST(HostileCallsTest, AFailureInAnyHookIsTheCallsOwnAndTheModelGoesOn) {
  const auto model = CountingModel(1.0, Counted());
  const char* const hooks[] = {
      "SetModel",         "SetParams",      "OnTrainRestore", "OnTrainBegin",
      "OnTrainEnd",       "OnEpochBegin",   "OnEpochEnd",     "OnTrainBatchBegin",
      "OnTrainBatchEnd",  "OnTestBegin",    "OnTestEnd",      "OnTestBatchBegin",
      "OnTestBatchEnd",   "OnPredictBegin", "OnPredictEnd",   "OnPredictBatchBegin",
      "OnPredictBatchEnd"};
  for (const std::string hook : hooks) {
    for (const bool throws : {false, true}) {
      if (!throws && hook.starts_with("Set")) continue;
      Failing failing(hook, throws);
      const Status status = hook.find("Predict") != std::string::npos
                                ? model->Predict(Ones(2), {.callbacks = {&failing}}).status()
                                : model
                                      ->Fit(Ones(2), Ones(2),
                                            Quietly({.validation = ValidationData{Ones(2), Ones(2)},
                                                     .callbacks = {&failing}}))
                                      .status();
      ExpectError(status, throws ? StatusCode::kInternal : StatusCode::kUnavailable,
                  {"callback Failing", "from " + hook});
      EXPECT_EQ(model->training_run(), nullptr);
    }
  }
  EXPECT_TRUE(model->Fit(Ones(2), Ones(2), Quietly()).ok());
}

TEST(HostileCallsTest, WeightsOfAnotherModelAreNotLoaded) {
  const std::string prefix = StrCat(std::getenv("TEST_TMPDIR"), "/weights");
  Model small(layers::Sequential({layers::Dense(2)})),
      large(layers::Sequential({layers::Dense(3)}));
  ASSERT_TRUE(small.Build({{.shape = PartialShape({-1, 4})}}).ok());
  ASSERT_TRUE(large.Build({{.shape = PartialShape({-1, 4})}}).ok());
  ASSERT_TRUE(small.SaveWeights(prefix).ok());
  ExpectError(large.LoadWeights(prefix), kInvalid, {"kernel", "(4, 2)", "(4, 3)"});
  ExpectError(large.LoadWeights(prefix + "_none"), StatusCode::kNotFound, {"_none"});
}

}  // namespace
}  // namespace millrace
