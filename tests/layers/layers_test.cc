// SPDX-License-Identifier: Apache-2.0
// How layers are named, shared, trained, summed up, and what they say of mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/monitored_session.h"
#include "millrace/sparse_gradients.h"
#include "tests/layers/layer_of.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace L = layers;

std::vector<std::string> NamesOf(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  for (const Variable& v : variables) names.push_back(v.name());
  return names;
}

Tensor Floats(const std::vector<float>& values, const Shape& shape) {
  return Tensor::FromValues<float>(std::span<const float>(values), shape);
}

class LayersTest : public ::testing::Test {
 protected:
  Output Input(const PartialShape& shape, DataType dtype = kFloat) {
    return Placeholder(root_, dtype, shape);
  }
  std::string error() const { return graph_.status().ToString(); }
  // A session whose variables have their initial values.
  std::unique_ptr<Session> Start() {
    const Operation init = InitializeVariables(root_);
    EXPECT_TRUE(graph_.status().ok()) << error();
    auto session = Session::Create(graph_);
    if (!session.ok()) {
      ADD_FAILURE() << session.status().ToString();
      return nullptr;
    }
    auto started = std::make_unique<Session>(*std::move(session));
    EXPECT_TRUE(started->RunTargets({init}).ok());
    return started;
  }
  static std::vector<double> Values(const StatusOr<Tensor>& tensor) {
    EXPECT_TRUE(tensor.ok()) << tensor.status().ToString();
    return tensor.ok() ? ValuesOf(*tensor) : std::vector<double>();
  }

  Graph graph_;
  const Scope root_ = graph_.root();
};

std::unique_ptr<Layer> Digits() {
  return L::Sequential({L::Conv2D(32, 3, {.activation = "relu"}), L::Flatten(),
                        L::Dense(128, {.activation = "relu"}), L::Dense(10)});
}

TEST_F(LayersTest, AModelNamesItsLayersByTheirKinds) {
  const auto model = Digits();
  Pass pass(root_, false);
  const Output y = (*model)(pass, Input({-1, 28, 28, 1}));
  EXPECT_EQ(error(), "OK");
  EXPECT_EQ(y.shape().DebugString(), "[?,10]");
  EXPECT_THAT(
      NamesOf(model->weights()),
      ElementsAre("sequential/conv2d/kernel", "sequential/conv2d/bias", "sequential/dense/kernel",
                  "sequential/dense/bias", "sequential/dense_1/kernel", "sequential/dense_1/bias"));
  EXPECT_EQ(model->CountParams(), 2770634);
}

TEST_F(LayersTest, AGivenNameIsNotGivenAgain) {
  const auto model = L::Sequential({L::Dense(2), L::Dense(2, {.name = "dense"}), L::Dense(2)}, "m");
  EXPECT_EQ(model->layers()[0]->name(), "dense_1");
  EXPECT_EQ(model->layers()[2]->name(), "dense_2");
}

TEST_F(LayersTest, KindsBecomeNamesAsInKeras) {
  const auto model =
      L::Sequential({L::MaxPooling2D(), L::SimpleRnn(2), L::Lstm(2), L::Prelu(), L::Relu(),
                     L::Conv2DTranspose(1, 1), L::MultiHeadAttention(1, 1)});
  std::vector<std::string> names;
  for (const Layer* layer : model->layers()) names.push_back(layer->name());
  EXPECT_THAT(names, ElementsAre("max_pooling2d", "simple_rnn", "lstm", "p_re_lu", "re_lu",
                                 "conv2d_transpose", "multi_head_attention"));
}

TEST_F(LayersTest, TwoLayersOfOneNameAreAnError) {
  const auto model = L::Sequential({L::Dense(2, {.name = "d"}), L::Dense(2, {.name = "d"})}, "m");
  Pass pass(root_, false);
  (*model)(pass, Input({-1, 3}));
  EXPECT_THAT(error(), HasSubstr("two layers of one name"));
}

