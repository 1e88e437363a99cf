// SPDX-License-Identifier: Apache-2.0
// Numbers that options cannot have: what each struct of them says, and that what Keras takes is
// taken.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "millrace/optimizers.h"
#include "millrace/schedules.h"
#include "tests/fit/counting_model.h"
#include "tests/fit/small_models.h"

namespace millrace {
namespace {

using testing::Classifier;
using testing::Counted;
using testing::ExpectError;
using testing::Labels;
using testing::Numbers;
using testing::Ones;
using testing::Quietly;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr auto kInvalid = StatusCode::kInvalidArgument;

using Parts = std::vector<std::string>;

TEST(BadOptionsTest, CompileNamesTheOptionOfKerasOptimizer) {
  namespace keras = optimizers;
  const std::vector<std::pair<OptimizerSpec, Parts>> all = {
      {keras::Sgd({.learning_rate = kNan}), {"'sgd'", "learning_rate", "finite", "nan"}},
      {keras::Sgd({.learning_rate = kInf}), {"learning_rate", "finite", "inf"}},
      {keras::Sgd({.momentum = -0.1}), {"momentum", "from 0 to 1", "-0.1"}},
      {keras::Sgd({.momentum = 1.5}), {"momentum", "1.5"}},
      {keras::Sgd({.momentum = kNan}), {"momentum", "nan"}},
      {keras::RmsProp({.rho = 1.1}), {"rho", "1.1"}},
      {keras::RmsProp({.momentum = -1}), {"momentum", "at least 0"}},
      {keras::RmsProp({.epsilon = -1e-7}), {"epsilon", "at least 0"}},
      {keras::Adam({.beta_1 = 1}), {"'adam'", "beta_1", "at least 0 and below 1", "not 1"}},
      {keras::Adam({.beta_2 = 1}), {"beta_2"}},
      {keras::Adam({.beta_2 = -0.5}), {"beta_2", "-0.5"}},
      {keras::Adam({.epsilon = kNan}), {"epsilon"}},
      {keras::AdamW({.beta_1 = kNan}), {"'adam_w'", "beta_1"}},
      {keras::Adamax({.beta_1 = 1}), {"'adamax'", "beta_1"}},
      {keras::Nadam({.beta_2 = 2}), {"'nadam'", "beta_2"}},
      {keras::Lamb({.beta_1 = 1}), {"'lamb'", "beta_1"}},
      {keras::Adagrad({.initial_accumulator_value = -1}), {"initial_accumulator_value"}},
      {keras::Adadelta({.rho = -0.1}), {"'adadelta'", "rho"}},
      {keras::Adafactor({.beta_2_decay = 0.5}), {"beta_2_decay", "at most 0"}},
      {keras::Adafactor({.clip_threshold = 0}), {"clip_threshold", "above 0"}},
      {keras::Ftrl({.learning_rate = 0}), {"'ftrl'", "learning_rate", "above 0"}},
      {keras::Ftrl({.learning_rate_power = 0.5}), {"learning_rate_power", "at most 0"}},
      {keras::Ftrl({.l1_regularization_strength = -1}), {"l1_regularization_strength"}},
      {keras::Lion({.beta_1 = 0}), {"'lion'", "beta_1", "above 0"}},
      {keras::Muon({.exclude_layers = {"dense", "("}}), {"'muon'", "'('", "exclude_layers"}},
      {keras::Muon({.adam_beta_1 = 1}), {"adam_beta_1"}},
      {keras::Muon({.rms_rate = kNan}), {"rms_rate"}},
      {keras::ScheduleFreeAdamW({.beta_1 = 0}), {"beta_1", "above 0"}},
      {keras::ScheduleFreeAdamW({.warmup_steps = -1}), {"warmup_steps"}},
      {keras::Adam({.common = {.weight_decay = kNan}}), {"weight_decay"}},
      {keras::Adam({.common = {.clip_norm = -1}}), {"clip_norm", "at least 0", "-1"}},
      {keras::Adam({.common = {.global_clip_norm = kInf}}), {"global_clip_norm"}},
      {keras::Adam({.common = {.clip_value = kNan}}), {"clip_value"}},
      {keras::Adam({.common = {.use_ema = true, .ema_momentum = kNan}}), {"ema_momentum"}},
      {keras::Adam({.common = {.use_ema = true, .ema_overwrite_frequency = -1}}),
       {"ema_overwrite_frequency"}},
      {keras::Adam({.common = {.loss_scale_factor = 0}}), {"loss_scale_factor", "above 0"}},
      {keras::Adam({.common = {.gradient_accumulation_steps = -2}}),
       {"gradient_accumulation_steps"}},
  };
  Model model(std::make_shared<testing::Counter>());
  for (const auto& [optimizer, parts] : all) {
    SCOPED_TRACE(parts.back());
    ExpectError(model.Compile({.optimizer = optimizer, .loss = Counted()}), kInvalid, parts);
  }
}

TEST(BadOptionsTest, ExclusionsThatAreNoRegularExpressionsAreAnError) {
  std::unique_ptr<optimizers::KerasOptimizer> optimizer =
      optimizers::Adam({.common = {.weight_decay = 0.1}});
  optimizer->ExcludeFromWeightDecay({"bias", "[a"});
  Model model(std::make_shared<testing::Counter>());
  ExpectError(model.Compile({.optimizer = std::move(optimizer), .loss = Counted()}), kInvalid,
              {"'[a'", "ExcludeFromWeightDecay", "regular expression"});
}

TEST(BadOptionsTest, CompileNamesTheOptionOfAnOptimizerOfTheFirstKind) {
  const std::vector<std::pair<OptimizerSpec, Parts>> all = {
      {GradientDescent({.learning_rate = kNan}), {"'GradientDescent'", "learning_rate"}},
      {Momentum({.momentum = NAN}), {"momentum"}},
      {Adagrad({.initial_accumulator = 0}), {"initial_accumulator", "above 0"}},
      {AdagradDa({.l1 = -1}), {"l1"}},
      {Adadelta({.rho = 2}), {"rho"}},
      {RmsProp({.epsilon = -1}), {"epsilon"}},
      {Adam({.beta1 = 1}), {"'Adam'", "beta1"}},
      {Ftrl({.learning_rate = 0}), {"learning_rate", "above 0"}},
      {Ftrl({.l2 = -1}), {"l2"}},
      {ProximalGradientDescent({.l2 = NAN}), {"l2"}},
      {ProximalAdagrad({.initial_accumulator = -1}), {"initial_accumulator"}},
  };
  Model model(std::make_shared<testing::Counter>());
  for (const auto& [optimizer, parts] : all) {
    SCOPED_TRACE(parts.back());
    ExpectError(model.Compile({.optimizer = optimizer, .loss = Counted()}), kInvalid, parts);
  }
}

TEST(BadOptionsTest, WhatKerasTakesIsTaken) {
  namespace keras = optimizers;
  const std::vector<OptimizerSpec> all = {
      keras::Sgd({.learning_rate = 0}),
      keras::Sgd({.learning_rate = -0.1}),
      keras::Sgd({.momentum = 1}),
      keras::Adam({.beta_1 = 0, .beta_2 = 0}),
      keras::Adamax({.beta_2 = 1}),
      keras::RmsProp({.rho = 1, .momentum = 2}),
      keras::Lion({.beta_1 = 1}),
      keras::Adam({.common = {.weight_decay = -0.1, .clip_norm = 0}}),
  };
  for (const OptimizerSpec& optimizer : all) {
    Model model(std::make_shared<testing::Counter>());
    ASSERT_TRUE(model.Compile({.optimizer = optimizer, .loss = Counted()}).ok());
    const auto history = model.Fit(Ones(2), Ones(2), Quietly());
    EXPECT_TRUE(history.ok()) << history.status();
    const auto weights = model.GetWeights();
    ASSERT_TRUE(weights.ok());
    EXPECT_TRUE(std::isfinite((*weights)[0].scalar<float>()));
  }
}

TEST(BadOptionsTest, AFrequencyOfAveragesWithoutAveragesChangesNothing) {
  Model model(std::make_shared<testing::Counter>());
  ASSERT_TRUE(model
                  .Compile({.optimizer = optimizers::Sgd(
                                {.learning_rate = 1, .common = {.ema_overwrite_frequency = 5}}),
                            .loss = Counted()})
                  .ok());
  ASSERT_TRUE(model.Fit(Ones(3), Ones(3), Quietly({.batch_size = 1})).ok());
  const auto weights = model.GetWeights();
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)[0].scalar<float>(), 3.0f);
}

