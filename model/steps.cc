// SPDX-License-Identifier: Apache-2.0
#include "model/steps.h"

#include <algorithm>

#include "base/errors.h"
#include "base/log.h"
#include "base/options/option_checks.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/distributed_values.h"
#include "model/layers/layer_util.h"
#include "model/names.h"

namespace millrace::model {
namespace {

// What the metrics' variables and nodes stand under.
Scope MeasuresScope(const Scope& root) { return root.Named("metrics"); }

Graph MakeGraph(const ModelOptions& options) {
  Graph graph;
  if (options.seed != 0) graph.SetSeed(options.seed);
  return graph;
}

std::vector<std::string> OutputNamesOf(const Layer* root) {
  std::vector<std::string> names;
  if (root != nullptr) names = root->output_names();
  if (names.empty()) names.emplace_back();
  return names;
}

std::string TypeAndShape(const Output& value) {
  return StrCat(DataTypeName(value.dtype()), " ", value.shape().DebugString());
}

// A metric's result as the numbers that logs have.
StatusOr<std::vector<double>> NumbersOf(const Tensor& tensor) {
  std::vector<double> numbers;
  const auto append = [&](const auto* data) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      numbers.push_back(static_cast<double>(data[i]));
    }
  };
  switch (tensor.dtype()) {
    case kFloat:
      append(tensor.data<float>());
      break;
    case kDouble:
      append(tensor.data<double>());
      break;
    case kInt32:
      append(tensor.data<int32_t>());
      break;
    case kInt64:
      append(tensor.data<int64_t>());
      break;
    default:
      return errors::InvalidArgument("a metric's result is of type ", DataTypeName(tensor.dtype()),
                                     "; logs have floats and integers");
  }
  return numbers;
}

}  // namespace

const char* NameOf(Kind kind) {
  return kind == Kind::kTrain ? "train" : kind == Kind::kTest ? "test" : "predict";
}

Steps::Steps(std::shared_ptr<Layer> root, const ModelOptions& options, std::source_location where)
    : root_(std::move(root)),
      options_(options),
      where_(where),
      strategy_(options.strategy != nullptr ? options.strategy : DefaultStrategy()),
      graph_(MakeGraph(options)),
      variables_(strategy_->VariableScope(graph_.root())),
      measures_(MeasuresScope(strategy_->VariableScope(graph_.root()))),
      output_names_(OutputNamesOf(root_.get())) {
  const Status known = CheckPrecision();
  if (!known.ok()) graph_.root().RecordError(known, where);
}

Status Steps::CheckPrecision() const {
  const Status known = layers::ComputeTypeOf(options_.precision).status();
  if (known.ok()) return known;
  return WithMessage(known, StrCat("model '", options_.name, "': ", Message(known)));
}

StatusOr<Callable> Steps::MakeCallable(std::span<const Output> feeds,
                                       std::span<const Output> fetches,
                                       std::span<const Operation> targets) {
  MR_RETURN_IF_ERROR(graph_.status());
  MR_RETURN_IF_ERROR(Start());
  return session_->MakeCallable(feeds, fetches, targets);
}

Status Steps::Start() {
  if (!session_) {
    SessionOptions session_options = options_.session;
    MR_RETURN_IF_ERROR(strategy_->ConfigureSession(&session_options));
    MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph_, session_options));
    session_.emplace(std::move(session));
  }
  MR_ASSIGN_OR_RETURN(const std::vector<Variable> fresh, Initialize({kVariables, kLocalVariables}));
  if (!fresh.empty()) MR_RETURN_IF_ERROR(ShareInitialValues(fresh));
  // Those of replicas begin with what the others have now.
  return Initialize({kReplicaVariables}).status();
}

// Gives the variables of these collections that have no value yet their initial ones.
StatusOr<std::vector<Variable>> Steps::Initialize(std::initializer_list<const char*> collections) {
  std::vector<Operation> initializers;
  std::vector<Variable> fresh;
  for (const char* collection : collections) {
    for (const Variable& v : Variables(graph_, collection)) {
      if (initialized_.contains(v.name())) continue;
      initializers.push_back(v.initializer);
      fresh.push_back(v);
    }
  }
  if (fresh.empty()) return fresh;
  MR_RETURN_IF_ERROR(session_->Run({}, {}, initializers).status());
  for (const Variable& v : fresh) initialized_.insert(v.name());
  return fresh;
}

std::vector<Tensor> LabelsOf(const Samples& y) {
  const std::span<const Tensor> all = y.tensors();
  if (all.size() == 1 && all[0].dtype() == DataType::kInvalid) return {};
  return {all.begin(), all.end()};
}