TEST_F(LayersTest, PassesShareVariables) {
  const auto model = L::Sequential({L::Dense(4), L::BatchNormalization(), L::Dropout(0.5)});
  const Output x = Input({-1, 3});
  Pass train(root_.Named("train"), root_, true), predict(root_.Named("predict"), root_, false);
  (*model)(train, x);
  const std::size_t nodes = Variables(root_).size();
  (*model)(predict, x);
  EXPECT_EQ(error(), "OK");
  EXPECT_EQ(Variables(root_).size(), nodes);
  EXPECT_THAT(
      NamesOf(model->trainable_weights()),
      ElementsAre("sequential/dense/kernel", "sequential/dense/bias",
                  "sequential/batch_normalization/gamma", "sequential/batch_normalization/beta"));
  EXPECT_THAT(NamesOf(model->non_trainable_weights()),
              ElementsAre("sequential/batch_normalization/moving_mean",
                          "sequential/batch_normalization/moving_variance"));
  EXPECT_EQ(model->variables().size(), 7u);  // and the seed
  EXPECT_EQ(train.updates().size(), 2u);
  EXPECT_EQ(predict.updates().size(), 0u);
}

TEST_F(LayersTest, ALayerThatStandsTwiceHasItsWeightsOnce) {
  std::shared_ptr<Layer> shared = L::Dense(3, {.kernel_regularizer = regularizers::L2(1)});
  const auto model = L::Sequential({shared, shared});
  Pass pass(root_, true);
  (*model)(pass, Input({-1, 3}));
  EXPECT_EQ(error(), "OK");
  EXPECT_EQ(model->weights().size(), 2u);
  EXPECT_EQ(pass.losses().size(), 1u);
}

TEST_F(LayersTest, WhatIsNotTrainableIsNotTrainedNorMoved) {
  std::shared_ptr<Layer> inner = L::Sequential(
      {L::Dense(3, {.kernel_regularizer = regularizers::L2(1)}), L::BatchNormalization()}, "inner");
  inner->set_trainable(false);
  const auto model = L::Sequential({inner, L::Dense(2)}, "m");
  Pass pass(root_, true);
  (*model)(pass, Input({-1, 3}));
  EXPECT_EQ(error(), "OK");
  EXPECT_THAT(NamesOf(model->trainable_weights()), ElementsAre("m/dense/kernel", "m/dense/bias"));
  EXPECT_EQ(Variables(root_, kTrainableVariables).size(), 2u);
  EXPECT_EQ(model->non_trainable_weights().size(), 6u);
  EXPECT_TRUE(pass.updates().empty());
  EXPECT_TRUE(pass.losses().empty());
}

TEST_F(LayersTest, ALayerBelongsToItsFirstGraph) {
  const auto dense = L::Dense(2);
  Pass pass(root_, false);
  (*dense)(pass, Input({-1, 3}));
  Graph other;
  Pass elsewhere(other.root(), false);
  (*dense)(elsewhere, Placeholder(other.root(), kFloat, {-1, 3}));
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(error(), "OK");
}

