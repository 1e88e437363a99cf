// SPDX-License-Identifier: Apache-2.0
// Batches that are the elements of a data set: its iterator is a part of the model's graph, and a
// step feeds nothing.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/distributed_values.h"
#include "millrace/math.h"
#include "model/loops.h"
#include "model/source.h"

namespace millrace::model {
namespace {

class Elements : public Source {
 public:
  Elements(Steps* steps, Kind kind, const Dataset& dataset, Steps::Function* function)
      : steps_(*steps), kind_(kind), dataset_(dataset), function_(function) {}

  int64_t count() const override {
    const int64_t count = function_->count;
    return count == Dataset::kInfinite  ? kInfinite
           : count == Dataset::kUnknown ? seen_all_.value_or(kUnknown)
                                        : count;
  }
  std::string Size() const override { return StrCat("the data set ", dataset_.DebugString()); }
  Status Restart() override {
    seen_ = 0;
    at_end_ = false;
    began_ = true;
    walk_ = ++function_->walks;
    return steps_.BeginData(function_);
  }
  bool at_end() const override {
    return at_end_ || (function_->count >= 0 && seen_ >= function_->count);
  }
  // What the loop knows, then where the iterator is.
  StatusOr<Tensor> Position() override {
    if (!began_) return Tensor(kString, Shape({0}));
    if (at_end() && !at_end_ && !function_->parts.take.valid()) {
      // So that whoever goes on from here need not make all elements again to come to the end.
      const Status status = steps_.session()->RunTargets({function_->iterator.next[0].op()});
      if (!errors::IsOutOfRange(status)) MR_RETURN_IF_ERROR(status);
    }
    MR_ASSIGN_OR_RETURN(const Tensor iterator, steps_.PositionOf(function_));
    Tensor position(kString, Shape({kOwnEntries + iterator.num_elements()}));
    auto* entries = position.data<std::string>();
    entries[0] = StrCat(seen_);
    entries[1] = StrCat(seen_all_.value_or(-1));
    entries[2] = at_end_ ? "end" : "";
    std::copy_n(iterator.data<std::string>(), iterator.num_elements(), entries + kOwnEntries);
    return position;
  }
  Status SetPosition(const Tensor& position) override {
    if (position.IsInitialized() && position.num_elements() == 0) return OkStatus();
    int64_t seen = 0, all = 0;
    const std::string* entries =
        position.dtype() == kString ? position.data<std::string>() : nullptr;
    if (entries == nullptr || position.num_elements() <= kOwnEntries ||
        !ParseInt64(entries[0], &seen) || !ParseInt64(entries[1], &all)) {
      return errors::InvalidArgument("the position in the data is not one in the data set ",
                                     dataset_.DebugString(), ": go on with the same data");
    }
    MR_RETURN_IF_ERROR(Restart());
    Tensor iterator(kString, Shape({position.num_elements() - kOwnEntries}));
    std::copy(entries + kOwnEntries, entries + position.num_elements(),
              iterator.data<std::string>());
    MR_RETURN_IF_ERROR(steps_.SetPositionOf(function_, iterator));
    seen_ = seen;
    if (all >= 0) seen_all_ = all;
    at_end_ = entries[2] == "end";
    return OkStatus();
  }
  Status Step(Logs* logs) override {
    MR_RETURN_IF_ERROR(CheckWalk());
    if (function_->parts.take.valid()) MR_RETURN_IF_ERROR(After(steps_.Take(function_), 0));
    return After(steps_.Run(function_, {}, logs));
  }
  Status Execute(int64_t limit, Logs* logs, int64_t* done) override {
    if (!steps_.HasExecutions(*function_)) return Source::Execute(limit, logs, done);
    *done = 0;
    if (at_end()) return OkStatus();
    MR_RETURN_IF_ERROR(CheckWalk());
    if (function_->count >= 0) limit = std::min(limit, function_->count - seen_);
    const Status status = steps_.Execute(kind_, function_, {}, /*batch_size=*/0, limit, logs, done);
    seen_ += *done;
    return After(status, 0);
  }
  StatusOr<std::vector<Tensor>> Predict() override {
    MR_RETURN_IF_ERROR(CheckWalk());
    StatusOr<std::vector<Tensor>> predicted = steps_.Predict(function_, {});
    MR_RETURN_IF_ERROR(After(predicted.status()));
    return predicted;
  }