std::vector<Tensor> FeedsOf(Kind kind, const Batch& batch) {
  std::vector<Tensor> feeds = batch.x;
  if (kind == Kind::kPredict) return feeds;
  feeds.insert(feeds.end(), batch.y.begin(), batch.y.end());
  if (batch.sample_weight.IsInitialized()) feeds.push_back(batch.sample_weight);
  return feeds;
}

void Steps::TellOfBuild(Kind kind, const Builds::Signature& signature) {
  const std::string line = builds_.Add(NameOf(kind), signature);
  if (!line.empty()) MR_LOG(kInfo, "model '", options_.name, "': ", line);
}

StatusOr<Steps::Function*> Steps::FunctionFor(Kind kind, const Batch& like) {
  MR_RETURN_IF_ERROR(graph_.status());
  MR_ASSIGN_OR_RETURN(const StepInputs inputs, InputsFor(kind, like));
  std::string key = NameOf(kind);
  for (const Output& y : inputs.y) key += " " + y.name();
  key += inputs.sample_weight.valid() ? " " + inputs.sample_weight.name() : " none";
  const auto found = functions_.find(key);
  if (found != functions_.end()) return &found->second;
  MR_ASSIGN_OR_RETURN(Function function, MakeFunction(kind, inputs));
  function.feeds = x_;
  function.feeds.insert(function.feeds.end(), inputs.y.begin(), inputs.y.end());
  if (inputs.sample_weight.valid()) function.feeds.push_back(inputs.sample_weight);
  MR_RETURN_IF_ERROR(Start());
  Builds::Signature signature;
  for (std::size_t i = 0; i < inputs.y.size(); ++i) {
    signature.emplace_back(inputs.y.size() == 1 ? "y" : StrCat("y of output ", i),
                           TypeAndShape(inputs.y[i]));
  }
  if (inputs.sample_weight.valid()) {
    signature.emplace_back("sample_weight", TypeAndShape(inputs.sample_weight));
  }
  TellOfBuild(kind, signature);
  return &functions_.emplace(key, std::move(function)).first->second;
}

Status Steps::Build(const std::vector<Model::InputSpec>& inputs) {
  if (inputs.empty()) {
    return errors::InvalidArgument(
        "Build was given no inputs: it needs the shape of each, such as {{.shape = {-1, 28, 28}}}");
  }
  MR_RETURN_IF_ERROR(MakeInputs(inputs));
  Batch like;
  for (const Output& x : x_) {
    const PartialShape shape = x.shape();
    if (!shape.has_rank() || shape.rank() == 0) {
      return errors::InvalidArgument("an input of shape ", shape.DebugString(),
                                     " has no axis for samples: write {-1, ...}");
    }
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    for (int64_t& dim : dims) dim = std::max<int64_t>(dim, 0);
    like.x.emplace_back(x.dtype(), Shape(dims));
  }
  return FunctionFor(Kind::kPredict, like).status();
}

Status Steps::BeginLoop() {
  constexpr int kMost = 16;
  if (loops_ >= kMost) {
    return errors::FailedPrecondition(
        "calls of Fit, Evaluate or Predict stand ", kMost,
        " deep within each other's callbacks: a "
        "callback that makes such a call must not be in the list that it gives it");
  }
  ++loops_;
  return OkStatus();
}

Status Steps::Run(Function* function, std::span<const Tensor> feeds, Logs* logs) {
  std::optional<Callable>& callable = logs != nullptr ? function->with_results : function->alone;
  if (!callable) {
    const Operation targets[] = {function->done};
    std::vector<Output> all_feeds = function->feeds, fetches;
    if (logs != nullptr) fetches = function->fetches;
    if (function->notices.valid()) {
      all_feeds.push_back(function->own_notice);
      fetches.push_back(function->notices);
    }
    MR_ASSIGN_OR_RETURN(callable, MakeCallable(all_feeds, fetches, targets));
  }
  if (function->notices.valid()) {
    std::vector<Tensor> all(feeds.begin(), feeds.end());
    all.push_back(OwnNotice());
    MR_RETURN_IF_ERROR(callable->Run(all, &fetched_));
    MR_RETURN_IF_ERROR(HearNotices(fetched_.back()));
    fetched_.pop_back();
  } else {
    MR_RETURN_IF_ERROR(callable->Run(feeds, &fetched_));
  }
  return logs != nullptr ? FillLogs(fetched_, logs) : OkStatus();
}