TEST_F(LayersTest, AnUnknownRankIsToldWithBothLayersAndLines) {
  const auto model =
      L::Sequential({L::Dense(5, {.name = "first"}), L::Conv2D(2, 3, {.name = "second"})}, "m");
  Pass pass(root_, false);
  (*model)(pass, Input({-1, 3}));
  EXPECT_EQ(graph_.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(error(), HasSubstr("layer 'second' (Conv2D, made at layers_test.cc:"));
  EXPECT_THAT(error(), HasSubstr("takes an input of rank 4, not [?,5], which layer 'first' (Dense, "
                                 "made at layers_test.cc:"));
  EXPECT_THAT(error(), HasSubstr("(at layers_test.cc:"));
}

TEST_F(LayersTest, ALaterInputOfOtherFeaturesIsAnError) {
  const auto dense = L::Dense(2, {.name = "d"});
  Pass pass(root_, false);
  (*dense)(pass, Input({-1, 3}));
  (*dense)(pass, Input({-1, 4}));
  EXPECT_THAT(error(), HasSubstr("needs a kernel of shape [4,2] for this input, and has one of "
                                 "shape [3,2]"));
}

TEST_F(LayersTest, UnknownActivationsListThoseThatThereAre) {
  const auto dense = L::Dense(2, {.activation = "rleu"});
  Pass pass(root_, false);
  (*dense)(pass, Input({-1, 3}));
  EXPECT_THAT(error(), HasSubstr("there is no activation 'rleu': use one of celu, elu"));
}

TEST_F(LayersTest, BadOptionsAreErrorsOfTheCall) {
  Pass pass(root_, true);
  (*L::Dropout(1.5))(pass, Input({-1, 3}));
  EXPECT_THAT(error(), HasSubstr("a rate or deviation lies between 0 and 1, and is not 1.5"));
}

TEST_F(LayersTest, FunctionsOfOtherLayersBranchAndMerge) {
  std::shared_ptr<Layer> left = L::Dense(4), right = L::Dense(4), sum = L::Add();
  const auto model =
      L::Functional({left, right, sum}, [=](Pass& pass, std::span<const Output> inputs) {
        return (*sum)(pass, {(*left)(pass, inputs[0]), (*right)(pass, inputs[1])});
      });
  Pass pass(root_, false);
  const Output y = (*model)(pass, {Input({-1, 3}), Input({-1, 2})});
  EXPECT_EQ(error(), "OK");
  EXPECT_EQ(y.shape().DebugString(), "[?,4]");
  EXPECT_THAT(NamesOf(model->weights()),
              ElementsAre("functional/dense/kernel", "functional/dense/bias",
                          "functional/dense_1/kernel", "functional/dense_1/bias"));
}

TEST_F(LayersTest, RegularizersAreLossesOfAPass) {
  const auto dense = L::Dense(2, {.kernel_initializer = initializers::Constant(3),
                                  .kernel_regularizer = regularizers::L1L2(0.5, 0.25),
                                  .activity_regularizer = regularizers::L2(0.1)});
  Pass pass(root_, true);
  const Output x = Input({-1, 1});
  (*dense)(pass, x);
  const auto session = Start();
  ASSERT_EQ(pass.losses().size(), 2u);
  auto losses = session->Run({{x, Tensor::FromValues<float>({1, 2}, Shape({2, 1}))}},
                             {pass.losses()[0], pass.losses()[1]});
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_FLOAT_EQ(*(*losses)[0].data<float>(), 0.5f * 6 + 0.25f * 18);
  // Two samples of two values each, 3 and 6.
  EXPECT_FLOAT_EQ(*(*losses)[1].data<float>(), 0.1f * (2 * 9 + 2 * 36) / 2);
}

TEST_F(LayersTest, ConstraintsBringWeightsBack) {
  const auto dense = L::Dense(1, {.kernel_initializer = initializers::Constant(3),
                                  .kernel_constraint = constraints::MaxNorm(1),
                                  .bias_constraint = constraints::NonNeg()});
  Pass pass(root_, true);
  (*dense)(pass, Input({-1, 4}));
  const Operation constrain = dense->ApplyConstraints(root_);
  const auto session = Start();
  const Operation negative = Assign(root_, dense->weights()[1], {-2.0f});
  ASSERT_TRUE(session->RunTargets({negative}).ok());
  ASSERT_TRUE(session->RunTargets({constrain}).ok());
  for (const double w : Values(session->Eval(dense->weights()[0].read))) EXPECT_NEAR(w, 0.5, 1e-5);
  EXPECT_THAT(Values(session->Eval(dense->weights()[1].read)), ElementsAre(0));
}

TEST_F(LayersTest, DropoutDropsItsShareAnewInEachStep) {
  const auto dropout = L::Dropout(0.25, {.seed = 1});
  Pass pass(root_, true);
  const Output x = Constant(root_, Floats(std::vector<float>(4000, 1.0f), Shape({4000})));
  const Output y = (*dropout)(pass, x);
  const auto session = Start();
  const std::vector<double> first = Values(session->Eval(y)), second = Values(session->Eval(y));
  int zeros = 0;
  double sum = 0;
  for (const double v : first) {
    zeros += v == 0;
    sum += v;
  }
  EXPECT_NEAR(zeros / 4000.0, 0.25, 0.03);
  EXPECT_NEAR(sum / 4000, 1, 0.05);
  EXPECT_NE(first, second);
}

TEST_F(LayersTest, WholeFeaturesAreDroppedFromSequences) {
  const auto dropout = L::SpatialDropout1D(0.5, {.seed = 3});
  Pass pass(root_, true);
  const Output x = Constant(root_, Floats(std::vector<float>(2 * 5 * 40, 1.0f), Shape({2, 5, 40})));
  const Output y = (*dropout)(pass, x);
  const auto session = Start();
  const std::vector<double> values = Values(session->Eval(y));
  ASSERT_EQ(values.size(), 400u);
  for (int b = 0; b < 2; ++b) {
    for (int t = 1; t < 5; ++t) {
      for (int f = 0; f < 40; ++f) {
        EXPECT_EQ(values[(b * 5 + t) * 40 + f], values[b * 5 * 40 + f]);
      }
    }
  }
}

TEST_F(LayersTest, GaussianNoiseHasItsDeviation) {
  const auto noise = L::GaussianNoise(0.5, {.seed = 2});
  Pass pass(root_, true), predict(root_, false);
  const Output x = Constant(root_, Floats(std::vector<float>(4000, 1.0f), Shape({4000})));
  const Output y = (*noise)(pass, x), same = (*noise)(predict, x);
  const auto session = Start();
  double sum = 0, squares = 0;
  for (const double v : Values(session->Eval(y))) {
    sum += v;
    squares += (v - 1) * (v - 1);
  }
  EXPECT_NEAR(sum / 4000, 1, 0.05);
  EXPECT_NEAR(std::sqrt(squares / 4000), 0.5, 0.03);
  EXPECT_EQ(Values(session->Eval(same))[0], 1);
}

TEST_F(LayersTest, GradientsOfEmbeddingsAreTheRowsTaken) {
  const auto embedding = L::Embedding(1000, 4);
  Pass pass(root_, true);
  const Output y = (*embedding)(pass, Input({-1, 3}, kInt32));
  const Output loss[] = {ReduceSum(root_, y)};
  const Output table[] = {embedding->weights()[0].read};
  auto gradients = SparseGradients(root_, loss, table);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_TRUE((*gradients)[0].is_sparse());
}

// In 32 bits the numbers would be those of other rows.
TEST_F(LayersTest, EmbeddingsTakeNumbersOfEveryType) {
  const auto embedding = L::Embedding(9, 2);
  Pass pass(root_, false);
  const std::vector<DataType> types = {kUint8, kInt64, kUint32, kUint64, kFloat, kDouble};
  std::vector<Output> ids, rows;
  for (const DataType type : types) {
    ids.push_back(Placeholder(root_, kInt64, PartialShape({1})));
    rows.push_back((*embedding)(pass, ops::Cast(root_, ids.back(), type)));
  }
  const auto session = Start();
  const auto look_up = [&](std::size_t i, int64_t id) {
    const Feed feed[] = {{ids[i], Tensor::FromValues<int64_t>({id})}};
    return session->Run(feed, std::span(&rows[i], 1));
  };
  const auto wanted = session->Eval(embedding->weights()[0].read);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto row = look_up(i, 3);
    ASSERT_TRUE(row.ok()) << DataTypeName(types[i]) << ": " << row.status();
    EXPECT_TRUE(TensorsEqual((*row)[0], wanted->Slice(3, 4))) << DataTypeName(types[i]);
  }
  for (const std::size_t i : {1, 3, 5}) {
    const Status refused = look_up(i, (int64_t{1} << 32) + 3).status();
    EXPECT_TRUE(errors::IsInvalidArgument(refused)) << DataTypeName(types[i]) << ": " << refused;
    EXPECT_NE(refused.ToString().find("4294967299"), std::string::npos) << refused;
  }
  EXPECT_FALSE(look_up(3, -1).ok()) << "2^64 - 1";
}