TEST(BadOptionsTest, ALossScaleNeedsAnOptimizerAndAScale) {
  const auto fit = [](std::unique_ptr<optimizers::KerasOptimizer> inner,
                      const optimizers::LossScaleOptions& options) {
    Model model(std::make_shared<testing::Counter>());
    EXPECT_TRUE(model
                    .Compile({.optimizer = std::make_unique<optimizers::LossScale>(std::move(inner),
                                                                                   options),
                              .loss = Counted()})
                    .ok());
    return model.Fit(Ones(2), Ones(2), Quietly()).status();
  };
  ExpectError(fit(nullptr, {}), kInvalid, {"LossScale needs an inner optimizer"});
  ExpectError(fit(optimizers::Sgd(), {.initial_scale = 0}), kInvalid, {"initial_scale", "above 0"});
  ExpectError(fit(optimizers::Sgd(), {.dynamic_growth_steps = 0}), kInvalid,
              {"dynamic_growth_steps", "not 0"});
  ExpectError(fit(optimizers::Sgd({.momentum = -1}), {}), kInvalid, {"'sgd'", "momentum"});
}

TEST(BadOptionsTest, SchedulesNameTheirOption) {
  using namespace schedules;  // NOLINT: a table of its functions
  const std::vector<std::pair<Schedule, Parts>> all = {
      {ExponentialDecay({.initial_learning_rate = 1, .decay_steps = 0}), {"decay_steps", "not 0"}},
      {ExponentialDecay({.initial_learning_rate = kNan, .decay_steps = 1}),
       {"ExponentialDecay", "initial_learning_rate"}},
      {ExponentialDecay({.initial_learning_rate = 1, .decay_steps = 2, .decay_rate = -0.5}),
       {"decay_rate", "-0.5"}},
      {InverseTimeDecay({.initial_learning_rate = 1, .decay_steps = 2, .decay_rate = -0.5}),
       {"InverseTimeDecay", "decay_rate"}},
      {PiecewiseConstantDecay({2, 1}, {1, 2, 3}), {"boundaries must ascend", "1 follows 2"}},
      {PiecewiseConstantDecay({1}, {1, kNan}), {"a value", "nan"}},
      {PolynomialDecay({.initial_learning_rate = 1, .decay_steps = 2, .power = -1}), {"power"}},
      {CosineDecay({.initial_learning_rate = 1, .decay_steps = kInf}), {"decay_steps", "inf"}},
      {CosineDecay({.initial_learning_rate = 1, .decay_steps = 2, .warmup_steps = -1}),
       {"warmup_steps"}},
      {CosineDecayRestarts({.initial_learning_rate = 1, .first_decay_steps = 2, .t_mul = 0.5}),
       {"t_mul", "at least 1"}},
      {LinearCosineDecay({.learning_rate = 1, .decay_steps = 2, .beta = kNan}), {"beta"}},
      {NoisyLinearCosineDecay(
           {.decay = {.learning_rate = 1, .decay_steps = 2}, .initial_variance = -1}),
       {"initial_variance"}},
  };
  for (const auto& [schedule, parts] : all) {
    Graph graph;
    schedule(graph.root(), Constant(graph.root(), Tensor::Scalar<int64_t>(0)));
    ExpectError(graph.status(), kInvalid, parts);
  }
}

