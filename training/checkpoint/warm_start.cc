// SPDX-License-Identifier: Apache-2.0
// Initial values of variables that come from a checkpoint.
#include "millrace/saver.h"

#include <regex>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "graph/dataflow_graph.h"
#include "io/filesystem.h"
#include "io/tensor_slice.h"
#include "millrace/checkpoint.h"
#include "millrace/distributed_values.h"
#include "millrace/ops.h"
#include "training/checkpoint/save_nodes.h"

namespace millrace {
namespace {

// A name that stands for all names below it.
bool IsScope(std::string_view name) { return name.ends_with('/'); }

// What is in a checkpoint, and where.
class Source {
 public:
  static StatusOr<Source> Open(const std::string& checkpoint) {
    Source source;
    source.prefix_ = checkpoint;
    if (PosixFileSystem()->IsDirectory(checkpoint)) {
      source.prefix_ = LatestCheckpoint(checkpoint);
      if (source.prefix_.empty()) {
        return errors::NotFound("there is no checkpoint in ", checkpoint,
                                " to take initial values from");
      }
    }
    MR_ASSIGN_OR_RETURN(source.reader_, CheckpointReader::Open(source.prefix_));
    return source;
  }

  const std::string& prefix() const { return prefix_; }
  // NotFound, InvalidArgument: what is stored as `key` is nothing for the variable.
  Status CheckFits(const std::string& key, const SavedVariable& saved) const {
    const CheckpointReader::Entry* const entry = reader_->Find(key);
    const std::string& name = saved.variable.name();
    if (entry == nullptr) {
      return errors::NotFound("Tensor ", key, ", which variable ", name,
                              " is to begin with, is not found in checkpoint ", prefix_, " of ",
                              reader_->entries().size(), " tensors");
    }
    const DataType wanted = BaseType(saved.variable.dtype());
    if (entry->dtype != wanted) {
      return errors::InvalidArgument("variable ", name, " is of ", DataTypeName(wanted),
                                     ", but tensor ", key, " in ", prefix_, " of ",
                                     DataTypeName(entry->dtype));
    }
    PartialShape whole = saved.variable.shape();
    if (!saved.slice.empty()) {
      Shape shape;
      TensorSlice slice;
      MR_RETURN_IF_ERROR(ParseShapeAndSlice(saved.slice, &shape, &slice));
      whole = PartialShape(shape);
    }
    if (whole.IsCompatibleWith(entry->shape)) return OkStatus();
    return errors::InvalidArgument("Shape of variable ", name, " (", whole.DebugString(),
                                   ") doesn't match with shape of tensor ", key, " (",
                                   entry->shape.DebugString(), ") from checkpoint ", prefix_);
  }

