// SPDX-License-Identifier: Apache-2.0
// Values of a model's variables and places in its data, as files have them.
#include <map>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint_layout.h"
#include "millrace/distributed_values.h"
#include "millrace/iterator_position.h"
#include "model/steps.h"

namespace millrace::model {
namespace {

// Adds a child for each part of a name: "lstm_cell/kernel".
void AddByPath(Trackable object, std::string_view path, const Trackable& variable) {
  for (std::size_t slash; (slash = path.find('/')) != std::string_view::npos;
       path.remove_prefix(slash + 1)) {
    const std::string name(path.substr(0, slash));
    std::optional<Trackable> child = object.child(name);
    if (!child) {
      child.emplace();
      object.Add(name, *child);
    }
    object = *child;
  }
  object.Add(std::string(path), variable);
}

// The weights that are the layer's own by their names within it, and its layers, "layer-0" and so
// on; those with weights are "layer_with_weights-0" as well.
Trackable ObjectOf(const Layer& layer) {
  Trackable object;
  std::set<std::string> inner;
  int with_weights = 0, number = 0;
  for (const Layer* child : layer.layers()) {
    const Trackable of_child = ObjectOf(*child);
    object.Add(StrCat("layer-", number++), of_child);
    if (child->weights().empty()) continue;
    object.Add(StrCat("layer_with_weights-", with_weights++), of_child);
    for (const Variable& v : child->weights()) inner.insert(v.name());
  }
  for (const ShardedVariable& v : JoinParts(layer.weights())) {
    if (inner.contains(v.parts[0].variable.name())) continue;
    const std::string start = StrCat(layer.name(), "/");
    const std::size_t at = v.name.find(start);
    const std::string_view name = v.name;
    AddByPath(object, at == std::string::npos ? name : name.substr(at + start.size()),
              TrackableOf(v));
  }
  return object;
}

}  // namespace

std::vector<ShardedVariable> Steps::AllVariables() const {
  std::vector<Variable> all = Variables(graph_, kVariables);
  for (Variable& v : Variables(graph_, kLocalVariables)) all.push_back(std::move(v));
  return JoinParts(all);
}

StatusOr<std::map<std::string, Tensor>> Steps::ReadVariables() {
  const std::vector<ShardedVariable> variables = AllVariables();
  if (!read_variables_ || variable_names_.size() != variables.size()) {
    const Scope scope = RootScope().Named("read_variables");
    variable_names_.clear();
    write_variables_.reset();
    std::vector<Output> values;
    for (const ShardedVariable& v : variables) {
      variable_names_.push_back(v.name);
      values.push_back(WholeOf(scope, v));
    }
    MR_ASSIGN_OR_RETURN(read_variables_, MakeCallable({}, values, {}));
  }
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, read_variables_->Run({}));
  std::map<std::string, Tensor> named;
  for (std::size_t i = 0; i < values.size(); ++i) named.emplace(variable_names_[i], values[i]);
  return named;
}

Status Steps::CheckVariables(const std::map<std::string, Tensor>& values) const {
  for (const ShardedVariable& v : AllVariables()) {
    const auto found = values.find(v.name);
    if (found == values.end()) {
      return errors::InvalidArgument("the state of training has no '", v.name,
                                     "', which the model has: it is that of another program; go on "
                                     "with the same layers, optimizer and metrics, or begin anew "
                                     "in another directory");
    }
    const Tensor& value = found->second;
    const DataType dtype = v.parts[0].variable.dtype();
    if (value.dtype() == dtype && v.shape == value.shape()) continue;
    return errors::InvalidArgument("'", v.name, "' is of type ", DataTypeName(dtype), " and shape ",
                                   v.shape.DebugString(), ", and in the state of training of type ",
                                   DataTypeName(value.dtype()), " and shape ",
                                   value.shape().DebugString());
  }
  return OkStatus();
}