// It was a rate of 0.
TEST(BadOptionsTest, AScheduleWithoutAFunctionIsNoRate) {
  Graph graph;
  const LearningRate rate{Schedule()};
  EXPECT_TRUE(rate.is_schedule());
  EXPECT_FALSE(rate.is_number());
  const Output step = Constant(graph.root(), Tensor::Scalar<int64_t>(3));
  EXPECT_FALSE(rate.At(graph.root(), step).valid());
  ExpectError(graph.status(), kInvalid, {"learning rate", "schedule without a function"});
}

TEST(BadOptionsTest, ARateIsOneNumber) {
  const std::vector<std::pair<std::function<LearningRate(const Scope&)>, Parts>> all = {
      {[](const Scope& s) { return Output(Constant(s, Tensor::FromValues<float>({1, 2}))); },
       {"learning rate", "[2]", "must be one number"}},
      {[](const Scope& s) { return Output(Constant(s, Tensor::String("0.1"))); },
       {"learning rate", "of type string"}},
      {[](const Scope&) {
         return Schedule([](const Scope& s, const Output&) -> Output {
           return Constant(s, Tensor::FromValues<float>({1, 2, 3}));
         });
       },
       {"learning rate", "[3]"}},
      {[](const Scope&) { return Schedule([](const Scope&, const Output&) { return Output(); }); },
       {"learning rate", "no output"}},
  };
  for (const auto& [make, parts] : all) {
    Graph graph;
    const Scope root = graph.root();
    const LearningRate rate = make(root);
    EXPECT_FALSE(rate.At(root, Constant(root, Tensor::Scalar<int64_t>(3))).valid());
    ExpectError(graph.status(), kInvalid, parts);
  }
  Graph graph;
  const LearningRate throws =
      Schedule([](const Scope&, const Output&) -> Output { throw std::runtime_error("no table"); });
  EXPECT_FALSE(throws.At(graph.root(), Constant(graph.root(), Tensor::Scalar<int64_t>(3))).valid());
  ExpectError(graph.status(), StatusCode::kInternal, {"no table", "schedule of the learning rate"});
}

