// SPDX-License-Identifier: Apache-2.0
// Weights and slots after each step of every optimizer against those of Keras and
// tf.compat.v1.train, with reference variables and with resources.
#include <gtest/gtest.h>

#include <map>

#include "base/strings.h"
#include "tests/training_goldens/optimizer_of.h"

namespace millrace::testing {
namespace {

GoldenTolerance ToleranceOf(const std::string& optimizer) {
  if (optimizer == "Muon") return {1e-3, 1e-4};
  if (optimizer.starts_with("Ftrl") || optimizer.starts_with("Adadelta")) return {1e-4, 1e-5};
  return {2e-5, 2e-6};
}

// A graph that takes the gradients of a golden set by feeds.
class Trainer {
 public:
  Trainer(const Json& inputs, bool use_resource) {
    const Scope root = graph_.root();
    for (const Json& v : inputs["variables"]) {
      const Tensor initial = FloatTensor(v["initial"], ShapeOf(v["shape"]));
      weights_.push_back(MakeVariable(root, v["path"].get<std::string>(), Constant(root, initial),
                                      {.use_resource = use_resource}));
    }
    global_step_ = GlobalStep(root);
  }

  // Adds an op for each combination of gradients that a step has; `none_at_all`: the second
  // variable never has one.
  std::string Build(Optimizer& optimizer, const Json& gradients, bool none_at_all) {
    for (const Json& step : gradients) {
      std::string key;
      for (std::size_t i = 0; i < step.size(); ++i) {
        const bool none = step[i].is_null() || (none_at_all && i == 1);
        key += none ? '-' : step[i].contains("indices") ? 's' : 'd';
      }
      keys_.push_back(key);
      if (ops_.contains(key)) continue;
      std::vector<GradientAndVariable> list;
      for (std::size_t i = 0; i < key.size(); ++i) list.push_back(GradientOf(key[i], i));
      auto op = optimizer.ApplyGradients(graph_.root(), list, &global_step_);
      if (!op.ok()) return op.status().ToString();
      ops_[key] = *op;
    }
    state_ = optimizer.variables();
    return "";
  }

  std::string Start() {
    init_ = InitializeVariables(graph_.root());
    auto session = Session::Create(graph_);
    if (!session.ok()) return session.status().ToString();
    session_ = std::make_unique<Session>(*std::move(session));
    return Message(session_->RunTargets({init_}));
  }

  std::string Step(std::size_t i, const Json& gradients, double scale) {
    std::vector<Feed> feeds;
    for (std::size_t k = 0; k < keys_[i].size(); ++k) {
      const Json& gradient = gradients[k];
      if (keys_[i][k] == '-') continue;
      Tensor values = TensorOf(keys_[i][k] == 's' ? gradient["values"] : gradient);
      for (float& value : std::span(values.data<float>(), values.num_elements())) {
        value *= static_cast<float>(scale);
      }
      feeds.emplace_back(values_[{keys_[i][k], k}], values);
      if (keys_[i][k] == 's') {
        const std::vector<int64_t> indices = gradient["indices"].get<std::vector<int64_t>>();
        feeds.emplace_back(
            indices_[k],
            Tensor::FromValues<int64_t>(indices, Shape({static_cast<int64_t>(indices.size())})));
      }
    }
    const Operation targets[] = {ops_[keys_[i]]};
    auto out = session_->Run(feeds, {}, targets);
    return out.ok() ? "" : out.status().ToString();
  }

  std::string CompareWeights(const Json& want, const GoldenTolerance& tolerance) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      auto value = session_->Eval(weights_[i].read);
      if (!value.ok()) return value.status().ToString();
      const std::string why = Difference(*value, want[i], tolerance);
      if (!why.empty()) return StrCat(weights_[i].name(), ": ", why);
    }
    return "";
  }

  // The optimizer's variables from `first` on, in order, or by name where there is one.
  std::string CompareState(const Json& names, const Json& want, std::size_t first, bool by_name,
                           const GoldenTolerance& tolerance) {
    if (!by_name && state_.size() != want.size() - first) {
      return StrCat(state_.size(), " optimizer variables, not ", want.size() - first);
    }
    for (std::size_t i = 0; first + i < want.size(); ++i) {
      const Variable* variable = by_name ? nullptr : &state_[i];
      const std::string path = names[first + i]["path"];
      for (const Variable& v : state_) {
        if (by_name && v.name() == path) variable = &v;
      }
      if (variable == nullptr) return "no variable is called " + path;
      auto value = session_->Eval(variable->read);
      if (!value.ok()) return value.status().ToString();
      const std::string why = Difference(*value, want[first + i], tolerance);
      if (!why.empty()) return StrCat(path, " (", variable->name(), "): ", why);
    }
    return "";
  }

