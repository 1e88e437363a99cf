// SPDX-License-Identifier: Apache-2.0
// What each layer makes, its gradients, masks and updates, against Keras.
#include <gtest/gtest.h>

#include <cmath>

#include "base/strings.h"
#include "tests/layers/layer_of.h"

namespace millrace::testing {
namespace {

// Of float32, by policy.
struct Precision {
  const char* policy;
  DataType type;
  GoldenTolerance tolerance;
};
constexpr Precision kFloat32{"float32", kFloat, {1e-4, 2e-5}};
// What Keras computed in float32: results of a few roundings, and sums of some dozen of them whose
// terms cancel.
constexpr Precision kSmall[] = {{"mixed_bfloat16", kBfloat16, {5e-2, 1e-1}},
                                {"mixed_float16", kHalf, {1e-2, 2e-2}}};

PartialShape DimsOf(const Json& dims) {
  std::vector<int64_t> sizes;
  for (const Json& dim : dims) sizes.push_back(dim.is_null() ? -1 : dim.get<int64_t>());
  return PartialShape(sizes);
}

// One layer in a graph, called on placeholders.
class Bench {
 public:
  Bench(const Json& c, const Precision& precision)
      : case_(c), precision_(precision), root_(graph_.root()) {}

  std::string Run() {
    if (std::string why = Build(); !why.empty()) return why;
    if (std::string why = CompareNames(); !why.empty()) return why;
    if (std::string why = Start(); !why.empty()) return why;
    return Compare();
  }

 private:
  std::string Build() {
    layer_ = LayerOf(case_["layer"], case_["arguments"], "layer");
    if (layer_ == nullptr) return "there is no such layer or argument";
    pass_.emplace(root_, case_["training"].get<bool>());
    pass_->SetPrecision(precision_.policy);
    for (std::size_t i = 0; i < case_["inputs"].size(); ++i) {
      const Tensor value = TensorOf(case_["inputs"][i]);
      xs_.push_back(Placeholder(root_, value.dtype(), DimsOf(case_["dims"][i])));
      feeds_.emplace_back(xs_.back(), value);
    }
    if (!case_["mask"].is_null()) {
      const Tensor mask = TensorOf(case_["mask"]);
      pass_->SetMaskOf(xs_[0], Constant(root_, mask));
    }
    y_ = (*layer_)(*pass_, std::span<const Output>(xs_));
    if (!graph_.status().ok()) return graph_.status().ToString();
    // Of a layer with weights or that was given floats.
    const bool has_floats =
        !layer_->weights().empty() || (!xs_.empty() && xs_[0].dtype() == kFloat);
    if (has_floats && IsFloating(y_.dtype()) && y_.dtype() != precision_.type) {
      return StrCat("the output is of type ", DataTypeName(y_.dtype()));
    }
    return BuildGradients();
  }

  std::string BuildGradients() {
    std::vector<Output> of;
    for (const Output& x : xs_) {
      if (x.dtype() == kFloat) of.push_back(x);
    }
    inputs_ = of.size();
    for (const Variable& v : layer_->trainable_weights()) of.push_back(v.read);
    if (of.empty()) return "";
    const Shape shape = ShapeOf(case_["output"]["shape"]);
    std::vector<float> scale;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      scale.push_back(static_cast<float>(std::cos(static_cast<double>(i))));
    }
    const Output weighted =
        ops::Mul(root_, Expr(root_, y_).Cast(kFloat),
                 Tensor::FromValues<float>(std::span<const float>(scale), shape));
    const Output loss[] = {ReduceSum(root_, weighted)};
    auto gradients = Gradients(root_, loss, of);
    if (!gradients.ok()) return gradients.status().ToString();
    gradients_ = *gradients;
    return "";
  }

