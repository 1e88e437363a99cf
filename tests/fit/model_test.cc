// SPDX-License-Identifier: Apache-2.0
// What a model does that Keras' histories say nothing of.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/fit/counting_model.h"
#include "tests/fit/small_models.h"

namespace millrace {
namespace {

using testing::Classifier;
using testing::Column;
using testing::Counted;
using testing::CountingModel;
using testing::Labels;
using testing::Numbers;
using testing::Ones;
using testing::Quietly;

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

// Keras keeps the rows for validation back first.
TEST(ModelTest, StepsOfAnEpochShareTheRowsThatAreTrainedOn) {
  const auto steps_of = [](const FitOptions& given) {
    int64_t steps = 0;
    LambdaCallback count({.on_train_batch_end = [&](int64_t, const Logs&) {
      ++steps;
      return OkStatus();
    }});
    FitOptions options = Quietly(given);
    options.callbacks = {&count};
    const auto history = Classifier(2)->Fit(Numbers(100, 3), Labels(100, 2), options);
    EXPECT_TRUE(history.ok()) << history.status();
    return steps;
  };
  EXPECT_EQ(steps_of({.steps_per_epoch = 10, .validation_split = 0.2}), 10);
  // More than there are rows: each is a batch, and the epoch ends with them.
  EXPECT_EQ(steps_of({.steps_per_epoch = std::numeric_limits<int64_t>::max()}), 100);
}

}  // namespace
}  // namespace millrace
