// What a model does that Keras' histories say nothing of.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/fit/counting_model.h"

namespace millrace {
namespace {

using testing::Column;
using testing::Counted;
using testing::CountingModel;
using testing::Ones;

FitOptions Quietly(FitOptions options = {}) {
  options.verbose = Verbose::kSilent;
  return options;
}

std::unique_ptr<Model> Classifier(int64_t classes, uint64_t seed = 7) {
  auto model = std::make_unique<Model>(layers::Sequential(
      {layers::Dense(
           8, {.activation = "relu", .kernel_initializer = initializers::GlorotUniform(seed)}),
       layers::Dense(classes, {.activation = "softmax",
                               .kernel_initializer = initializers::GlorotUniform(seed + 1)})}));
  EXPECT_TRUE(model
                  ->Compile({.optimizer = "adam",
                             .loss = "sparse_categorical_crossentropy",
                             .metrics = {"accuracy"}})
                  .ok());
  return model;
}

Tensor Numbers(int64_t rows, int64_t columns) {
  Tensor x(kFloat, Shape({rows, columns}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 101.0f;
  }
  return x;
}

Tensor Labels(int64_t rows, int64_t classes) {
  Tensor y(kInt64, Shape({rows}));
  for (int64_t i = 0; i < rows; ++i) y.data<int64_t>()[i] = i % classes;
  return y;
}

void ExpectError(const Status& status, StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_NE(Message(status).find(part), std::string_view::npos)
        << "no '" << part << "' in: " << status;
  }
}

TEST(ModelTest, ShufflesTheSameWayInEveryRun) {
  std::vector<double> losses[3];
  for (int i = 0; i < 3; ++i) {
    const auto model = Classifier(3);
    const auto history = model->Fit(Numbers(50, 4), Labels(50, 3),
                                    Quietly({.batch_size = 8, .epochs = 3, .shuffle = i < 2}));
    ASSERT_TRUE(history.ok()) << history.status();
    losses[i] = history->values("loss");
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
}

// The first layer's kernel as it begins.
std::vector<float> InitialKernel(int64_t seed) {
  Model model(layers::Sequential({layers::Dense(8), layers::Dense(8)}), {.seed = seed});
  EXPECT_TRUE(model.Build({{.shape = PartialShape({-1, 8})}}).ok());
  const auto weights = model.GetWeights();
  EXPECT_TRUE(weights.ok()) << weights.status();
  if (!weights.ok()) return {};
  const auto first = (*weights)[0].flat<float>(), second = (*weights)[2].flat<float>();
  EXPECT_FALSE(std::equal(first.begin(), first.end(), second.begin())) << "the layers are alike";
  return std::vector<float>(first.begin(), first.end());
}

TEST(ModelTest, BeginsWithTheWeightsOfItsSeed) {
  const std::vector<float> five = InitialKernel(5);
  EXPECT_EQ(five, InitialKernel(5));
  EXPECT_NE(five, InitialKernel(6));
  EXPECT_NE(InitialKernel(0), InitialKernel(0));
}

TEST(ModelTest, TrainsInTwoHalvesAsInOneRun) {
  const auto whole = Classifier(3), halves = Classifier(3);
  const Tensor x = Numbers(50, 4), y = Labels(50, 3);
  const auto all = whole->Fit(x, y, Quietly({.batch_size = 8, .epochs = 4}));
  const auto first = halves->Fit(x, y, Quietly({.batch_size = 8, .epochs = 2}));
  const auto second =
      halves->Fit(x, y, Quietly({.batch_size = 8, .epochs = 4, .initial_epoch = 2}));
  ASSERT_TRUE(all.ok() && first.ok() && second.ok()) << second.status();
  EXPECT_EQ(all->values("loss")[2], second->values("loss")[0]);
  EXPECT_EQ(all->values("loss")[3], second->values("loss")[1]);
}

TEST(ModelTest, RowsOfPredictionsAreThoseOfTheInput) {
  const auto model = Classifier(3);
  const Tensor x = Numbers(50, 4);
  const auto whole = model->PredictOnBatch(x);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (const int64_t batch_size : {1, 7, 49, 50, 64}) {
    const auto parts = model->Predict(x, {.batch_size = batch_size});
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->shape(), whole->shape());
    for (int64_t i = 0; i < whole->num_elements(); ++i) {
      EXPECT_NEAR(parts->data<float>()[i], whole->data<float>()[i], 1e-6) << i;
    }
  }
}

TEST(ModelTest, SeesTheSameStepsHoweverManyAreOneExecution) {
  std::vector<double> losses[2];
  std::vector<int64_t> ends;
  for (int i = 0; i < 2; ++i) {
    const auto model = Classifier(3);
    ASSERT_TRUE(model
                    ->Compile({.optimizer = "sgd",
                               .loss = "sparse_categorical_crossentropy",
                               .steps_per_execution = i == 0 ? 1 : 3})
                    .ok());
    LambdaCallback record({.on_train_batch_end = [&](int64_t batch, const Logs&) {
      if (i == 1) ends.push_back(batch);
      return OkStatus();
    }});
    const auto history =
        model->Fit(Numbers(50, 4), Labels(50, 3),
                   Quietly({.batch_size = 8, .epochs = 2, .callbacks = {&record}}));
    ASSERT_TRUE(history.ok()) << history.status();
    losses[i] = history->values("loss");
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(ends, (std::vector<int64_t>{2, 5, 6, 2, 5, 6}));
}

TEST(ModelTest, TakesDoublesAsFloats) {
  const auto model = CountingModel(1.0, Counted());
  Tensor x(kDouble, Shape({4, 1}));
  for (int i = 0; i < 4; ++i) x.data<double>()[i] = i;
  const auto history = model->Fit(x, Ones(4), Quietly());
  EXPECT_TRUE(history.ok()) << history.status();
}

TEST(ModelTest, BeginsAnewWithAnotherOptimizerAndTheSameWeights) {
  const auto model = CountingModel(1.0, Counted());
  ASSERT_TRUE(model->Fit(Ones(4), Ones(4), Quietly({.batch_size = 2})).ok());
  ASSERT_TRUE(
      model->Compile({.optimizer = optimizers::Sgd({.learning_rate = 10}), .loss = Counted()})
          .ok());
  ASSERT_TRUE(model->Fit(Ones(4), Ones(4), Quietly({.batch_size = 2})).ok());
  const auto weights = model->GetWeights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)[0].scalar<float>(), 22.0f);
}

TEST(ModelTest, WeightsOfEarlierStepsStayWhatTheyWere) {
  const auto model = CountingModel(1.0, Counted());
  ASSERT_TRUE(model->Fit(Ones(2), Ones(2), Quietly()).ok());
  const auto before = model->GetWeights();
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(model->Fit(Ones(2), Ones(2), Quietly()).ok());
  EXPECT_EQ((*before)[0].scalar<float>(), 1.0f);
}

TEST(ModelTest, WritesOneLineForEachEpochIntoAPipe) {
  const auto model = CountingModel(1.0, Counted(), {"mae"});
  std::ostringstream out;
  ProgressBar bar({.verbose = Verbose::kLines, .out = &out});
  ASSERT_TRUE(
      model->Fit(Ones(4), Ones(4), {.batch_size = 2, .epochs = 2, .callbacks = {&bar}}).ok());
  const std::string text = out.str();
  EXPECT_EQ(text.substr(0, 16), "Epoch 1/2\n2/2 - ") << text;
  EXPECT_NE(text.find("/step - loss: "), std::string::npos) << text;
  EXPECT_NE(text.find(" - mae: "), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
}

TEST(ModelTest, DrawsABarThatCountsSteps) {
  const auto model = CountingModel(1.0, Counted());
  std::ostringstream out;
  ProgressBar bar({.verbose = Verbose::kBar, .out = &out});
  ASSERT_TRUE(model->Fit(Ones(4), Ones(4), {.batch_size = 2, .callbacks = {&bar}}).ok());
  EXPECT_NE(out.str().find("\r2/2 ━━━━━━━━━━━━━━━━━━━━ "), std::string::npos) << out.str();
}

TEST(ModelTest, HistoryIsATableAndCsvAndJson) {
  History history;
  history.Add(0, {{"loss", 0.5}});
  history.Add(1, {{"loss", 0.25}, {"val_loss", 1}});
  EXPECT_EQ(history.ToCsv(), "epoch,loss,val_loss\n0,0.5,\n1,0.25,1.0\n");
  EXPECT_EQ(history.ToJson(),
            "{\"epoch\": [0, 1], \"loss\": [0.5, 0.25], \"val_loss\": [null, 1.0]}\n");
  EXPECT_EQ(history.ToTable(),
            "epoch    loss  val_loss\n    1  0.5000          \n    2  0.2500    1.0000\n");
}

TEST(ModelTest, EarlyStoppingGoesOnFromItsState) {
  const std::vector<double> values = {0.5, 0.6, 0.7, 0.8};
  const auto run = [&](EarlyStopping& stopping, int64_t first, int64_t last) {
    const auto model = CountingModel(1.0, Counted());
    LambdaCallback script({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
      logs.Set("loss", values[epoch]);
      return OkStatus();
    }});
    const auto history = model->Fit(
        Ones(2), Ones(2),
        Quietly({.epochs = last, .initial_epoch = first, .callbacks = {&script, &stopping}}));
    EXPECT_TRUE(history.ok()) << history.status();
    return static_cast<int64_t>(history->epochs().size());
  };
  EarlyStopping before({.monitor = "loss", .patience = 3});
  EXPECT_EQ(run(before, 0, 2), 2);
  EarlyStopping after({.monitor = "loss", .patience = 3});
  ASSERT_TRUE(after.SetState(before.State()).ok());
  EXPECT_EQ(run(after, 2, 4), 2);
  EXPECT_EQ(after.best_epoch(), 0);
  EXPECT_EQ(after.stopped_epoch(), 3);
}

// ---- What beginners get wrong -----------------------------------------------------

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

}  // namespace
}  // namespace millrace
