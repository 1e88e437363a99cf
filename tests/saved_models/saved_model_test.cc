// SPDX-License-Identifier: Apache-2.0
// SavedModels of stock TensorFlow and of our own: loaded, asked, gone on with, written again.
#include "millrace/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/errors.h"
#include "io/filesystem.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "tests/saved_models/recorded.h"
#include "tests/saved_models/sample_models.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

std::string Recorded(const std::string& name) { return "tests/saved_models/testdata/" + name; }

std::string Fresh(const std::string& name) {
  return StrCat(::testing::TempDir(), "/",
                ::testing::UnitTest::GetInstance()->current_test_info()->name(), "/", name);
}

std::string TextOf(const Status& status) { return std::string(Message(status)); }

class RecordedModelTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordedModelTest, GivesWhatTensorFlowComputed) {
  const auto model = LoadSavedModel(Recorded(GetParam()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(AnswersAsRecorded(*model, Recorded(GetParam())));
}

TEST_P(RecordedModelTest, IsSavedAndLoadedAgain) {
  const std::string again = StrCat(::testing::TempDir(), "/again/", GetParam());
  {
    const auto model = LoadSavedModel(Recorded(GetParam()));
    ASSERT_TRUE(model.ok()) << model.status();
    const Status saved = model->Save(again);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  const auto model = LoadSavedModel(again);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(AnswersAsRecorded(*model, Recorded(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(All, RecordedModelTest,
                         ::testing::Values("v1_builder", "v2_module", "keras_mlp",
                                           "keras_two_inputs", "keras_lstm", "keras_conv"),
                         [](const auto& info) { return std::string(info.param); });

class SampleModelTest : public ::testing::TestWithParam<int> {};

TEST_P(SampleModelTest, AnswersAsTheProgramThatWroteIt) {
  const auto [name, write] = SampleModels()[GetParam()];
  const std::string directory = StrCat(::testing::TempDir(), "/samples/", name);
  const auto calls = write(directory);
  ASSERT_TRUE(calls.ok()) << calls.status();
  const auto model = LoadSavedModel(directory);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_FALSE(calls->empty());
  for (const RecordedCall& call : *calls) EXPECT_TRUE(AnswersAs(*model, call));
}

INSTANTIATE_TEST_SUITE_P(All, SampleModelTest, ::testing::Values(0, 1, 2),
                         [](const auto& info) { return SampleModels()[info.param].first; });

TEST(SavedModelTest, SignaturesHaveNamesTypesAndShapes) {
  const auto model = LoadSavedModel(Recorded("v2_module"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->signatures(), ElementsAre(Key("lookup"), Key("pair"), Key(kServingDefault)));
  const ModelSignature& power = model->signatures().at(kServingDefault);
  EXPECT_EQ(power.method_name, kPredictMethod);
  EXPECT_EQ(power.inputs.at("x").dtype, kFloat);
  EXPECT_EQ(power.inputs.at("x").shape, PartialShape({-1, 3}));
  EXPECT_THAT(power.outputs, ElementsAre(Key("rows"), Key("y")));
  EXPECT_EQ(power.outputs.at("rows").dtype, kInt32);
  EXPECT_EQ(power.outputs.at("rows").shape, PartialShape({}));
}

TEST(SavedModelTest, APreparedSignatureTakesAndGivesTensorsInTheOrderOfNames) {
  auto model = LoadSavedModel(Recorded("v2_module"));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto call = model->Prepare("pair");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_THAT(call->inputs(), ElementsAre("a", "b"));
  EXPECT_THAT(call->outputs(), ElementsAre("a", "product", "sum"));
  std::vector<Tensor> outputs;
  const std::vector<Tensor> inputs = {Tensor::FromValues<float>({1, 2}), Tensor::Scalar<float>(3)};
  ASSERT_TRUE(call->Run(inputs, &outputs).ok());
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_THAT(outputs[1].flat<float>(), ElementsAre(3, 6));
  EXPECT_THAT(outputs[2].flat<float>(), ElementsAre(4, 5));
  ASSERT_TRUE(model->session().Close().ok());
  EXPECT_TRUE(errors::IsFailedPrecondition(call->Run(inputs, &outputs)));
}

TEST(SavedModelTest, ThreadsAskAtOnce) {
  const auto model = LoadSavedModel(Recorded("keras_mlp"));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto calls = ReadRecorded(Recorded("keras_mlp"));
  ASSERT_TRUE(calls.ok()) << calls.status();
  std::vector<std::thread> threads;
  std::vector<::testing::AssertionResult> results(4, ::testing::AssertionFailure());
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) result = AnswersAs(*model, (*calls)[0]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_TRUE(result);
}

TEST(SavedModelTest, WrongInputsAreNamed) {
  const auto model = LoadSavedModel(Recorded("keras_mlp"));
  ASSERT_TRUE(model.ok()) << model.status();
  const Tensor good(kFloat, {2, 4});
  const auto ask = [&](const std::map<std::string, Tensor>& inputs) {
    return model->Run(kServingDefault, inputs).status();
  };
  EXPECT_THAT(TextOf(ask({})), HasSubstr("input 'x' is missing"));
  EXPECT_THAT(TextOf(ask({{"x", good}, {"z", good}})), HasSubstr("there is no input 'z', but x"));
  EXPECT_THAT(TextOf(ask({{"x", Tensor(kDouble, {2, 4})}})), HasSubstr("gets double[2,4]"));
  EXPECT_THAT(TextOf(ask({{"x", Tensor(kFloat, {2, 5})}})),
              HasSubstr("input 'x' takes float[?,4], and gets float[2,5]"));
  const Status unknown = model->Run("train", {}).status();
  EXPECT_TRUE(errors::IsNotFound(unknown));
  EXPECT_THAT(TextOf(unknown), HasSubstr("serving_default"));
}

TEST(SavedModelTest, UnknownTagsAndDirectoriesAreNamed) {
  const Status tags = LoadSavedModel(Recorded("keras_mlp"), {.tags = {"gpu", "serve"}}).status();
  EXPECT_TRUE(errors::IsNotFound(tags));
  EXPECT_THAT(TextOf(tags), HasSubstr("exactly the tags 'gpu,serve', but with 'serve'"));
  const Status nowhere = LoadSavedModel("/nowhere").status();
  EXPECT_TRUE(errors::IsNotFound(nowhere));
  EXPECT_THAT(TextOf(nowhere), HasSubstr("/nowhere/saved_model.pb"));
}

TEST(SavedModelTest, TrainingGoesOnFromALoadedModelAndIsSaved) {
  const std::string first = Fresh("first"), second = Fresh("second");
  const auto calls = SampleModels()[1].second(first);
  ASSERT_TRUE(calls.ok()) << calls.status();
  {
    auto model = LoadSavedModel(first);
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<Variable> variables = Variables(model->graph(), kTrainableVariables);
    ASSERT_EQ(variables.size(), 2u);  // what no signature needs was not written
    const Variable& b = variables[0].name() == "b" ? variables[0] : variables[1];
    const Operation add =
        AssignAdd(model->graph().root(), b, Tensor::FromValues<float>({100, 200}));
    ASSERT_TRUE(model->session().RunTargets({add}).ok());
    const Status saved = model->Save(second);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  const auto model = LoadSavedModel(second);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto answer = model->Run(kServingDefault, (*calls)[0].inputs);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const Tensor& before = (*calls)[0].outputs.at("y");
  const Tensor& after = answer->at("y");
  ASSERT_EQ(after.shape(), before.shape());
  for (int64_t i = 0; i < before.num_elements(); ++i) {
    EXPECT_FLOAT_EQ(after.data<float>()[i], before.data<float>()[i] + (i % 2 == 0 ? 100 : 200));
  }
}

std::shared_ptr<Layer> TwoLayers() {
  return layers::Sequential({layers::Dense(3, {.activation = "tanh"}), layers::Dense(2)});
}

TEST(ExportModelTest, WeightsComeBackIntoAModel) {
  const std::string directory = Fresh("model");
  const Tensor x = Tensor::FromValues<float>({1, 2, 3, 4}, {2, 2});
  Model written(TwoLayers(), {.seed = 1}), read(TwoLayers(), {.seed = 2});
  const auto wanted = written.Predict(x);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const ModelExportOptions names{.input_names = {"points"}, .output_name = "score"};
  for (int i = 0; i < 2; ++i) {
    const Status exported = ExportSavedModel(written, directory, names);
    ASSERT_TRUE(exported.ok()) << exported;
  }
  ASSERT_TRUE(read.Build({{PartialShape({-1, 2}), kFloat}}).ok());
  const Status loaded = read.LoadWeights(directory + "/variables/variables");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto got = read.Predict(x);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(TensorsEqual(*got, *wanted));
  const auto model = LoadSavedModel(directory);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(AnswersAs(*model, {kServingDefault, {{"points", x}}, {{"score", *wanted}}}));
}

TEST(ExportModelTest, AModelWithoutWeightsAndWrongNamesAreRefused) {
  Model model(TwoLayers());
  EXPECT_TRUE(errors::IsFailedPrecondition(ExportSavedModel(model, Fresh("model"))));
  ASSERT_TRUE(model.Build({{PartialShape({-1, 2}), kFloat}}).ok());
  const Status names = ExportSavedModel(model, Fresh("model"), {.input_names = {"a", "b"}});
  EXPECT_TRUE(errors::IsInvalidArgument(names));
  EXPECT_FALSE(PosixFileSystem()->FileExists(Fresh("model") + "/saved_model.pb"));
}

TEST(ExportGraphTest, OutputsOfOtherGraphsAreRefused) {
  Graph graph, other;
  const Output x = Placeholder(graph.root(), kFloat, {-1});
  const Output y = Placeholder(other.root(), kFloat, {-1});
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto write = [&](const std::map<std::string, GraphSignature>& signatures) {
    return TextOf(ExportSavedModel(graph, *session, signatures, Fresh("model")));
  };
  EXPECT_THAT(write({}), HasSubstr("without signatures"));
  EXPECT_THAT(write({{"s", {.inputs = {{"x", x}}, .outputs = {{"y", y}}}}}),
              HasSubstr("signature 's': 'y' is of another graph"));
  EXPECT_THAT(write({{"s", {.inputs = {{"x", x}}, .outputs = {{"y", Output()}}}}}),
              HasSubstr("'y' is no valid output"));
}

TEST(SavedModelInfoTest, TellsWhatIsInTheFile) {
  const auto graphs = ReadSavedModelInfo(Recorded("keras_lstm"));
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  ASSERT_EQ(graphs->size(), 1u);
  const SavedModelInfo& info = (*graphs)[0];
  EXPECT_THAT(info.tags, ElementsAre("serve"));
  EXPECT_EQ(info.signatures.count(kServingDefault), 1u);
  EXPECT_THAT(info.missing_ops, ElementsAre());
  EXPECT_GT(info.num_nodes, 10);
  EXPECT_GT(info.num_functions, 2);
  EXPECT_EQ(info.written_by, "2.21.0");
}

}  // namespace
}  // namespace millrace::testing