TEST(BadOptionsTest, InitializersNameTheirOption) {
  using namespace initializers;  // NOLINT: a table of its functions
  const std::vector<std::pair<Initializer, Parts>> all = {
      {RandomNormal({.stddev = -1}), {"RandomNormal", "stddev", "-1"}},
      {TruncatedNormal({.mean = kNan}), {"TruncatedNormal", "mean"}},
      {RandomUniform({.maxval = kInf}), {"RandomUniform", "maxval"}},
      {VarianceScaling({.scale = kInf}), {"scale", "inf"}},
      {VarianceScaling({.scale = 0}), {"scale must be positive, not 0"}},
      {Orthogonal({.gain = kNan}), {"Orthogonal", "gain"}},
      {initializers::Identity(kNan), {"Identity", "gain"}},
      {v1::UniformUnitScaling(kNan), {"factor"}},
  };
  for (const auto& [initializer, parts] : all) {
    Graph graph;
    initializer(graph.root(), Shape({2, 2}));
    ExpectError(graph.status(), kInvalid, parts);
  }
}

TEST(BadOptionsTest, LossesNameTheirOption) {
  using namespace losses;  // NOLINT: a table of its functions
  const std::vector<std::pair<Loss, Parts>> all = {
      {Huber({.delta = -1}), {"loss 'huber_loss'", "delta"}},
      {BinaryCrossentropy({.label_smoothing = 1.5}), {"label_smoothing", "from 0 to 1"}},
      {CategoricalCrossentropy({.label_smoothing = kNan}), {"label_smoothing"}},
      {BinaryFocalCrossentropy({.gamma = -1}), {"gamma"}},
      {CategoricalFocalCrossentropy({.alpha = kInf}), {"alpha"}},
      {CategoricalGeneralizedCrossEntropy(0), {"q", "above 0"}},
      {CategoricalGeneralizedCrossEntropy(1), {"q", "below 1"}},
      {Tversky({.alpha = kNan}), {"alpha"}},
      {Circle({.margin = kNan}), {"margin"}},
      {Loss("mine", nullptr), {"loss 'mine': its function is null"}},
  };
  for (const auto& [loss, parts] : all) {
    Model model(layers::Sequential({layers::Dense(3)}));
    ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = loss}).ok());
    const Status status = model.Fit(Numbers(2, 4), Numbers(2, 3), Quietly()).status();
    ExpectError(status, kInvalid, parts);
    EXPECT_EQ(Message(status).find("of one shape"), std::string_view::npos) << status;
  }
}

