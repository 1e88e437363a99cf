// SPDX-License-Identifier: Apache-2.0
#include "tests/strategies/golden_run.h"

#include <algorithm>

#include "base/status_macros.h"
#include "base/strings.h"
#include "tests/layers/layer_of.h"
#include "tests/training_goldens/loss_of.h"

namespace millrace::testing {
namespace {

constexpr int kEpochs = 2;

// The tests of optimizers say why: a gradient near zero was divided by its own size.
GoldenTolerance WeightTolerance(const Json& run) {
  return {1e-4, run["optimizer"]["class"] == "SGD" ? 1e-5 : 2e-4};
}

bool IsOff(const Json& run) { return run.value("policy", "") == "OFF"; }

PartialShape BatchesOf(const Tensor& data) {
  PartialShape shape(data.shape());
  shape.SetDim(0, -1);
  return shape;
}

Output WithShape(const Scope& scope, const Output& value, const PartialShape& shape) {
  return value.shape().IsFullyDefined() ? value : ops::EnsureShape(scope, value, shape);
}

}  // namespace

std::string RunName(const Json& run) {
  return StrCat(run["model"].get<std::string>(), " ", run["optimizer"]["class"].get<std::string>(),
                " ", run.value("replicas", 2), " replicas ", run.value("mode", ""),
                run.value("policy", ""));
}

std::shared_ptr<Layer> GoldenNetwork(const Json& network) {
  layers::LayerList list;
  for (const Json& entry : network["architecture"]["layers"]) {
    list.push_back(LayerOf(entry[0], entry[1], StrCat("layer_", list.size())));
  }
  return layers::Sequential(std::move(list), "model");
}

std::string PrepareModel(Model* model, const Json& network, CompileOptions options) {
  const Tensor x = TensorOf(network["data"]["x"]);
  Status status = model->Build({{BatchesOf(x), x.dtype()}});
  if (status.ok()) status = model->SetWeights(InitialWeightsOf(network));
  if (status.ok()) status = model->Compile(std::move(options));
  return status.ok() ? "" : status.ToString();
}

std::string WeightDifference(const StatusOr<std::vector<Tensor>>& got, const Json& want,
                             const Json& run) {
  if (!got.ok()) return got.status().ToString();
  if (got->size() != want.size()) return StrCat(got->size(), " weights, not ", want.size());
  for (std::size_t i = 0; i < got->size(); ++i) {
    const std::string why = Difference((*got)[i], want[i], WeightTolerance(run));
    if (!why.empty()) return StrCat("weight ", i, ": ", why);
  }
  return "";
}

HandLoop::HandLoop(const Json& network, const Json& run, std::shared_ptr<Strategy> strategy)
    : network_(network),
      run_(run),
      strategy_(std::move(strategy)),
      layers_(GoldenNetwork(network)),
      global_batch_(run["global_batch"].get<int64_t>()),
      x_(TensorOf(network["data"]["x"])),
      y_(TensorOf(network["data"]["y"])),
      compiled_(CompileOptionsOf(network, run)) {}

std::vector<Output> HandLoop::Replica(ReplicaContext& context, const PerReplica& x,
                                      const PerReplica& y) {
  const Scope& scope = context.scope();
  const auto i = static_cast<std::size_t>(context.local_replica());
  Pass pass(scope, strategy_->VariableScope(graph_.root()), /*training=*/true);
  const Output predicted = (*layers_)(pass, x.values[i]);
  const bool by_replica = run_.value("mode", "") == "replica_mean_over_replicas";
  const losses::Loss loss = *compiled_.loss.loss();
  const losses::Loss reduced = by_replica ? loss : loss.With(losses::Reduction::kSum);
  const float divisor = by_replica ? static_cast<float>(context.num_replicas_in_sync())
                                   : static_cast<float>(global_batch_);
  const Output own = Expr(scope, reduced(scope, y.values[i], predicted)) / divisor;
  std::vector<Output> results = {own, ops::GatherV2(scope, ops::Shape(scope, x.values[i]), 0, 0)};
  std::vector<Output> handles;
  for (const Variable& v : layers_->trainable_weights()) handles.push_back(v.handle);
  const auto gradients = Gradients(scope, {{own}}, handles);
  if (!gradients.ok()) return {};
  for (std::size_t k = 0; k < handles.size(); ++k) {
    const PartialShape shape = layers_->trainable_weights()[k].shape();
    results.push_back(context.AllReduce(ReduceOp::kSum, WithShape(scope, gradients->at(k), shape)));
  }
  return results;
}

std::string HandLoop::Build() {
  const Scope root = strategy_->RootScope(graph_.root());
  feeds_ = {Placeholder(root.WithOpName("x"), x_.dtype(), BatchesOf(x_)),
            Placeholder(root.WithOpName("y"), y_.dtype(), BatchesOf(y_))};
  const PerReplica x = IsOff(run_) ? PerReplica{{feeds_[0]}} : strategy_->Split(root, feeds_[0]);
  const PerReplica y = IsOff(run_) ? PerReplica{{feeds_[1]}} : strategy_->Split(root, feeds_[1]);
  const auto results =
      strategy_->Run(root, [&](ReplicaContext& context) { return Replica(context, x, y); });
  if (!results.ok()) return results.status().ToString();
  const std::vector<Variable> trained = layers_->trainable_weights();
  if (results->size() != trained.size() + 2) return "the replicas made too few values";
  losses_ = results->at(0).values;
  rows_ = results->at(1).values;
  loss_ = strategy_->Reduce(root, ReduceOp::kSum, results->at(0));
  std::vector<GradientAndVariable> gradients;
  std::vector<Operation> computed;
  for (std::size_t k = 0; k < trained.size(); ++k) {
    gradients_.push_back(results->at(k + 2).values[0]);
    gradients.push_back({gradients_.back(), trained[k]});
    for (const Output& g : results->at(k + 2).values) computed.push_back(g.op());
  }
  for (const Output& own : losses_) computed.push_back(own.op());
  const auto step = compiled_.optimizer.optimizer()->ApplyGradients(
      root.WithControlDependencies(computed), gradients, nullptr);
  if (!step.ok()) return step.status().ToString();
  step_ = *step;
  std::vector<Operation> begin;
  const std::vector<Tensor> initial = InitialWeightsOf(network_);
  const std::vector<Variable> weights = layers_->weights();
  if (initial.size() != weights.size()) return "another number of weights";
  const Operation initialized = InitializeVariables(root);
  const Scope after = root.WithControlDependencies({initialized});
  for (std::size_t i = 0; i < weights.size(); ++i) {
    begin.push_back(Assign(after, weights[i], initial[i]));
  }
  if (!graph_.status().ok()) return graph_.status().ToString();
  SessionOptions options;
  if (Status s = strategy_->ConfigureSession(&options); !s.ok()) return s.ToString();
  auto session = Session::Create(graph_, options);
  if (!session.ok()) return session.status().ToString();
  session_.emplace(*std::move(session));
  const auto begun = session_->Run({}, {}, begin);
  return begun.ok() ? "" : begun.status().ToString();
}

std::string HandLoop::CompareReplicas(const std::vector<Tensor>& got, const Json& want) const {
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const Json& loss = want.contains("local_loss") ? want["local_loss"] : want["replica_losses"][i];
    const Json& rows =
        want.contains("local_batch") ? want["local_batch"] : want["replica_batch"][i];
    const std::string why = Difference(got[1 + i], loss, kGoldenValues);
    if (!why.empty()) return StrCat("loss of replica ", i, ": ", why);
    if (got[1 + losses_.size() + i].scalar<int32_t>() != rows.get<int32_t>()) {
      return StrCat("rows of replica ", i, ": ", got[1 + losses_.size() + i].scalar<int32_t>());
    }
  }
  return "";
}