 private:
  static constexpr int64_t kOwnEntries = 3;  // of a position

  // The iterator is that of all calls of this kind with this data set: one within another, of a
  // callback, has taken its elements.
  Status CheckWalk() const {
    if (walk_ == function_->walks) return OkStatus();
    return errors::FailedPrecondition("a call within a callback has read ", Size(),
                                      ", which this call was reading: give it a "
                                      "data set of its own, made anew");
  }

  // What made so many steps if it is good.
  Status After(const Status& status, int64_t steps = 1) {
    if (status.ok()) seen_ += steps;
    if (errors::IsOutOfRange(status)) {
      at_end_ = true;
      seen_all_ = seen_;
    }
    return status.ok() ? status : ExplainFailure(steps_, status);
  }

  Steps& steps_;
  const Kind kind_;
  const Dataset dataset_;
  Steps::Function* const function_;
  int64_t seen_ = 0, walk_ = 0;
  std::optional<int64_t> seen_all_;
  bool at_end_ = false, began_ = false;
};

// The weights of classes become a table in the graph.
constexpr int64_t kMostClass = (1 << 24) - 1;

// The weight of each sample from that of its class, as nodes.
Output WeightsOf(const std::map<int64_t, double>& class_weight, const Scope& scope,
                 const Output& y) {
  const int64_t first = class_weight.begin()->first, last = class_weight.rbegin()->first;
  // A row before and one after the classes are for all others.
  const int64_t rows = last - first + 3;
  Tensor table(kFloat, Shape({rows}));
  std::fill_n(table.data<float>(), rows, 1.0f);
  for (const auto& [label, weight] : class_weight) {
    table.data<float>()[label - first + 1] = static_cast<float>(weight);
  }
  const int rank = y.shape().rank();
  const bool one_hot = rank == 2 && y.shape().dim(1) != 1;
  const Expr labels = one_hot     ? Expr(scope, ops::ArgMax(scope, y, -1))
                      : rank == 2 ? Expr(scope, y).Squeeze(-1)
                                  : Expr(scope, y);
  const Expr within = labels.Cast(kInt64).Clip(first - 1, last + 1);
  return ops::GatherV2(scope, table, within - (first - 1), 0);
}

}  // namespace

// Makes the inputs of a model that has none, of the first components.
Status Steps::CheckComponents(const Dataset& dataset) {
  const std::size_t components = dataset.dtypes().size();
  const std::size_t inputs_given = x_.empty() ? 1 : x_.size();
  const std::size_t outputs = output_names_.size(), most = inputs_given + outputs + 1;
  if (components < inputs_given || components > most) {
    return errors::InvalidArgument("an element of the data set ", dataset.DebugString(), " has ",
                                   components, " components; a model with ", inputs_given,
                                   " input(s) and ", outputs, " output(s) takes ", inputs_given,
                                   " to ", most,
                                   outputs == 1 ? ": inputs, y, weights of samples"
                                                : ": inputs, y of each output, weights of samples");
  }
  std::vector<Model::InputSpec> specs;
  for (std::size_t i = 0; i < components; ++i) {
    PartialShape shape = dataset.shapes()[i];
    if (!shape.has_rank() || shape.rank() == 0) {
      return errors::InvalidArgument(
          "component ", i, " of an element of the data set ", dataset.DebugString(),
          " is of shape ", shape.DebugString(),
          ", and the model wants batches: call Batch(n) on the data set");
    }
    shape.SetDim(0, -1);
    if (i < inputs_given) specs.push_back({shape, dataset.dtypes()[i]});
  }
  MR_RETURN_IF_ERROR(MakeInputs(specs));
  for (std::size_t i = 0; i < inputs_given; ++i) {
    if (x_[i].dtype() != specs[i].dtype || !x_[i].shape().IsCompatibleWith(specs[i].shape)) {
      return errors::InvalidArgument(
          "the model was made for inputs of type ", DataTypeName(x_[i].dtype()), " and shape ",
          x_[i].shape().DebugString(), ", and the data set ", dataset.DebugString(), " has type ",
          DataTypeName(specs[i].dtype), " and shape ", dataset.shapes()[i].DebugString(),
          " (batches are made with Batch(n))");
    }
  }
  return OkStatus();
}

// Inputs, y, weights of samples, as far as there are any.
StepInputs Steps::InputsOf(Kind kind, const Scope& scope, std::span<const Output> components) {
  StepInputs inputs;
  const std::size_t weights = x_.size() + output_names_.size();
  Output first = components[0];
  if (kind != Kind::kPredict && components.size() > weights) {
    // Where the data are, so that what is wrong is found with its place.
    const Scope beside = scope.ColocateWith(components[weights].op());
    inputs.sample_weight = ops::CheckNumerics(
        beside, ops::Cast(beside, components[weights], kFloat),
        StrCat(kBadWeight, " (component ", weights, " of an element of the data set)"));
    // Layers wait for it: no state of theirs changes in a step that fails.
    const Scope after =
        scope.ColocateWith(first.op()).WithControlDependencies({inputs.sample_weight.op()});
    first = ops::Identity(after, first);
  }
  for (std::size_t i = 0; i < x_.size(); ++i) {
    inputs.x.push_back(InFloats(scope, i == 0 ? first : components[i]));
  }
  if (kind == Kind::kPredict) return inputs;
  for (std::size_t i = x_.size(); i < std::min(weights, components.size()); ++i) {
    inputs.y.push_back(components[i]);
  }
  return inputs;
}

StatusOr<StepInputs> Steps::InputsFor(Kind kind, const Dataset& dataset, Function* made) {
  MR_RETURN_IF_ERROR(CheckComponents(dataset));
  const Scope scope = RootScope().Named(StrCat(NameOf(kind), "_data"));
  // Predictions are made by each worker for itself, of all rows.
  if (strategy_->num_workers() == 1 || kind == Kind::kPredict) {
    if (datasets_[made->data.number].form) {
      FedIterator fed = MakeFedIterator(scope, dataset, "iterator", where_);
      made->iterator = fed.iterator;
      made->data.feeds = std::move(fed.feeds);
    } else {
      made->iterator = MakeIterator(scope, dataset, "iterator", where_);
    }
    MR_RETURN_IF_ERROR(graph_.status());
    const StepInputs inputs = InputsOf(kind, scope, made->iterator.next);
    MR_RETURN_IF_ERROR(graph_.status());
    return inputs;
  }
  const DistributedIterator parts =
      MakeDistributedIterator(scope, *strategy_, dataset, "iterator", where_);
  MR_RETURN_IF_ERROR(graph_.status());
  made->iterator = parts.pieces;
  made->parts = parts;
  made->count = parts.steps;
  StepInputs inputs;
  inputs.rows = parts.rows;
  for (int i = 0; i < strategy_->num_local_replicas(); ++i) {
    std::vector<Output> components;
    for (const PerReplica& next : parts.next) {
      components.push_back(next.values[static_cast<std::size_t>(i)]);
    }
    inputs.parts.push_back(InputsOf(kind, scope, components));
  }
  MR_RETURN_IF_ERROR(graph_.status());
  return inputs;
}

// Whether the session is in this process: then nothing is sent where tensors are fed.
bool Steps::RunsHere() const {
  SessionOptions options = options_.session;
  return strategy_->num_workers() == 1 && strategy_->ConfigureSession(&options).ok() &&
         options.target.empty();
}

// Its place in the list, where it may take that of one that is gone: whoever reads a data set holds
// on to it.
std::size_t Steps::NumberOf(const Dataset& dataset) {
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    if (datasets_[i].stage.lock() == dataset.stage()) return i;
  }
  KnownDataset made{dataset.stage(), std::nullopt, 0};
  if (RunsHere()) {
    if (StatusOr<DatasetForm> form = FormOf(dataset); form.ok()) made.form = *std::move(form);
  }
  for (std::size_t i = 0; made.form && i < datasets_.size(); ++i) {
    KnownDataset& other = datasets_[i];
    if (!other.form || other.form->text != made.form->text || !other.stage.expired()) continue;
    made.owner = other.owner + 1;
    other = std::move(made);
    return i;
  }
  datasets_.push_back(std::move(made));
  return datasets_.size() - 1;
}

