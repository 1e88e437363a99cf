// SPDX-License-Identifier: Apache-2.0
// Losses by reduction, sample weight and mask, and their gradients, against those of Keras.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/training_goldens/loss_of.h"

namespace millrace::testing {
namespace {

losses::Reduction ReductionOf(const std::string& name) {
  if (name == "sum") return losses::Reduction::kSum;
  if (name == "none") return losses::Reduction::kNone;
  if (name == "mean") return losses::Reduction::kMean;
  if (name == "mean_with_sample_weight") return losses::Reduction::kMeanWithSampleWeight;
  return losses::Reduction::kSumOverBatchSize;
}

GoldenTolerance ToleranceOf(const std::string& loss, const std::string& inputs, double atol) {
  // At the clip a float next to 1 decides.
  if (inputs.find("extreme") != std::string::npos) return {2e-2, atol};
  return {loss == "CTC" ? 1e-4 : 1e-5, atol};
}

struct Problem {
  Graph graph;
  Output y_true, y_pred;
};

std::string Fetch(Graph& graph, const Output& output, Tensor* value) {
  if (!graph.status().ok()) return graph.status().ToString();
  auto session = Session::Create(graph);
  if (!session.ok()) return session.status().ToString();
  auto out = session->Eval(output);
  if (!out.ok()) return out.status().ToString();
  *value = *out;
  return "";
}

// Empty: as the golden result says; `raises` must be an error.
std::string RunResult(const losses::Loss& loss, const Json& c, const Json& input,
                      const Json& result) {
  Graph graph;
  const Scope root = graph.root();
  const Output y_true = Constant(root, TensorOf(input["y_true"]));
  const Output y_pred = Constant(root, TensorOf(input["y_pred"]));
  losses::LossWeights weights;
  const std::string kind = result["sample_weight"];
  if (kind != "none") weights.sample_weight = Constant(root, TensorOf(c["sample_weights"][kind]));
  if (result["mask"].get<bool>()) weights.mask = Constant(root, TensorOf(c["mask"]));
  const Output value = loss.With(ReductionOf(result["reduction"]))(root, y_true, y_pred, weights);
  Tensor got;
  const std::string error = Fetch(graph, value, &got);
  if (result.contains("raises")) return error.empty() ? "no error" : "";
  if (!error.empty()) return error;
  if (got.shape() != ShapeOf(result["value"]["shape"])) return "shape " + got.shape().DebugString();
  return Difference(got, result["value"]["data"], ToleranceOf(c["loss"], c["inputs"], 1e-6));
}

std::string RunGradient(const losses::Loss& loss, const Json& c, const Json& input) {
  Graph graph;
  const Scope root = graph.root();
  const Output y_true = Constant(root, TensorOf(input["y_true"]));
  const Output y_pred = Constant(root, TensorOf(input["y_pred"]));
  const Output value = loss(root, y_true, y_pred);
  auto gradients = Gradients(root, {{value}}, {{y_pred}});
  if (!gradients.ok()) return gradients.status().ToString();
  Tensor got;
  if (std::string error = Fetch(graph, (*gradients)[0], &got); !error.empty()) return error;
  return Difference(got, c["gradient_of_default"]["data"],
                    ToleranceOf(c["loss"], c["inputs"], 1e-5));
}

TEST(LossesGoldenTest, ValuesAndGradientsAreKeras) {
  const Json golden = LoadGolden("losses/losses.json");
  Tally values("losses, values"), gradients("losses, gradients");
  for (const Json& c : golden["cases"]) {
    const std::string name = StrCat(c["loss"].get<std::string>(), c["arguments"].dump(), " of ",
                                    c["inputs"].get<std::string>());
    const Json& input = golden["inputs"][c["inputs"].get<std::string>()];
    const std::optional<losses::Loss> loss = LossOf(c["loss"], Arguments(c["arguments"]));
    if (!loss) {
      values.Add(name, "there is no such loss");
      continue;
    }
    for (const Json& result : c["results"]) {
      values.Add(StrCat(name, " ", result["reduction"].dump(), " weight ",
                        result["sample_weight"].dump(), " mask ", result["mask"].dump()),
                 RunResult(*loss, c, input, result));
    }
    if (c["gradient_of_default"].is_object() && c["gradient_of_default"].contains("data")) {
      gradients.Add(name, RunGradient(*loss, c, input));
    }
  }
}

TEST(LossesGoldenTest, FunctionsGiveOneValuePerSample) {
  const Json golden = LoadGolden("losses/losses.json");
  Tally tally("losses, functions");
  for (const Json& f : golden["functions"]) {
    const std::string name = f["function"];
    const Json& input = golden["inputs"][f["inputs"].get<std::string>()];
    const std::optional<losses::Loss> loss = LossOf(name, Arguments(f["arguments"]));
    if (!loss) {
      tally.Add(name, "there is no such loss");
      continue;
    }
    Graph graph;
    const Output values =
        loss->Values(graph.root(), Constant(graph.root(), TensorOf(input["y_true"])),
                     Constant(graph.root(), TensorOf(input["y_pred"])))
            .values;
    Tensor got;
    std::string why = Fetch(graph, values, &got);
    if (why.empty()) why = Difference(got, f["value"]["data"], {1e-5, 1e-6});
    tally.Add(name, why);
  }
}

}  // namespace
}  // namespace millrace::testing