  Graph& graph() { return graph_; }
  Session& session() { return *session_; }

 private:
  GradientAndVariable GradientOf(char kind, std::size_t i) {
    if (kind == '-') return {Output(), weights_[i]};
    const Scope root = graph_.root();
    PartialShape shape = weights_[i].shape();
    Output& values = values_[{kind, i}];
    if (kind == 'd') {
      if (!values.valid()) values = Placeholder(root, kFloat, shape);
      return {values, weights_[i]};
    }
    if (!values.valid()) {
      values = Placeholder(root, kFloat, PartialShape({-1, shape.AsShape()->dim(1)}));
      indices_[i] = Placeholder(root, kInt64, PartialShape({-1}));
    }
    return {values, weights_[i], indices_[i]};
  }

  static std::string Message(const Status& status) { return status.ok() ? "" : status.ToString(); }

  Graph graph_;
  std::vector<Variable> weights_, state_;
  Variable global_step_;
  std::map<std::pair<char, std::size_t>, Output> values_;
  std::map<std::size_t, Output> indices_;
  std::vector<std::string> keys_;  // of each step
  std::map<std::string, Operation> ops_;
  Operation init_;
  std::unique_ptr<Session> session_;
};

std::string RunKeras(const Json& c, const Json& inputs, bool use_resource) {
  const std::string name = c["optimizer"];
  const Arguments arguments(c["arguments"]);
  std::unique_ptr<optimizers::KerasOptimizer> keras = KerasOptimizerOf(name, arguments);
  if (!keras) return "there is no such optimizer";
  if (c.contains("exclude_from_weight_decay_var_names")) {
    keras->ExcludeFromWeightDecay(
        c["exclude_from_weight_decay_var_names"].get<std::vector<std::string>>());
  }
  optimizers::KerasOptimizer* const inner = keras.get();
  std::unique_ptr<Optimizer> optimizer = std::move(keras);
  const bool scaled = c.contains("loss_scale_optimizer");
  if (scaled) {
    optimizers::LossScaleOptions o;
    Arguments(c["loss_scale_optimizer"]).Get("initial_scale", &o.initial_scale);
    Arguments(c["loss_scale_optimizer"]).Get("dynamic_growth_steps", &o.dynamic_growth_steps);
    optimizer = std::make_unique<optimizers::LossScale>(
        std::unique_ptr<optimizers::KerasOptimizer>(
            static_cast<optimizers::KerasOptimizer*>(optimizer.release())),
        o);
  }
  const Json& gradients = inputs["gradients"][c["gradients"].get<std::string>()];
  Trainer trainer(inputs, use_resource);
  if (std::string why = trainer.Build(*optimizer, gradients, false); !why.empty()) return why;
  const Operation finalize = inner->FinalizeVariables(trainer.graph().root());
  if (std::string why = trainer.Start(); !why.empty()) return why;
  // Keras's wrapper has a count and a rate of its own, which nobody uses.
  const std::size_t first = scaled ? 2 : 0;
  const GoldenTolerance tolerance = ToleranceOf(name);
  const Json& names = c["optimizer_variables"];
  std::string why = trainer.CompareState(names, c["initial_state"], first, false, tolerance);
  if (!why.empty()) return "at first: " + why;
  for (std::size_t i = 0; i < c["steps"].size(); ++i) {
    const Json& step = c["steps"][i];
    why = trainer.Step(i, gradients[i], scaled ? step["scale_used"].get<double>() : 1);
    if (why.empty()) why = trainer.CompareWeights(step["weights"], tolerance);
    if (why.empty()) why = trainer.CompareState(names, step["state"], first, false, tolerance);
    if (!why.empty()) return StrCat("step ", i, ": ", why);
  }
  // Rules that keep weights elsewhere (ScheduleFreeAdamW) say what those are at the end.
  if (c.contains("finalized_weights") && arguments.Has("use_ema")) {
    if (Status s = trainer.session().RunTargets({finalize}); !s.ok()) return s.ToString();
    why = trainer.CompareWeights(c["finalized_weights"], tolerance);
  }
  return why.empty() ? "" : "finalized: " + why;
}

