// SPDX-License-Identifier: Apache-2.0
// Ten small models: names, shapes and predictions with given weights are those of Keras.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/layers/layer_of.h"

namespace millrace::testing {
namespace {

std::string ShapeText(const Json& dims) {
  std::vector<int64_t> sizes;
  for (const Json& dim : dims) sizes.push_back(dim.is_null() ? -1 : dim.get<int64_t>());
  return PartialShape(sizes).DebugString();
}

std::unique_ptr<Layer> ModelOf(const Json& golden) {
  layers::LayerList all;
  const Json& described = golden["architecture"]["layers"];
  for (std::size_t i = 0; i < described.size(); ++i) {
    all.push_back(LayerOf(described[i][0], described[i][1], golden["layer_output_shapes"][i][0]));
    if (all.back() == nullptr) return nullptr;
  }
  return layers::Sequential(std::move(all), "model");
}

std::string CompareStructure(const Layer& model, const Json& golden) {
  const std::vector<Variable> weights = model.weights();
  const Json& wanted = golden["initial_weights"];
  if (weights.size() != wanted.size()) return StrCat(weights.size(), " weights");
  std::vector<Variable> trained = model.trainable_weights();
  std::size_t next = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Variable& v = weights[i];
    if (v.name() != wanted[i]["path"].get<std::string>()) return "a weight is called " + v.name();
    if (!(v.shape() == PartialShape(ShapeOf(wanted[i]["shape"])))) {
      return StrCat(v.name(), " has the shape ", v.shape().DebugString());
    }
    const bool is_trained = next < trained.size() && trained[next].handle == v.handle;
    next += is_trained;
    if (is_trained != wanted[i]["trainable"].get<bool>()) {
      return StrCat(v.name(), is_trained ? " is trained" : " is not trained");
    }
  }
  if (model.CountParams() != golden["count_params"].get<int64_t>()) {
    return StrCat(model.CountParams(), " parameters");
  }
  const std::vector<Layer*> layers = model.layers();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string got = layers[i]->output_shape().DebugString();
    if (got != ShapeText(golden["layer_output_shapes"][i][1])) {
      return StrCat(layers[i]->name(), " makes ", got);
    }
  }
  return "";
}

std::string RunModel(const std::string& file) {
  const Json golden = LoadGolden(StrCat("fit/", file, ".json"));
  const std::unique_ptr<Layer> model = ModelOf(golden);
  if (model == nullptr) return "there is no such layer";
  Graph graph;
  const Scope root = graph.root();
  const Tensor xv = TensorOf(golden["data"]["xv"]);
  std::vector<int64_t> dims(xv.shape().dims().begin(), xv.shape().dims().end());
  dims[0] = -1;
  const Output x = Placeholder(root, xv.dtype(), PartialShape(dims));
  Pass pass(root, /*training=*/false);
  const Output y = (*model)(pass, x);
  if (!graph.status().ok()) return graph.status().ToString();
  if (std::string why = CompareStructure(*model, golden); !why.empty()) return why;
  auto session = Session::Create(graph);
  if (!session.ok()) return session.status().ToString();
  const std::vector<Variable> weights = model->weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Json& given = golden["initial_weights"][i];
    const Status set =
        SetValue(root, *session, weights[i], FloatTensor(given["data"], ShapeOf(given["shape"])));
    if (!set.ok()) return set.ToString();
  }
  auto predicted = session->Run({{x, xv}}, {y});
  if (!predicted.ok()) return predicted.status().ToString();
  return Difference((*predicted)[0], golden["predict_initial"]["data"], {1e-4, 1e-5});
}

TEST(ModelsGoldenTest, NamesShapesAndPredictionsAreKeras) {
  Tally tally("models");
  for (const char* file : {"mlp", "mlp_regularized", "mlp_batchnorm", "cnn", "embedding", "lstm",
                           "gru", "rnn", "binary", "regression"}) {
    tally.Add(file, RunModel(file));
  }
}

}  // namespace
}  // namespace millrace::testing
