// SPDX-License-Identifier: Apache-2.0
#include "tests/fit/network_of.h"

#include <algorithm>

#include "tests/layers/layer_of.h"
#include "tests/training_goldens/loss_of.h"
#include "tests/training_goldens/optimizer_of.h"

namespace millrace::testing {
namespace {

MetricSpec MetricOf(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  const std::string kind = json[0];
  const Arguments a(json[1]);
  const std::string name = json[1]["name"];
  if (kind == "AUC") {
    metrics::AucOptions o;
    a.Get("num_thresholds", &o.num_thresholds);
    return {name, metrics::Auc(o)};
  }
  if (kind == "Precision") return {name, metrics::Precision()};
  if (kind == "Recall") return {name, metrics::Recall()};
  return {name, metrics::RootMeanSquaredError()};
}

}  // namespace

std::unique_ptr<Layer> NetworkOf(const Json& golden, const std::vector<std::string>& frozen,
                                 std::string* why) {
  layers::LayerList list;
  for (const Json& entry : golden["architecture"]["layers"]) {
    const std::string name = golden["layer_output_shapes"][list.size()][0];
    std::shared_ptr<Layer> layer = LayerOf(entry[0], entry[1], name);
    if (layer == nullptr) {
      *why = "there is no layer " + entry[0].get<std::string>();
      return nullptr;
    }
    layer->set_trainable(std::find(frozen.begin(), frozen.end(), name) == frozen.end());
    list.push_back(std::move(layer));
  }
  return layers::Sequential(std::move(list), "model");
}

CompileOptions CompileOptionsOf(const Json& golden, const Json& run) {
  CompileOptions options;
  const Json& optimizer = run["optimizer"];
  options.optimizer = KerasOptimizerOf(optimizer["class"], Arguments(optimizer));
  options.loss = *LossOf(golden["loss"]["class"], Arguments(golden["loss"]));
  for (const Json& metric : golden["metrics"]) options.metrics.push_back(MetricOf(metric));
  if (run.value("weighted_metrics", Json(false)) == true) {
    options.weighted_metrics.push_back(MetricOf(golden["metrics"][0]));
  }
  return options;
}

std::vector<Tensor> InitialWeightsOf(const Json& golden) {
  std::vector<Tensor> weights;
  for (const Json& w : golden["initial_weights"]) {
    weights.push_back(FloatTensor(w["data"], ShapeOf(w["shape"])));
  }
  return weights;
}

}  // namespace millrace::testing