Status Steps::Take(Function* function) {
  if (!function->take) {
    const Output fetches[] = {function->parts.more};
    const Operation targets[] = {function->parts.take};
    MR_ASSIGN_OR_RETURN(function->take, MakeCallable({}, fetches, targets));
  }
  MR_RETURN_IF_ERROR(function->take->Run({}, &fetched_));
  MR_ASSIGN_OR_RETURN(const float rows, fetched_[0].TryScalar<float>());
  return rows > 0 ? OkStatus() : errors::OutOfRange("no worker has samples left");
}

StatusOr<std::vector<Tensor>> Steps::Predict(Function* function, std::span<const Tensor> feeds) {
  if (!function->with_results) {
    const Operation targets[] = {function->done};
    MR_ASSIGN_OR_RETURN(function->with_results,
                        MakeCallable(function->feeds, function->fetches, targets));
  }
  return function->with_results->Run(feeds);
}

Status Steps::FillLogs(std::span<const Tensor> results, Logs* logs) const {
  std::vector<Logs::Entry> entries;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string& name = compiled_->measures[i].name;
    MR_ASSIGN_OR_RETURN(const std::vector<double> numbers, NumbersOf(results[i]));
    if (results[i].rank() == 0) {
      entries.emplace_back(name, numbers[0]);
      continue;
    }
    for (std::size_t j = 0; j < numbers.size(); ++j) {
      entries.emplace_back(StrCat(name, "_", j), numbers[j]);
    }
  }
  std::sort(entries.begin(), entries.end());
  *logs = Logs(std::move(entries));
  return OkStatus();
}

StatusOr<Logs> Steps::Results() {
  if (!results_) {
    std::vector<Operation> after;
    const std::vector<Output> fetches = ReadResultsOfAll(RootScope().Named("results"), &after);
    MR_ASSIGN_OR_RETURN(results_, MakeCallable({}, fetches, after));
  }
  MR_RETURN_IF_ERROR(results_->Run({}, &fetched_));
  Logs logs;
  MR_RETURN_IF_ERROR(FillLogs(fetched_, &logs));
  return logs;
}

Status Steps::ResetMetrics() {
  // Before the first step of a kind there is nothing to reset.
  if (compiled_->measures[0].metric->variables().empty()) return OkStatus();
  if (!reset_) {
    std::vector<Operation> resets;
    for (const Measure& measure : compiled_->measures) {
      resets.push_back(measure.metric->Reset(measures_, where_));
    }
    MR_ASSIGN_OR_RETURN(reset_, MakeCallable({}, {}, resets));
  }
  return reset_->Run({}, &fetched_);
}

// What the mean of the loss divides by.
int64_t Steps::RowsSeen() {
  const std::vector<Variable>& sums = compiled_->measures[0].metric->variables();
  if (sums.size() < 2 || strategy_->num_replicas_in_sync() > 1) return -1;
  const StatusOr<Tensor> count = session_->Eval(sums[1].read);
  return count.ok() ? static_cast<int64_t>(count->TryScalar<float>().value_or(-1)) : -1;
}

optimizers::KerasOptimizer* Steps::keras_optimizer() const {
  auto* const scaled = dynamic_cast<optimizers::LossScale*>(optimizer());
  if (scaled != nullptr) return scaled->inner();
  return dynamic_cast<optimizers::KerasOptimizer*>(optimizer());
}

Status Steps::FinishTraining() {
  optimizers::KerasOptimizer* optimizer = keras_optimizer();
  if (optimizer == nullptr || !optimizer->iterations().handle.valid()) return OkStatus();
  Operation& finalize = finalize_[optimizer];
  if (!finalize.valid()) {
    const Operation finalized = optimizer->FinalizeVariables(RootScope(), where_);
    if (finalized.valid()) finalize = Group(RootScope(), UpdateMirrors(RootScope(), finalized));
  }
  MR_RETURN_IF_ERROR(graph_.status());
  return session_->RunTargets({finalize});
}

Output Steps::WholeOf(const Scope& scope, const ShardedVariable& variable) const {
  if (variable.parts.size() == 1) return variable.parts[0].variable.read;
  return ReadSharded(scope, variable, where_);
}

Operation Steps::AssignTo(const Scope& scope, const ShardedVariable& variable,
                          const Output& value) const {
  if (variable.parts.size() > 1) return AssignSharded(scope, variable, value, where_);
  return AssignWhole(scope, variable.parts[0].variable, value, where_);
}