Status Steps::BeginData(Function* function) {
  DataOf& data = function->data;
  const KnownDataset& known = datasets_[data.number];
  if (!known.form) return session_->RunTargets({function->iterator.initializer});
  if (!data.begin) {
    const Operation targets[] = {function->iterator.initializer};
    MR_ASSIGN_OR_RETURN(data.begin, MakeCallable(data.feeds, {}, targets));
  }
  MR_RETURN_IF_ERROR(data.begin->Run(known.form->tensors, &fetched_));
  if (!known.form->has_seeds) return OkStatus();
  // Orders for a seed go on with each walk, and begin anew with another data set.
  if (!data.first_position.IsInitialized()) {
    MR_ASSIGN_OR_RETURN(data.first_position, PositionOf(function));
  } else if (data.owner != known.owner) {
    MR_RETURN_IF_ERROR(SetPositionOf(function, data.first_position));
  }
  data.owner = known.owner;
  return OkStatus();
}

StatusOr<Steps::Function*> Steps::FunctionFor(Kind kind, const Dataset& dataset,
                                              const std::string& key_of_change,
                                              const ChangeInputs& change) {
  MR_RETURN_IF_ERROR(dataset.status());
  MR_RETURN_IF_ERROR(graph_.status());
  const std::size_t number = NumberOf(dataset);
  const std::string key = StrCat(NameOf(kind), " of data set ", number, key_of_change);
  if (const auto found = functions_.find(key); found != functions_.end()) {
    // One that was made for another data set of the same form has that one's number of batches.
    if (datasets_[number].form) found->second.count = dataset.cardinality();
    return &found->second;
  }
  Function given;
  given.count = dataset.cardinality();
  given.data.number = number;
  MR_ASSIGN_OR_RETURN(StepInputs inputs, InputsFor(kind, dataset, &given));
  if (inputs.parts.empty()) MR_RETURN_IF_ERROR(change(RootScope(), &inputs));
  for (StepInputs& part : inputs.parts) MR_RETURN_IF_ERROR(change(RootScope(), &part));
  MR_ASSIGN_OR_RETURN(Function function, MakeFunction(kind, inputs));
  function.iterator = given.iterator;
  function.data = std::move(given.data);
  function.parts = given.parts;
  function.count = given.count;
  MR_RETURN_IF_ERROR(Start());
  Builds::Signature signature = {
      {"the data set", StrCat("number ", number + 1, ", ", dataset.DebugString())}};
  if (!key_of_change.empty()) signature.emplace_back("class_weight", key_of_change);
  TellOfBuild(kind, signature);
  return &functions_.emplace(key, std::move(function)).first->second;
}