TEST_F(LayersTest, StatefulLayersBeginWhereTheBatchBeforeEnded) {
  const auto whole = L::Lstm(3, {.return_sequences = true, .name = "a"});
  const auto parts = L::Lstm(3, {.return_sequences = true, .stateful = true, .name = "b"});
  Pass pass(root_, false), later(root_, false);
  const Output x = Input({2, 4, 2}), half = Input({2, 2, 2});
  const Output all = (*whole)(pass, x), part = (*parts)(later, half);
  const Operation reset = parts->ResetStates(root_);
  const auto session = Start();
  for (int i = 0; i < 3; ++i) {
    auto value = session->Eval(whole->weights()[i].read);
    ASSERT_TRUE(value.ok());
    ASSERT_TRUE(SetValue(root_, *session, parts->weights()[i], *value).ok());
  }
  std::vector<float> numbers;
  for (int i = 0; i < 16; ++i) numbers.push_back(std::sin(static_cast<float>(i)));
  auto want = session->Run({{x, Floats(numbers, Shape({2, 4, 2}))}}, {all});
  ASSERT_TRUE(want.ok()) << want.status();
  const float* w = (*want)[0].data<float>();
  for (int round = 0; round < 2; ++round) {
    for (int first = 0; first < 4; first += 2) {
      std::vector<float> now;
      for (int b = 0; b < 2; ++b) {
        for (int k = 0; k < 4; ++k) now.push_back(numbers[b * 8 + first * 2 + k]);
      }
      const Feed feeds[] = {{half, Floats(now, Shape({2, 2, 2}))}};
      const Output fetches[] = {part};
      auto got = session->Run(feeds, fetches, later.updates());
      ASSERT_TRUE(got.ok()) << got.status();
      const float* g = (*got)[0].data<float>();
      for (int b = 0; b < 2; ++b) {
        for (int k = 0; k < 6; ++k) {
          EXPECT_NEAR(g[b * 6 + k], w[b * 12 + first * 3 + k], 1e-6) << round << " " << first;
        }
      }
    }
    ASSERT_TRUE(session->RunTargets({reset}).ok());
  }
}