Status Steps::WriteVariables(const std::map<std::string, Tensor>& values) {
  MR_RETURN_IF_ERROR(CheckVariables(values));
  const std::vector<ShardedVariable> variables = AllVariables();
  if (!write_variables_ || variable_names_.size() != variables.size()) {
    read_variables_.reset();
    variable_names_.clear();
    const Scope scope = RootScope().Named("write_variables");
    std::vector<Output> feeds;
    std::vector<Operation> assigns;
    for (const ShardedVariable& v : variables) {
      variable_names_.push_back(v.name);
      feeds.push_back(
          Placeholder(scope, v.parts[0].variable.dtype(), PartialShape(v.shape), where_));
      assigns.push_back(AssignTo(scope, v, feeds.back()));
    }
    MR_ASSIGN_OR_RETURN(write_variables_, MakeCallable(feeds, {}, assigns));
  }
  std::vector<Tensor> fed;
  for (const std::string& name : variable_names_) fed.push_back(values.at(name));
  return write_variables_->Run(fed, &fetched_);
}

StatusOr<Tensor> Steps::PositionOf(Function* function) {
  if (!function->position) {
    const Output position =
        IteratorPosition(RootScope().Named("position"), function->iterator, where_);
    MR_RETURN_IF_ERROR(graph_.status());
    MR_ASSIGN_OR_RETURN(function->position, MakeCallable({}, {{position}}, {}));
  }
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> fetched, function->position->Run({}));
  return fetched[0];
}

Status Steps::SetPositionOf(Function* function, const Tensor& position) {
  if (!function->set_position) {
    const Scope scope = RootScope().Named("set_position");
    const Output feed = Placeholder(scope, kString, PartialShape({-1}), where_);
    const Operation set = SetIteratorPosition(scope, function->iterator, feed, where_);
    MR_RETURN_IF_ERROR(graph_.status());
    MR_ASSIGN_OR_RETURN(function->set_position, MakeCallable({{feed}}, {}, {{set}}));
  }
  const Tensor fed[] = {position};
  return function->set_position->Run(fed, &fetched_);
}

StatusOr<Checkpoint*> Steps::WeightsFile() {
  if (weights().empty()) {
    return errors::FailedPrecondition(
        "the model has no weights yet: call Build, or Fit, Evaluate or Predict, before");
  }
  if (weights_file_ == nullptr) {
    std::map<std::string, Trackable> children;
    const Trackable root = ObjectOf(*root_);
    MR_ASSIGN_OR_RETURN(weights_file_, Checkpoint::Create(graph_, children));
    weights_file_->root() = root;
  }
  return weights_file_.get();
}

Status Steps::SaveWeights(const std::string& prefix, WeightsFormat format) {
  MR_ASSIGN_OR_RETURN(Checkpoint* const file, WeightsFile());
  const WorkerPrefix own(strategy_->is_chief(), strategy_->worker(), prefix);
  if (format == WeightsFormat::kObjects) return file->Write(*session_, own.path());
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, GetWeights());
  const std::vector<ShardedVariable> variables = JoinParts(weights());
  std::map<std::string, Tensor> named;
  for (std::size_t i = 0; i < values.size(); ++i) named.emplace(variables[i].name, values[i]);
  return WriteTensors(own.path(), named);
}

Status Steps::SaveWeightsAsync(const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(Checkpoint* const file, WeightsFile());
  return strategy_->is_chief() ? file->WriteAsync(*session_, prefix) : OkStatus();
}

Status Steps::SyncWeights() {
  return weights_file_ == nullptr ? OkStatus() : weights_file_->Sync();
}

Status Steps::LoadWeights(const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(Checkpoint* const file, WeightsFile());
  MR_ASSIGN_OR_RETURN(LoadStatus loaded, file->Read(*session_, prefix));
  const Status matched = loaded.AssertExistingObjectsMatched();
  loaded.ExpectPartial();
  return matched.ok() ? matched : Annotate(matched, StrCat("; of the checkpoint ", prefix));
}

}  // namespace millrace::model