StatusOr<std::unique_ptr<Source>> MakeSource(Steps* steps, Kind kind, const Dataset& dataset,
                                             const std::map<int64_t, double>& class_weight) {
  const auto weigh = [&](const Scope& scope, StepInputs* inputs) -> Status {
    if (class_weight.empty()) return OkStatus();
    if (inputs->sample_weight.valid()) {
      return errors::InvalidArgument(
          "the data set has weights of samples: give no class_weight, multiply it into them");
    }
    if (inputs->y.size() != 1 || inputs->y[0].shape().rank() < 1 ||
        inputs->y[0].shape().rank() > 2) {
      return errors::InvalidArgument(
          "class_weight needs a model with one output, and one label, or one row of classes, for "
          "each sample");
    }
    if (class_weight.rbegin()->first > kMostClass || class_weight.begin()->first < -kMostClass) {
      return errors::InvalidArgument("class_weight names the class ",
                                     class_weight.begin()->first < -kMostClass
                                         ? class_weight.begin()->first
                                         : class_weight.rbegin()->first,
                                     "; of a data set classes may be numbered up to ", kMostClass);
    }
    inputs->sample_weight = WeightsOf(class_weight, scope, inputs->y[0]);
    return OkStatus();
  };
  std::string key;
  for (const auto& [label, weight] : class_weight) StrAppend(&key, " ", label, ":", weight);
  MR_ASSIGN_OR_RETURN(Steps::Function * function, steps->FunctionFor(kind, dataset, key, weigh));
  return std::make_unique<Elements>(steps, kind, dataset, function);
}

}  // namespace millrace::model