TEST(BadOptionsTest, SmoothedLabelsOfUnknownClassesAreSmoothedByHowManyThereAre) {
  const auto loss = losses::CategoricalCrossentropy({.from_logits = false, .label_smoothing = 0.4});
  const auto value = [&](bool known) {
    Graph graph;
    const Scope s = graph.root();
    const PartialShape shape = known ? PartialShape({1, 2}) : PartialShape({-1, -1});
    const Output y = Placeholder(s, kFloat, shape), p = Placeholder(s, kFloat, shape);
    const Output computed = loss(s, y, p);
    auto session = Session::Create(graph);
    EXPECT_TRUE(session.ok()) << session.status();
    const auto result =
        session->Run({{y, Tensor::FromValues<float>({1, 0}, Shape({1, 2}))},
                      {p, Tensor::FromValues<float>({0.75f, 0.25f}, Shape({1, 2}))}},
                     {computed});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0].scalar<float>() : -1;
  };
  EXPECT_NEAR(value(true), -(0.8 * std::log(0.75) + 0.2 * std::log(0.25)), 1e-5);
  EXPECT_NEAR(value(false), value(true), 1e-6);
}

TEST(BadOptionsTest, MetricsNameTheirOption) {
  using namespace metrics;  // NOLINT: a table of its functions
  const std::vector<std::pair<Metric, Parts>> all = {
      {TruePositives({.thresholds = {0.5, 1.5}}),
       {"metric 'true_positives'", "a threshold", "1.5"}},
      {Precision({.top_k = 0}), {"top_k", "at least 1"}},
      {Recall({.class_id = -1}), {"class_id"}},
      {Auc({.num_thresholds = 1}), {"metric 'auc'", "num_thresholds", "at least 2"}},
      {Auc({.num_thresholds = -5}), {"num_thresholds"}},
      {Auc({.thresholds = {kNan}}), {"a threshold"}},
      {SensitivityAtSpecificity({.at_least = 2}), {"at_least"}},
      {PrecisionAtRecall({.num_thresholds = 0}), {"num_thresholds"}},
      {FBetaScore({.beta = 0}), {"beta", "above 0"}},
      {F1Score({.threshold = 2}), {"threshold", "at most 1"}},
      {MeanIoU({.num_classes = 0}), {"num_classes"}},
      {MeanIoU({.num_classes = 1 << 30}), {"num_classes"}},
      {IoU({.num_classes = 2, .target_class_ids = {2}}), {"target_class_ids"}},
      {TopKCategoricalAccuracy(0), {"metric 'top_k_categorical_accuracy'", "k must"}},
      {BinaryAccuracy(kNan), {"threshold"}},
      {R2Score({.num_regressors = -1}), {"num_regressors"}},
      {Metric("mine", {}), {"metric 'mine'", "null"}},
      {MeanOf("mine", nullptr), {"MeanOf is null"}},
  };
  for (const auto& [metric, parts] : all) {
    Model model(layers::Sequential({layers::Dense(3)}));
    ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse", .metrics = {metric}}).ok());
    const Status status = model.Fit(Numbers(2, 4), Numbers(2, 3), Quietly()).status();
    ExpectError(status, kInvalid, parts);
  }
}

TEST(BadOptionsTest, AnAucOfLabelsNeedsAColumnForEach) {
  Graph graph;
  metrics::Metric auc = metrics::Auc({.multi_label = true});
  auc.Update(graph.root(), {Constant(graph.root(), Tensor(kFloat, Shape({4}))),
                            Constant(graph.root(), Tensor(kFloat, Shape({4}))), Output()});
  ExpectError(graph.status(), kInvalid, {"metric 'auc'", "a column for each label", "[4]"});
}

struct BadLayer {
  std::shared_ptr<Layer> layer;
  PartialShape input;
  Parts parts;
};