std::string HandLoop::Step(int64_t first, const Json& want) {
  const int64_t batch = IsOff(run_) ? global_batch_ / 2 : global_batch_;
  const int64_t end = std::min(x_.dim(0), first + batch);
  std::vector<Output> fetches = {loss_};
  fetches.insert(fetches.end(), losses_.begin(), losses_.end());
  fetches.insert(fetches.end(), rows_.begin(), rows_.end());
  fetches.insert(fetches.end(), gradients_.begin(), gradients_.end());
  const std::vector<Feed> feeds = {{feeds_[0], x_.Slice(first, end)},
                                   {feeds_[1], y_.Slice(first, end)}};
  const Operation targets[] = {step_};
  const auto got = session_->Run(feeds, fetches, targets);
  if (!got.ok()) return got.status().ToString();
  std::string why = Difference(got->at(0), want["loss"], kGoldenValues);
  if (!why.empty()) return "loss: " + why;
  why = CompareReplicas(*got, want);
  const bool has_gradients =
      want.contains("summed_gradients") && !want["summed_gradients"].is_null();
  if (!why.empty() || !has_gradients) return why;
  for (std::size_t k = 0; k < gradients_.size(); ++k) {
    why =
        Difference(got->at(1 + 2 * losses_.size() + k), want["summed_gradients"][k], kGoldenValues);
    if (!why.empty()) return StrCat("gradient ", k, ": ", why);
  }
  return "";
}

std::string HandLoop::Run() {
  if (std::string why = Build(); !why.empty()) return "build: " + why;
  const int64_t batch = IsOff(run_) ? global_batch_ / 2 : global_batch_;
  std::size_t next = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t first = 0; first < x_.dim(0); first += batch) {
      const std::string why = Step(first, run_["steps"].at(next));
      if (!why.empty()) return StrCat("step ", next, ": ", why);
      ++next;
    }
  }
  if (next != run_["steps"].size()) return StrCat(next, " steps");
  // Moving averages are changed by what the layers say, which a loop by hand may run or not.
  const std::vector<Variable> weights = layers_->weights(), trained = layers_->trainable_weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool is_trained = std::any_of(trained.begin(), trained.end(), [&](const Variable& v) {
      return v.handle == weights[i].handle;
    });
    if (!is_trained) continue;
    const auto value = session_->Eval(weights[i].read);
    if (!value.ok()) return value.status().ToString();
    const std::string why = Difference(*value, run_["final_weights"][i], WeightTolerance(run_));
    if (!why.empty()) return StrCat("final weight ", i, ": ", why);
  }
  return "";
}

}  // namespace millrace::testing