std::string RunV1(const Json& c, const Json& inputs, bool use_resource) {
  const std::string name = c["optimizer"];
  std::unique_ptr<Optimizer> optimizer = V1OptimizerOf(name, Arguments(c["arguments"]));
  if (!optimizer) return "there is no such optimizer";
  const std::string set = c["gradients"];
  const Json& gradients = inputs["gradients"][set];
  Trainer trainer(inputs, use_resource);
  if (std::string why = trainer.Build(*optimizer, gradients, set == "with_none"); !why.empty()) {
    return why;
  }
  if (std::string why = trainer.Start(); !why.empty()) return why;
  const GoldenTolerance tolerance = ToleranceOf(name);
  for (std::size_t i = 0; i < c["steps"].size(); ++i) {
    const Json& step = c["steps"][i];
    std::string why = trainer.Step(i, gradients[i], 1);
    if (why.empty()) why = trainer.CompareWeights(step["weights"], tolerance);
    if (why.empty()) {
      why = trainer.CompareState(c["optimizer_variables"], step["state"], 0, true, tolerance);
    }
    if (!why.empty()) return StrCat("step ", i, ": ", why);
  }
  return "";
}

TEST(OptimizersGoldenTest, KerasWeightsAndVariablesAfterEachStep) {
  const Json inputs = LoadGolden("optimizers/inputs.json");
  const Json golden = LoadGolden("optimizers/keras.json");
  for (const bool use_resource : {false, true}) {
    Tally tally(use_resource ? "optimizers keras, resources" : "optimizers keras, references");
    for (const Json& c : golden["cases"]) {
      // Ours sums rows that are named several times first; Keras squares and clips them apart.
      if (c.contains("same_as_dense_sum") && !c["same_as_dense_sum"].get<bool>()) {
        tally.LeaveOut();
        continue;
      }
      tally.Add(c["name"], RunKeras(c, inputs, use_resource));
    }
  }
}

TEST(OptimizersGoldenTest, V1WeightsAndSlotsAfterEachStep) {
  const Json inputs = LoadGolden("optimizers/inputs.json");
  const Json golden = LoadGolden("optimizers/v1.json");
  for (const bool use_resource : {false, true}) {
    Tally tally(use_resource ? "optimizers v1, resources" : "optimizers v1, references");
    for (const Json& c : golden["cases"]) tally.Add(c["name"], RunV1(c, inputs, use_resource));
  }
}

std::string RunMovingAverage(const Json& c, bool use_resource) {
  Graph graph;
  const Scope root = graph.root();
  const std::vector<double> numbers = Numbers(c["initial"]);
  const Shape shape({static_cast<int64_t>(numbers.size())});
  const Variable w = MakeVariable(root, "w", Constant(root, FloatTensor(c["initial"], shape)),
                                  {.use_resource = use_resource});
  const Output value = Placeholder(root, kFloat, PartialShape({shape.dim(0)}));
  const Output step = Placeholder(root, kInt64, PartialShape({}));
  MovingAverageOptions options;
  const Arguments arguments(c["arguments"]);
  arguments.Get("decay", &options.decay);
  if (c["num_updates_is_global_step"].get<bool>()) options.num_updates = step;
  MovingAverage average(options);
  const Operation assign = Assign(root, w, value);
  const Variable list[] = {w};
  const Operation apply = average.Apply(root.WithControlDependencies({assign}), list);
  if (average.Average(w).name() != c["average_name"].get<std::string>()) return "wrong name";
  const Operation init = InitializeVariables(root);
  auto session = Session::Create(graph);
  if (!session.ok()) return session.status().ToString();
  if (Status s = session->RunTargets({init}); !s.ok()) return s.ToString();
  for (const Json& s : c["steps"]) {
    auto out = session->Run({{value, FloatTensor(s["value"], shape)},
                             {step, Tensor::Scalar<int64_t>(s["global_step"].get<int64_t>())}},
                            {}, {apply});
    if (!out.ok()) return out.status().ToString();
    auto got = session->Eval(average.Average(w).read);
    const std::string why = Difference(*got, s["average"], {2e-5, 2e-6});
    if (!why.empty()) return StrCat("step ", s["global_step"].dump(), ": ", why);
  }
  return "";
}

TEST(OptimizersGoldenTest, MovingAverages) {
  const Json golden = LoadGolden("optimizers/moving_average.json");
  Tally tally("moving averages");
  for (const Json& c : golden["cases"]) {
    for (const bool use_resource : {false, true}) {
      tally.Add(c["arguments"].dump(), RunMovingAverage(c, use_resource));
    }
  }
}

}  // namespace
}  // namespace millrace::testing
