// SPDX-License-Identifier: Apache-2.0
// Small models trained under each of Keras' dtype policies, against what Keras recorded: logs of
// batches, weights, predictions and their type, and the scale of the loss after each step.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "millrace/keras_optimizers.h"
#include "tests/fit/network_of.h"

namespace millrace::testing {
namespace {

// A value is rounded some times on its way through a model, each time by up to half a unit of its
// last digit: 2^-9 of it in bfloat16, 2^-12 in float16. Which of two neighbours it becomes is the
// kernels' own matter, and after twelve steps weights show the sum of that: some such units.
GoldenTolerance ToleranceOf(const std::string& policy) {
  if (policy == "mixed_bfloat16") return {8e-3, 8e-3};
  if (policy == "mixed_float16") return {2e-3, 2e-3};
  return {1e-4, 1e-5};
}

// Of results that are such values themselves: behind a LayerNormalization, which divides by what
// may be small, Keras' own in bfloat16 are up to 2.5e-2 from those in float32.
GoldenTolerance RoundedToleranceOf(const std::string& policy) {
  const GoldenTolerance of = ToleranceOf(policy);
  return policy == "float32" ? of : GoldenTolerance{6 * of.rtol, 6 * of.atol};
}

DataType TypeOf(const std::string& name) {
  return name == "bfloat16" ? kBfloat16 : name == "float16" ? kHalf : kFloat;
}

std::vector<double> ScaleOf(Model& model) {
  std::vector<double> state;
  const std::vector<Variable> variables = model.optimizer()->variables();
  for (const int i : {1, 0, 2}) {  // the scale, steps since it changed, updates that were made
    const auto value = model.session()->Eval(variables[i].read);
    EXPECT_TRUE(value.ok()) << value.status();
    state.push_back(value.ok() ? ValuesOf(*value)[0] : -1);
  }
  return state;
}

class Recorder : public Callback {
 public:
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override {
    batches.push_back(static_cast<double>(batch));
    for (const auto& [name, value] : logs) batches.push_back(value);
    if (dynamic_cast<optimizers::LossScale*>(model()->optimizer()) != nullptr) {
      scales.push_back(ScaleOf(*model()));
    }
    return OkStatus();
  }
  std::vector<double> batches;
  Json scales = Json::array();
};

Tensor Row(const std::vector<double>& values) {
  return Tensor::FromValues<double>(std::span(values),
                                    Shape({static_cast<int64_t>(values.size())}));
}

class MixedRun {
 public:
  MixedRun(const Json& golden, const Json& run)
      : golden_(golden), run_(run), tolerance_(ToleranceOf(run["policy"])) {}

  std::string Compare() {
    std::string why = Start();
    if (why.empty()) why = Fit();
    if (why.empty()) why = Evaluate();
    return why;
  }

 private:
  Tensor Data(const char* name) const { return TensorOf(golden_["data"][name]); }

  std::string Start() {
    std::string why;
    std::unique_ptr<Layer> network = NetworkOf(golden_, {}, &why);
    if (network == nullptr) return why;
    model_ = std::make_unique<Model>(std::move(network), ModelOptions{.precision = run_["policy"]});
    const Tensor x = Data("x");
    PartialShape shape(x.shape());
    shape.SetDim(0, -1);
    Status status = model_->Build({{shape, x.dtype()}});
    if (status.ok()) status = model_->SetWeights(InitialWeightsOf(golden_));
    if (status.ok()) status = model_->Compile(CompileOptionsOf(golden_, run_));
    return status.ok() ? "" : status.ToString();
  }

  std::string Fit() {
    Recorder recorder;
    FitOptions o;
    o.batch_size = run_["fit"]["batch_size"];
    o.epochs = run_["fit"]["epochs"];
    o.shuffle = false;
    o.verbose = Verbose::kSilent;
    o.callbacks = {&recorder};
    const StatusOr<History> history = model_->Fit(Data("x"), Data("y"), o);
    if (!history.ok()) return history.status().ToString();
    if (run_.contains("scales") && recorder.scales != run_["scales"]) {
      return StrCat("scales ", recorder.scales.dump(), ", not ", run_["scales"].dump());
    }
    std::string why = Difference(Row(recorder.batches), Numbers(run_["batch_logs"]), tolerance_);
    if (!why.empty()) return "batch logs: " + why;
    const auto weights = model_->GetWeights();
    if (!weights.ok()) return weights.status().ToString();
    for (std::size_t i = 0; i < weights->size(); ++i) {
      if ((*weights)[i].dtype() != kFloat) return StrCat("weight ", i, " is no float");
      why = Difference((*weights)[i], run_["weights"][i], tolerance_);
      if (!why.empty()) return StrCat("weight ", i, ": ", why);
    }
    return "";
  }

  std::string Evaluate() {
    EvaluateOptions o;
    o.verbose = Verbose::kSilent;
    const auto logs = model_->Evaluate(Data("xv"), Data("yv"), o);
    if (!logs.ok()) return logs.status().ToString();
    for (const auto& [name, value] : run_["evaluate"].items()) {
      const auto got = logs->Find(name);
      if (!got) return "no " + name;
      const std::string why =
          Difference(Tensor::Scalar<double>(*got), Json::array({value}), tolerance_);
      if (!why.empty()) return StrCat("evaluate: ", name, ": ", why);
    }
    const auto predicted = model_->Predict(Data("xv"));
    if (!predicted.ok()) return predicted.status().ToString();
    if (predicted->dtype() != TypeOf(run_["predict"]["dtype"])) {
      return StrCat("predictions are of type ", DataTypeName(predicted->dtype()));
    }
    const std::string why =
        Difference(*predicted, run_["predict"]["data"], RoundedToleranceOf(run_["policy"]));
    return why.empty() ? "" : "predictions: " + why;
  }

  const Json& golden_;
  const Json& run_;
  const GoldenTolerance tolerance_;
  std::unique_ptr<Model> model_;
};

class MixedPrecisionGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(MixedPrecisionGolden, TrainsAsKerasDoes) {
  const Json golden = LoadGolden(StrCat("mixed/", GetParam(), ".json"));
  Tally tally(StrCat("mixed/", GetParam()));
  for (const Json& run : golden["runs"]) {
    tally.Add(run["policy"], MixedRun(golden, run).Compare());
  }
}

INSTANTIATE_TEST_SUITE_P(All, MixedPrecisionGolden,
                         ::testing::Values("mlp", "cnn", "lstm", "attention", "overflow"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace::testing