TEST_F(LayersTest, MasksGoThroughLayersUpToTheLoss) {
  const auto model = L::Sequential({L::Embedding(9, 4, {.mask_zero = true}),
                                    L::Lstm(3, {.return_sequences = true}), L::Dense(2)});
  Pass pass(root_, false);
  const Output y = (*model)(pass, Input({-1, 5}, kInt32));
  EXPECT_TRUE(pass.mask().valid());
  EXPECT_TRUE(pass.MaskOf(y) == pass.mask());
  const auto last = L::Gru(2);
  (*last)(pass, y);
  EXPECT_FALSE(pass.mask().valid());
}

TEST_F(LayersTest, DropoutOfRecurrentLayersIsForTrainingAlone) {
  for (const bool training : {false, true}) {
    const auto lstm = L::Lstm(3, {.dropout = 0.5, .recurrent_dropout = 0.5, .seed = 4});
    Pass pass(root_, training);
    const Output y =
        (*lstm)(pass, Constant(root_, Floats(std::vector<float>(24, 1.0f), Shape({2, 4, 3}))));
    const auto session = Start();
    EXPECT_EQ(Values(session->Eval(y)) == Values(session->Eval(y)), !training);
  }
}

TEST_F(LayersTest, SummariesAreTablesAsKerasPrintsThem) {
  const auto model = Digits();
  Pass pass(root_, false);
  (*model)(pass, Input({-1, 28, 28, 1}));
  EXPECT_EQ(L::Summary(*model), R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓
┃ Layer (type)                         ┃ Output Shape                ┃         Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━┩
│ conv2d (Conv2D)                      │ (None, 26, 26, 32)          │             320 │
├──────────────────────────────────────┼─────────────────────────────┼─────────────────┤
│ flatten (Flatten)                    │ (None, 21632)               │               0 │
├──────────────────────────────────────┼─────────────────────────────┼─────────────────┤
│ dense (Dense)                        │ (None, 128)                 │       2,769,024 │
├──────────────────────────────────────┼─────────────────────────────┼─────────────────┤
│ dense_1 (Dense)                      │ (None, 10)                  │           1,290 │
└──────────────────────────────────────┴─────────────────────────────┴─────────────────┘
 Total params: 2,770,634 (10.57 MB)
 Trainable params: 2,770,634 (10.57 MB)
 Non-trainable params: 0 (0.00 B)
)");
}

TEST_F(LayersTest, LongNamesOfSummariesTakeMoreLines) {
  const auto model = L::Sequential({L::Dense(3), L::BatchNormalization()});
  EXPECT_THAT(L::Summary(*model, {.show_trainable = true}), HasSubstr("0 (unbuilt)"));
  Pass pass(root_, false);
  (*model)(pass, Input({-1, 2}));
  EXPECT_THAT(L::Summary(*model),
              HasSubstr("│ batch_normalization                  │ (None, 3)  "));
  EXPECT_THAT(L::Summary(*model),
              HasSubstr("│ (BatchNormalization)                 │            "));
  EXPECT_THAT(L::Summary(*model), HasSubstr(" Non-trainable params: 6 (24.00 B)\n"));
}