StatusOr<std::vector<Tensor>> Steps::GetWeights() {
  if (!get_weights_) {
    const Scope scope = RootScope().Named("get_weights");
    std::vector<Output> values;
    for (const ShardedVariable& v : JoinParts(weights())) values.push_back(WholeOf(scope, v));
    if (values.empty()) {
      return errors::FailedPrecondition(
          "the model has no weights yet: call Build, or Fit, Evaluate or Predict, before");
    }
    MR_ASSIGN_OR_RETURN(get_weights_, MakeCallable({}, values, {}));
  }
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> values, get_weights_->Run({}));
  return values;
}

Status Steps::SetWeights(std::span<const Tensor> values) {
  const std::vector<ShardedVariable> variables = JoinParts(weights());
  if (variables.empty()) {
    return errors::FailedPrecondition(
        "the model has no weights yet: call Build, or Fit, Evaluate or Predict, before");
  }
  if (values.size() != variables.size()) {
    return errors::InvalidArgument("the model has ", variables.size(), " weights, and gets ",
                                   values.size(), " values");
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ShardedVariable& v = variables[i];
    const DataType dtype = v.parts[0].variable.dtype();
    if (values[i].dtype() == dtype && v.shape == values[i].shape()) continue;
    return errors::InvalidArgument("weight ", i, ", '", v.name, "', is of type ",
                                   DataTypeName(dtype), " and shape ", v.shape.DebugString(),
                                   "; its value is of type ", DataTypeName(values[i].dtype()),
                                   " and shape ", values[i].shape().DebugString());
  }
  if (!set_weights_) {
    const Scope scope = RootScope().Named("set_weights");
    std::vector<Output> feeds;
    std::vector<Operation> assigns;
    for (const ShardedVariable& v : variables) {
      feeds.push_back(
          Placeholder(scope, v.parts[0].variable.dtype(), PartialShape(v.shape), where_));
      assigns.push_back(AssignTo(scope, v, feeds.back()));
    }
    MR_ASSIGN_OR_RETURN(set_weights_, MakeCallable(feeds, {}, assigns));
  }
  return set_weights_->Run(values, &fetched_);
}

StatusOr<double> Steps::GetLearningRate() {
  const optimizers::KerasOptimizer* optimizer = keras_optimizer();
  if (optimizer == nullptr) {
    return errors::FailedPrecondition(
        compiled_ ? "this optimizer keeps no learning rate that can be read or set: compile the "
                    "model with one of millrace/keras_optimizers.h"
                  : "the model has no optimizer yet: call Compile before");
  }
  if (!optimizer->iterations().handle.valid()) {
    return errors::FailedPrecondition(
        "the learning rate is not there before the model has seen data to train with: set it where "
        "the optimizer is made, or in a callback");
  }
  if (!optimizer->learning_rate().handle.valid()) {
    return errors::FailedPrecondition(
        "This optimizer was created with a `LearningRateSchedule` object as its `learning_rate` "
        "constructor argument, hence its learning rate is not settable. (It is a schedule or a "
        "tensor: take a number instead)");
  }
  MR_ASSIGN_OR_RETURN(const Tensor rate, session_->Eval(optimizer->learning_rate().read));
  MR_ASSIGN_OR_RETURN(const float value, rate.TryScalar<float>());
  return static_cast<double>(value);
}

Status Steps::SetLearningRate(double rate) {
  OptionChecks checks("SetLearningRate");
  MR_RETURN_IF_ERROR(checks.Finite("the rate", rate).status());
  MR_RETURN_IF_ERROR(GetLearningRate().status());
  if (!set_rate_) {
    const Scope scope = RootScope().Named("set_learning_rate");
    const Output feed = Placeholder(scope, kFloat, PartialShape({}), where_);
    const Operation assign = Assign(scope, keras_optimizer()->learning_rate(), feed, where_);
    MR_ASSIGN_OR_RETURN(set_rate_, MakeCallable({{feed}}, {}, {{assign}}));
  }
  const Tensor value[] = {Tensor::Scalar<float>(static_cast<float>(rate))};
  return set_rate_->Run(value, &fetched_);
}

Direction Steps::DirectionOf(std::string_view name) const {
  if (!compiled_) return Direction::kAuto;
  if (name.starts_with("val_")) name.remove_prefix(4);
  for (const Measure& measure : compiled_->measures) {
    if (measure.name != name) continue;
    if (measure.direction != Direction::kAuto) return measure.direction;
    const bool up = ImprovesUpwards(measure.metric ? measure.metric->name() : measure.known_as);
    return up ? Direction::kUp : Direction::kDown;
  }
  return Direction::kAuto;
}

}  // namespace millrace::model