 private:
  std::string prefix_;
  std::unique_ptr<CheckpointReader> reader_;
};

// A variable, or a part of one, and the tensor that it begins with.
struct Take {
  std::string key;
  SavedVariable into;
};

// The name in the checkpoint of what is called `name` in the program: one scope in place of the
// other. "/" is the root of either.
std::string Renamed(const std::string& name, const std::string& program_scope,
                    const std::string& checkpoint_scope) {
  const std::string rest = program_scope == "/" ? name : name.substr(program_scope.size());
  return checkpoint_scope == "/" ? rest : checkpoint_scope + rest;
}

Status AddTakes(const std::string& from, const std::string& to,
                std::span<const SavedVariable> variables, std::vector<Take>* takes) {
  const std::size_t before = takes->size();
  if (IsScope(to) != IsScope(from)) {
    return errors::InvalidArgument("Assignment map with scope only name ", IsScope(to) ? to : from,
                                   " should map to scope only, not ", IsScope(to) ? from : to,
                                   ". Should be 'scope/': 'other_scope/'.");
  }
  for (const SavedVariable& v : variables) {
    if (!IsScope(to) && v.key == to) takes->push_back({from, v});
    if (IsScope(to) && (to == "/" || v.key.starts_with(to))) {
      takes->push_back({Renamed(v.key, to, from), v});
    }
  }
  if (takes->size() > before) return OkStatus();
  return errors::InvalidArgument("the graph has no variable ", IsScope(to) ? "below " : "", to,
                                 ", which is to begin with ", from, " of a checkpoint");
}

// What the variable's initializer assigns is `value` from now on.
Status Rewire(GraphState& state, const Variable& variable, const Output& value) {
  if (!variable.initializer.valid()) {
    return errors::FailedPrecondition("variable ", variable.name(),
                                      " has no initializer of its own ('", variable.name(),
                                      "/Assign'), which could take a value of a checkpoint");
  }
  Node* const assign = variable.initializer.node();
  for (Edge* edge : assign->in_edges()) {
    if (edge->IsControl() || edge->dst_input != 1) continue;
    state.graph->RemoveEdge(edge);
    return state.graph->AddEdge(value.op().node(), value.index(), assign, 1).status();
  }
  return errors::Internal("{{node ", assign->name(), "}} assigns nothing");
}

// As TensorFlow reads them: on the CPU of the variable's task.
Status BeginWith(Graph& graph, const Source& source, const Take& take) {
  std::vector<Variable> variables = CopiesOf(take.into.variable);
  variables.push_back(take.into.variable);
  const Scope scope = graph.root().Named("checkpoint_initializer");
  for (const Variable& v : variables) {
    const Scope reading = scope.WithDevice(FileDevice(v.handle.op().device()));
    const auto text = [&reading](const std::string& value) {
      return Constant(reading, Tensor::FromValues<std::string>(std::vector{value}, Shape({1})));
    };
    const std::vector<Output> read =
        ops::RestoreV2(reading, Constant(reading, Tensor::String(source.prefix())), text(take.key),
                       text(take.into.slice), {BaseType(v.dtype())});
    MR_RETURN_IF_ERROR(graph.status());
    MR_RETURN_IF_ERROR(Rewire(*graph.state(), v, read[0]));
  }
  return OkStatus();
}

std::vector<SavedVariable> AllVariables(Graph& graph) {
  std::vector<SavedVariable> all = SavedVariables(graph.root());
  const std::vector<SavedVariable> local = SavedVariables(graph.root(), kLocalVariables);
  all.insert(all.end(), local.begin(), local.end());
  return all;
}

StatusOr<std::regex> Pattern(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    return errors::InvalidArgument("'", text, "', which names variables to warm-start, is no ",
                                   "regular expression: ", error.what());
  }
}

// The names that one of the patterns matches from the beginning.
StatusOr<std::set<std::string>> Chosen(const std::set<std::string>& names,
                                       const std::vector<std::string>& patterns) {
  std::set<std::string> chosen;
  for (const std::string& text : patterns) {
    MR_ASSIGN_OR_RETURN(const std::regex pattern, Pattern(text));
    for (const std::string& name : names) {
      if (std::regex_search(name, pattern, std::regex_constants::match_continuous)) {
        chosen.insert(name);
      }
    }
  }
  return chosen;
}

}  // namespace

Status InitFromCheckpoint(Graph& graph, const std::string& checkpoint,
                          const std::map<std::string, std::string>& assignment_map) {
  MR_RETURN_IF_ERROR(graph.status());
  const std::vector<SavedVariable> variables = AllVariables(graph);
  std::vector<Take> takes;
  for (const auto& [from, to] : assignment_map) {
    MR_RETURN_IF_ERROR(AddTakes(from, to, variables, &takes));
  }
  MR_ASSIGN_OR_RETURN(const Source source, Source::Open(checkpoint));
  // All or none.
  for (const Take& take : takes) MR_RETURN_IF_ERROR(source.CheckFits(take.key, take.into));
  for (const Take& take : takes) MR_RETURN_IF_ERROR(BeginWith(graph, source, take));
  return graph.status();
}

Status WarmStart(Graph& graph, const WarmStartOptions& options) {
  std::set<std::string> names;
  std::set<const Node*> trainable;
  for (const Variable& v : Variables(graph, kTrainableVariables)) {
    trainable.insert(v.handle.op().node());
  }
  for (const SavedVariable& v : SavedVariables(graph.root())) {
    if (options.only_trainable && !trainable.contains(v.variable.handle.op().node())) continue;
    names.insert(v.key);
  }
  MR_ASSIGN_OR_RETURN(const std::set<std::string> chosen, Chosen(names, options.variables));
  if (chosen.empty()) {
    return errors::InvalidArgument("no variable is to be warm-started: of ", names.size(),
                                   " names none begins with ", StrJoin(options.variables, " or "),
                                   "; there are: ", StrJoin(names, ", "));
  }
  std::map<std::string, std::string> unused = options.previous_names;
  std::map<std::string, std::string> assignments;
  for (const std::string& name : chosen) {
    const auto previous = options.previous_names.find(name);
    unused.erase(name);
    const std::string& from = previous == options.previous_names.end() ? name : previous->second;
    if (!assignments.emplace(from, name).second) {
      return errors::InvalidArgument("variables ", assignments[from], " and ", name,
                                     " are both to begin with tensor ", from);
    }
  }
  if (unused.empty()) return InitFromCheckpoint(graph, options.checkpoint, assignments);
  std::vector<std::string> misspelled;
  for (const auto& [name, previous] : unused) misspelled.push_back(name);
  return errors::InvalidArgument(
      "You provided the following variables in previous_names that were not used: ",
      StrJoin(misspelled, ", "),
      ". Perhaps you misspelled them? Here is the list of viable variable names: ",
      StrJoin(chosen, ", "));
}

}  // namespace millrace