TEST_F(LayersTest, OrthogonalRegularizersSeeAnglesOfRows) {
  const Expr w(root_, Constant(root_, Tensor::FromValues<float>({1, 0, 3, 4}, Shape({2, 2}))));
  const Output loss = regularizers::Orthogonal(0.1)(w);
  const auto session = Start();
  // The cosine between the rows is 0.6; it stands twice in the matrix of products.
  EXPECT_NEAR(Values(session->Eval(loss))[0], 0.1 * 0.5 * 1.2 / 1, 1e-6);
}

TEST_F(LayersTest, StringsBecomeTheirPlacesInAVocabulary) {
  Pass pass(root_, false);
  const Output words = Input({-1}, kString);
  const std::vector<Output> fetches = {
      (*L::StringLookup({"a", "b"}))(pass, words),
      (*L::StringLookup({"a", "b"}, {.mask_token = ""}))(pass, words),
      (*L::StringLookup({"a", "b"}, {.num_oov_indices = 0}))(pass, words),
      (*L::StringLookup({"a", "b"}, {.output_mode = L::EncodingMode::kCount}))(pass, words)};
  EXPECT_EQ(graph_.collection(kTableInitializers).size(), fetches.size());
  const auto session = Start();
  const std::vector<Feed> feeds = {
      {words, Tensor::FromValues<std::string>({"b", "", "x", "b"}, Shape({4}))}};
  for (int round = 0; round < 2; ++round) {
    auto got = session->Run(feeds, fetches);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(ValuesOf((*got)[0]), ElementsAre(2, 0, 0, 2));
    EXPECT_THAT(ValuesOf((*got)[1]), ElementsAre(3, 0, 1, 3));
    EXPECT_THAT(ValuesOf((*got)[2]), ElementsAre(1, -1, -1, 1));
    EXPECT_THAT(ValuesOf((*got)[3]), ElementsAre(2, 0, 2));
  }
}

TEST_F(LayersTest, IntegersBecomeTheirPlacesInAVocabulary) {
  Pass pass(root_, false);
  const Output x = Input({-1}, kInt32);
  const std::vector<Output> fetches = {
      (*L::IntegerLookup({10, 20}))(pass, x),
      (*L::IntegerLookup({10, 20}, {.num_oov_indices = 2, .mask_token = 0}))(pass, x)};
  const auto session = Start();
  const std::vector<Feed> feeds = {{x, Tensor::FromValues<int32_t>({20, 7, 0})}};
  auto got = session->Run(feeds, fetches);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(ValuesOf((*got)[0]), ElementsAre(2, 0, 0));
  EXPECT_THAT(ValuesOf((*got)[1]), ElementsAre(4, 2, 0));
}

