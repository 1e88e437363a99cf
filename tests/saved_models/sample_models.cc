// SPDX-License-Identifier: Apache-2.0
#include "tests/saved_models/sample_models.h"

#include "base/status_macros.h"
#include "io/filesystem.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/partitioners.h"

namespace millrace::testing {
namespace {

Tensor Numbers(const Shape& shape) {
  Tensor numbers(kFloat, shape);
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    numbers.data<float>()[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  }
  return numbers;
}

StatusOr<std::vector<RecordedCall>> WriteTrained(const std::string& directory) {
  Model model(
      layers::Sequential({layers::Dense(4, {.activation = "relu"}), layers::BatchNormalization(),
                          layers::Dropout(0.5), layers::Dense(2)}),
      {.seed = 3});
  MR_RETURN_IF_ERROR(model.Compile({.optimizer = "adam", .loss = "mse"}));
  const Tensor x = Numbers({8, 3});
  MR_RETURN_IF_ERROR(
      model.Fit(x, Numbers({8, 2}), {.epochs = 2, .verbose = Verbose::kSilent}).status());
  MR_RETURN_IF_ERROR(ExportSavedModel(model, directory));
  MR_ASSIGN_OR_RETURN(const Tensor predicted, model.Predict(x));
  return std::vector<RecordedCall>{
      {kServingDefault, {{"keras_tensor", x}}, {{"output_0", predicted}}}};
}

StatusOr<std::vector<RecordedCall>> WriteGraph(const std::string& directory) {
  const std::string words = directory + ".words.txt";
  MR_RETURN_IF_ERROR(PosixFileSystem()->CreateDirectories(std::string(DirectoryName(directory))));
  MR_RETURN_IF_ERROR(PosixFileSystem()->WriteFileAtomically(words, "red\ngreen\n"));
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root.WithOpName("x"), kFloat, {-1, 3});
  const Variable w = MakeVariable(root, "w", Constant(root, Numbers({3, 2})));
  const Variable b = MakeVariable(root, "b", Constant(root, Numbers({2})), {.use_resource = true});
  MakeVariable(root, "unused", Constant(root, Numbers({5})));
  const Output y = ops::Add(root.WithOpName("y"), ops::MatMul(root, x, w.read), b.read);
  const Output file = Constant(root.WithOpName("file"), Tensor::String(words));
  const Output table =
      ops::HashTableV2(root.WithOpName("table"), kString, kInt64, {.shared_name = "words"});
  const Operation fill =
      ops::InitializeTableFromTextFileV2(root.WithOpName("fill"), table, file, -2, -1);
  const Output word = Placeholder(root.WithOpName("word"), kString, {-1});
  const Output number =
      ops::LookupTableFindV2(root.WithOpName("number"), table, word, Tensor::Scalar<int64_t>(-1));
  const Operation init = InitializeVariables(root);
  MR_RETURN_IF_ERROR(graph.status());
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph));
  MR_RETURN_IF_ERROR(session.RunTargets({init, fill}));
  MR_RETURN_IF_ERROR(
      ExportSavedModel(graph, session,
                       {{kServingDefault, {.inputs = {{"x", x}}, .outputs = {{"y", y}}}},
                        {"lookup", {.inputs = {{"word", word}}, .outputs = {{"number", number}}}}},
                       directory, {.assets = {{file, words}}, .init = fill}));
  const Tensor numbers = Numbers({4, 3});
  const Tensor text = Tensor::FromValues<std::string>({"green", "pink"});
  MR_ASSIGN_OR_RETURN(const auto answers, session.Run({{x, numbers}, {word, text}}, {y, number}));
  // The asset alone is what the directory has from now on.
  MR_RETURN_IF_ERROR(PosixFileSystem()->DeleteFile(words));
  return std::vector<RecordedCall>{{kServingDefault, {{"x", numbers}}, {{"y", answers[0]}}},
                                   {"lookup", {{"word", text}}, {{"number", answers[1]}}}};
}

// A table in three parts, which the files have as one.
StatusOr<std::vector<RecordedCall>> WriteParts(const std::string& directory) {
  Graph graph;
  const Scope root = graph.root();
  const Output ids = Placeholder(root.WithOpName("ids"), kInt64, {-1});
  const ShardedVariable table =
      MakeShardedVariable(root, "table", Constant(root, Numbers({7, 2})), FixedShards(3));
  const Output rows = ops::Identity(root.WithOpName("rows"), LookupSharded(root, table, ids));
  const Operation init = InitializeVariables(root);
  MR_RETURN_IF_ERROR(graph.status());
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  MR_RETURN_IF_ERROR(ExportSavedModel(
      graph, session, {{kServingDefault, {.inputs = {{"ids", ids}}, .outputs = {{"rows", rows}}}}},
      directory));
  const Tensor asked = Tensor::FromValues<int64_t>({0, 6, 3, 3});
  MR_ASSIGN_OR_RETURN(const auto answers, session.Run({{ids, asked}}, {rows}));
  return std::vector<RecordedCall>{{kServingDefault, {{"ids", asked}}, {{"rows", answers[0]}}}};
}

}  // namespace

std::vector<std::pair<std::string, SampleModel>> SampleModels() {
  return {{"model", WriteTrained}, {"graph", WriteGraph}, {"parts", WriteParts}};
}

}  // namespace millrace::testing