TEST(BadOptionsTest, LayersNameTheirOption) {
  using namespace layers;  // NOLINT: a table of its functions
  const PartialShape row({-1, 4}), steps({-1, 3, 4}), image({-1, 6, 6, 2});
  constexpr int64_t kHuge = int64_t{1} << 40;
  std::vector<BadLayer> all;
  const auto add = [&](std::shared_ptr<Layer> layer, const PartialShape& input, Parts parts) {
    all.push_back({std::move(layer), input, std::move(parts)});
  };
  add(Dense(0), row, {"units must be positive, not 0"});
  add(Dense(std::numeric_limits<int64_t>::max()), row,
      {"layer 'dense'", "kernel", "[4,9223372036854775807]"});
  add(Dense(kHuge), row, {"layer 'dense'", "1099511627776"});
  add(Dropout(kNan), row, {"Dropout", "nan"});
  add(Dropout(1.5), row, {"Dropout", "1.5"});
  add(GaussianNoise(-1), row, {"GaussianNoise", "-1"});
  add(BatchNormalization({.momentum = 1.5}), row, {"momentum", "from 0 to 1", "1.5"});
  add(BatchNormalization({.epsilon = -1}), row, {"epsilon", "at least 0"});
  add(LayerNormalization({.epsilon = kNan}), row, {"epsilon"});
  add(LayerNormalization({.axes = {-1, -1}}), row, {"axes", "(-1, -1)"});
  add(LayerNormalization({.axes = {}}), row, {"axes"});
  add(GroupNormalization({.groups = 2, .epsilon = -1}), row, {"epsilon"});
  add(GroupNormalization({.groups = 3}), row, {"3 groups"});
  add(Relu({.max_value = -1}), row, {"ReLU", "max_value"});
  add(Relu({.negative_slope = -1}), row, {"negative_slope"});
  add(LeakyRelu(kNan), row, {"negative_slope"});
  add(Elu(kInf), row, {"alpha"});
  add(Masking(kNan), steps, {"mask_value"});
  add(RepeatVector(0), row, {"n must be", "not 0"});
  add(RepeatVector(-1), row, {"not -1"});
  add(Permute({0, 1}), steps, {"dims", "(0, 1)"});
  add(Permute({1, 1}), steps, {"dims", "(1, 1)"});
  add(Rescaling(kNan), row, {"scale"});
  add(Normalization({.mean = {0}, .variance = {-1}}), row, {"variance", "-1"});
  add(ActivityRegularization(-1, 0), row, {"l1", "-1"});
  add(Dense(2, {.kernel_regularizer = regularizers::L2(kNan)}), row, {"L2", "l2", "nan"});
  add(Embedding(0, 4), row, {"input_dim and output_dim", "0 and 4"});
  add(Conv2D(0, 3), image, {"filters", "0"});
  add(Conv2D(4, 3, {.strides = 0}), image, {"strides", "(0)"});
  add(Conv2D(4, kHuge), image, {"kernel_size", "1099511627776"});
  add(Conv2D(4, 9), image, {"layer 'conv2d'", "kernel_size (9, 9) does not fit into 6"});
  add(Conv1D(4, 3, {.dilation_rate = 2}), steps, {"dilation_rate 2 does not fit into 3"});
  add(Conv2DTranspose(-1, 3), image, {"filters must be positive, not -1"});
  add(DepthwiseConv2D(3, {.depth_multiplier = 0}), image, {"depth_multiplier must be positive"});
  add(MaxPooling2D(2, {.strides = Sizes(-1)}), image, {"strides", "-1"});
  add(MaxPooling2D(9), image, {"layer 'max_pooling2d'", "pool_size (9, 9) does not fit into 6"});
  add(Cropping2D(3), image, {"cropping", "leaves nothing", "6"});
  add(ZeroPadding2D(int64_t{1} << 33), image, {"8589934592"});
  add(UpSampling2D(0), image, {"size"});
  add(MultiHeadAttention(2, 4, {.value_dim = -1}), steps, {"value_dim"});
  add(Lstm(4, {.dropout = kNan}), steps, {"dropout", "nan"});
  for (BadLayer& bad : all) {
    SCOPED_TRACE(bad.parts.back());
    Model model(Sequential({bad.layer}));
    ExpectError(model.Build({{.shape = bad.input}}), kInvalid, bad.parts);
  }
}