  std::string CompareNames() {
    const std::vector<Variable> weights = layer_->weights();
    if (weights.size() != case_["weights"].size()) return StrCat(weights.size(), " weights");
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const Json& want = case_["weights"][i];
      if (weights[i].name() != want["path"].get<std::string>()) {
        return StrCat("weight ", i, " is ", weights[i].name(), ", not ",
                      want["path"].get<std::string>());
      }
      if (!(weights[i].shape() == PartialShape(ShapeOf(want["shape"])))) {
        return StrCat(weights[i].name(), " is ", weights[i].shape().DebugString());
      }
    }
    // What is known of the output's shape must be so.
    if (!y_.shape().IsCompatibleWith(ShapeOf(case_["output"]["shape"]))) {
      return "the shape is " + y_.shape().DebugString();
    }
    return y_.shape().has_rank() ? "" : "the rank is not known";
  }

  std::string Start() {
    auto session = Session::Create(graph_);
    if (!session.ok()) return session.status().ToString();
    session_ = std::make_unique<Session>(*std::move(session));
    const std::vector<Variable> weights = layer_->weights();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const Status set = SetValue(root_, *session_, weights[i], TensorOf(case_["weights"][i]));
      if (!set.ok()) return set.ToString();
    }
    return "";
  }

  // 1.8936633 and 1.8893756 are one number in bfloat16, and of two largest values of one window
  // either may get the gradient.
  bool HasTie() const { return precision_.type == kBfloat16 && case_["layer"] == "MaxPooling3D"; }

  std::string Compare() {
    std::vector<Output> fetches = {y_};
    std::vector<const Json*> wanted = {&case_["output"]};
    std::vector<std::string> names = {"output"};
    const Output mask = pass_->MaskOf(y_);
    if (!case_["output_mask"].is_null()) {
      if (!mask.valid()) return "there is no mask";
      fetches.push_back(mask);
      wanted.push_back(&case_["output_mask"]);
      names.emplace_back("mask");
    }
    const auto add = [&](const Json& gradients, std::size_t first, const char* what) {
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (!gradients_[first + i].valid()) continue;
        fetches.push_back(gradients_[first + i]);
        wanted.push_back(&gradients[i]);
        names.push_back(StrCat("gradient of ", what, " ", i));
      }
    };
    if (!HasTie()) add(case_["input_gradients"], 0, "input");
    add(case_["weight_gradients"], inputs_, "weight");
    const auto updates = pass_->updates();
    auto got = session_->Run(feeds_, fetches, updates);
    if (!got.ok()) return got.status().ToString();
    for (std::size_t i = 0; i < fetches.size(); ++i) {
      if (!((*got)[i].shape() == ShapeOf((*wanted[i])["shape"]))) {
        return StrCat(names[i], ": the shape is ", (*got)[i].shape().DebugString());
      }
      const std::string why = Difference((*got)[i], (*wanted[i])["data"], precision_.tolerance);
      if (!why.empty()) return StrCat(names[i], ": ", why);
    }
    const std::vector<Variable> weights = layer_->weights();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      auto after = session_->Eval(weights[i].read);
      if (!after.ok()) return after.status().ToString();
      const std::string why =
          Difference(*after, case_["weights_after"][i]["data"], precision_.tolerance);
      if (!why.empty()) return StrCat(weights[i].name(), " afterwards: ", why);
    }
    return "";
  }

  const Json& case_;
  const Precision precision_;
  Graph graph_;
  const Scope root_;
  std::unique_ptr<Layer> layer_;
  std::optional<Pass> pass_;
  std::vector<Output> xs_, gradients_;
  std::vector<Feed> feeds_;
  std::size_t inputs_ = 0;
  Output y_;
  std::unique_ptr<Session> session_;
};

TEST(LayerValuesTest, OutputsGradientsMasksAndUpdatesAreKeras) {
  const Json golden = LoadGolden("layers/layers.json");
  Tally tally("layers");
  for (const Json& c : golden["cases"]) {
    tally.Add(c["name"].get<std::string>(), Bench(c, kFloat32).Run());
  }
}

TEST(LayerValuesTest, SmallerTypesGiveTheSameButForTheirDigits) {
  const Json golden = LoadGolden("layers/layers.json");
  for (const Precision& precision : kSmall) {
    Tally tally(StrCat("layers in ", precision.policy));
    for (const Json& c : golden["cases"]) {
      tally.Add(c["name"].get<std::string>(), Bench(c, precision).Run());
    }
  }
}

}  // namespace
}  // namespace millrace::testing