TEST_F(LayersTest, TextsBecomeNumbersOfWords) {
  const Tensor texts =
      Tensor::FromValues<std::string>({"The cat, the DOG!", "dog", ""}, Shape({3}));
  auto vocabulary = L::VocabularyOf(texts);
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_THAT(*vocabulary, ElementsAre("the", "dog", "cat"));
  Pass pass(root_, false);
  const Output x = Input({-1}, kString);
  const std::vector<std::string> two = {"the", "dog"};
  const std::vector<Output> fetches = {
      (*L::TextVectorization(two))(pass, x),
      (*L::TextVectorization(two, {.output_sequence_length = 2}))(pass, x),
      (*L::TextVectorization(two, {.output_mode = L::EncodingMode::kCount}))(pass, x)};
  const auto session = Start();
  const std::vector<Feed> feeds = {{x, texts}};
  auto got = session->Run(feeds, fetches);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(ValuesOf((*got)[0]), ElementsAre(2, 1, 2, 3, 3, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(ValuesOf((*got)[1]), ElementsAre(2, 1, 3, 0, 0, 0));
  EXPECT_THAT(ValuesOf((*got)[2]), ElementsAre(1, 2, 1, 0, 0, 1, 0, 0, 0));
}

TEST_F(LayersTest, FeaturesAreNormalizedByTheirStatistics) {
  const Tensor data = Tensor::FromValues<float>({1, 10, 3, 30}, Shape({2, 2}));
  auto statistics = L::StatisticsOf(data);
  ASSERT_TRUE(statistics.ok());
  EXPECT_THAT(statistics->mean, ElementsAre(2, 20));
  EXPECT_THAT(statistics->variance, ElementsAre(1, 100));
  Pass pass(root_, false);
  const Output x = Constant(root_, data);
  const Output y = (*L::Normalization(*statistics))(pass, x);
  const Output back = (*L::Normalization(*statistics, /*invert=*/true))(pass, y);
  const Output scaled = (*L::Rescaling(0.5, 1))(pass, x);
  const auto session = Start();
  EXPECT_THAT(Values(session->Eval(y)), ElementsAre(-1, -1, 1, 1));
  EXPECT_THAT(Values(session->Eval(back)), ElementsAre(1, 10, 3, 30));
  EXPECT_THAT(Values(session->Eval(scaled)), ElementsAre(1.5, 6, 2.5, 16));
}

TEST_F(LayersTest, PositionsAreAVectorForEachStep) {
  Pass pass(root_, false);
  const auto learned = L::PositionEmbedding(5, {.initializer = initializers::Constant(2)});
  const Output x = Input({-1, 3, 4});
  const std::vector<Output> fetches = {(*learned)(pass, x), (*L::SinePositionEncoding())(pass, x)};
  const auto session = Start();
  const std::vector<Feed> feeds = {{x, Floats(std::vector<float>(24, 0.0f), Shape({2, 3, 4}))}};
  auto got = session->Run(feeds, fetches);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].shape().DebugString(), "[2,3,4]");
  EXPECT_EQ(ValuesOf((*got)[0])[23], 2);
  const std::vector<double> waves = ValuesOf((*got)[1]);
  EXPECT_NEAR(waves[0], 0, 1e-6);
  EXPECT_NEAR(waves[4], std::sin(1), 1e-6);
  EXPECT_NEAR(waves[5], std::cos(1), 1e-6);
  EXPECT_NEAR(waves[10], std::sin(0.02), 1e-6);
  EXPECT_NEAR(waves[12 + 4], std::sin(1), 1e-6);
}

// As docs/layers.md writes one.
class Scale : public Layer {
 public:
  Scale() : Layer("") {}
  std::string kind() const override { return "Scale"; }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, std::source_location where) override {
    const Variable by = Weight(pass, "by", Shape({}), {initializers::Constant(3)}, where);
    return ops::Mul(pass.scope(), inputs[0], by.read);
  }
};

TEST_F(LayersTest, ALayerOfOnesOwnHasWeightsAndAName) {
  const auto model = L::Sequential({std::make_shared<Scale>(), std::make_shared<Scale>()});
  Pass pass(root_, true);
  const Output y = (*model)(pass, Constant(root_, Floats({1, 2}, Shape({2}))));
  const auto session = Start();
  EXPECT_THAT(Values(session->Eval(y)), ElementsAre(9, 18));
  EXPECT_THAT(NamesOf(model->trainable_weights()),
              ElementsAre("sequential/scale/by", "sequential/scale_1/by"));
}

TEST_F(LayersTest, StatesOfOneLayerBeginAnother) {
  auto encoder = L::Lstm(3), decoder = L::Lstm(3, {.return_sequences = true, .name = "decoder"});
  Pass pass(root_, false);
  const Output source = Input({-1, -1, 2}), target = Input({-1, 4, 2});
  const Output last = (*encoder)(pass, source);
  const auto& states = encoder->final_states();
  ASSERT_EQ(states.size(), 2u) << error();
  const Output y = (*decoder)(pass, {target, states[0], states[1]});
  const auto session = Start();
  const std::vector<Feed> feeds = {
      {source, Floats(std::vector<float>(20, 0.5f), Shape({2, 5, 2}))},
      {target, Floats(std::vector<float>(16, 0.5f), Shape({2, 4, 2}))}};
  const std::vector<Output> fetches = {last, states[0], y};
  auto got = session->Run(feeds, fetches);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(ValuesOf((*got)[0]), ValuesOf((*got)[1]));
  EXPECT_EQ((*got)[2].shape().DebugString(), "[2,4,3]");
}

}  // namespace
}  // namespace millrace::testing