TEST(BadOptionsTest, ConstraintsNameTheirOption) {
  const std::vector<std::pair<Constraint, Parts>> all = {
      {constraints::MaxNorm(-1), {"MaxNorm", "max_value"}},
      {constraints::MinMaxNorm({.min_value = 2, .max_value = 1}), {"max_value", "at least 2"}},
      {constraints::MinMaxNorm({.rate = kNan}), {"rate"}},
  };
  for (const auto& [constraint, parts] : all) {
    Model model(layers::Sequential({layers::Dense(1, {.kernel_constraint = constraint})}));
    ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
    ExpectError(model.Fit(Numbers(2, 4), Numbers(2, 1), Quietly()).status(), kInvalid, parts);
  }
}

TEST(BadOptionsTest, OneRowIsAtRightAnglesToNothing) {
  Model model(
      layers::Sequential({layers::Dense(3, {.kernel_regularizer = regularizers::Orthogonal(1)})}));
  ASSERT_TRUE(model.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
  const auto history = model.Fit(Numbers(2, 1), Numbers(2, 3), Quietly());
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_TRUE(std::isfinite(history->values("loss")[0]));
}

TEST(BadOptionsTest, CallbacksNameTheirOption) {
  const auto model = testing::CountingModel(1.0, Counted());
  const auto fit = [&](Callback& callback) {
    return model->Fit(Ones(2), Ones(2), Quietly({.callbacks = {&callback}})).status();
  };
  EarlyStopping patience({.monitor = "loss", .patience = -1}), delta({.min_delta = kNan}),
      start({.start_from_epoch = -1}), baseline({.monitor = "loss", .baseline = kNan}),
      unknown({.monitor = "no_such_metric"});
  ExpectError(fit(patience), kInvalid, {"callback EarlyStopping", "patience", "-1"});
  ExpectError(fit(delta), kInvalid, {"min_delta"});
  ExpectError(fit(start), kInvalid, {"start_from_epoch"});
  ExpectError(fit(baseline), kInvalid, {"baseline"});
  ExpectError(fit(unknown), kInvalid, {"'no_such_metric'", "no metric of that name"});
  ReduceLrOnPlateau factor({.factor = -1}), high({.factor = 1}), waits({.patience = -1}),
      cooldown({.cooldown = -1}), least({.min_learning_rate = kNan});
  ExpectError(fit(factor), kInvalid, {"callback ReduceLrOnPlateau", "factor", "-1"});
  ExpectError(fit(high), kInvalid, {"factor must be below 1"});
  ExpectError(fit(waits), kInvalid, {"patience"});
  ExpectError(fit(cooldown), kInvalid, {"cooldown"});
  ExpectError(fit(least), kInvalid, {"min_learning_rate"});
  LearningRateScheduler null(nullptr), wild([](int64_t, double) { return kNan; });
  ExpectError(fit(null), kInvalid, {"callback LearningRateScheduler", "null"});
  ExpectError(fit(wild), kInvalid, {"finite number, not nan"});
}

TEST(BadOptionsTest, ALeastChangeHasNoSign) {
  const auto model = testing::CountingModel(1.0, testing::Scripted());
  // 1, then 0.9 and 0.8: no change of more than 0.5.
  EarlyStopping stop({.monitor = "loss", .min_delta = -0.5, .patience = 1});
  LambdaCallback script({.on_epoch_end = [](int64_t epoch, Logs& logs) {
    logs.Set("loss", 1 - 0.1 * static_cast<double>(epoch));
    return OkStatus();
  }});
  const auto history =
      model->Fit(Ones(1), Ones(1), Quietly({.epochs = 5, .callbacks = {&script, &stop}}));
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(stop.stopped_epoch(), 1);
}

}  // namespace
}  // namespace millrace
