// SPDX-License-Identifier: Apache-2.0
// Initial values of variables that come from a checkpoint.
#include "millrace/saver.h"

#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <utility>

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
#include "training/checkpoint/vocabulary.h"

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
  // NotFound, InvalidArgument: what is stored as `key` is not for the variable.
  StatusOr<const CheckpointReader::Entry*> Find(const std::string& key,
                                                const SavedVariable& saved) const {
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
    return entry;
  }
  // The same for one that takes the tensor as it is: also for another shape.
  Status CheckFits(const std::string& key, const SavedVariable& saved) const {
    MR_ASSIGN_OR_RETURN(const CheckpointReader::Entry* const entry, Find(key, saved));
    const std::string& name = saved.variable.name();
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

// What a variable begins with, of the part of the tensor that was read.
using Rule = std::function<Output(const Scope& scope, const Output& read)>;

// As TensorFlow reads them: on the CPU of the variable's task.
Status BeginWith(Graph& graph, const Source& source, const std::string& key,
                 const Variable& variable, const std::string& part, const Rule& rule = {}) {
  std::vector<Variable> variables = CopiesOf(variable);
  variables.push_back(variable);
  const Scope scope = graph.root().Named("checkpoint_initializer");
  for (const Variable& v : variables) {
    const Scope reading = scope.WithDevice(FileDevice(v.handle.op().device()));
    const auto text = [&reading](const std::string& value) {
      return Constant(reading, Tensor::FromValues<std::string>(std::vector{value}, Shape({1})));
    };
    const std::vector<Output> read =
        ops::RestoreV2(reading, Constant(reading, Tensor::String(source.prefix())), text(key),
                       text(part), {BaseType(v.dtype())});
    MR_RETURN_IF_ERROR(graph.status());
    const Output value = rule ? rule(reading, read[0]) : read[0];
    MR_RETURN_IF_ERROR(graph.status());
    if (!value.valid()) {
      return errors::InvalidArgument("backup_initializer of variable ", v.name(), " gave no value");
    }
    MR_RETURN_IF_ERROR(Rewire(*graph.state(), v, value));
  }
  return OkStatus();
}

// A variable, or a part of one, and the rows that it takes of a tensor.
struct Rows {
  std::string key;
  SavedVariable into;
  std::string old_slice;      // the part of the tensor that has them
  Shape shape;                // of the variable, or the part
  std::vector<int64_t> rows;  // of old_slice, along the axis; -1: a new one
  const VocabInfo* vocabulary = nullptr;
};

// Of `all` rows, those of the old tensor that a variable takes, or a part of it.
StatusOr<Rows> RowsFor(const Source& source, const std::string& key, const SavedVariable& saved,
                       const VocabInfo& vocabulary, const std::vector<int64_t>& all) {
  MR_ASSIGN_OR_RETURN(const CheckpointReader::Entry* const entry, source.Find(key, saved));
  const std::string& name = saved.variable.name();
  Shape whole;
  TensorSlice slice;
  if (!saved.slice.empty()) {
    MR_RETURN_IF_ERROR(ParseShapeAndSlice(saved.slice, &whole, &slice));
  } else if (const auto known = saved.variable.shape().AsShape()) {
    whole = *known;
    slice = TensorSlice::Whole(whole.rank());
  } else {
    return errors::InvalidArgument("variable ", name, ", whose rows are of a vocabulary, has no ",
                                   "shape that is known: ", saved.variable.shape().DebugString());
  }
  const int axis = vocabulary.axis;
  if (whole.rank() <= axis || whole.dim(axis) != static_cast<int64_t>(all.size())) {
    return errors::InvalidArgument("variable ", name, " of shape ", whole.DebugString(),
                                   " is to have ", all.size(), " rows along axis ", axis, ": ",
                                   vocabulary.new_vocab_size, " of words (new_vocab_size) and ",
                                   vocabulary.num_oov_buckets, " buckets (num_oov_buckets)");
  }
  const int64_t last = *std::max_element(all.begin(), all.end());
  bool fits = entry->shape.rank() == whole.rank() && last < entry->shape.dim(axis);
  for (int i = 0; fits && i < whole.rank(); ++i) {
    fits = i == axis || whole.dim(i) == entry->shape.dim(i);
  }
  if (!fits) {
    return errors::InvalidArgument("Shape of variable ", name, " (", whole.DebugString(),
                                   ") doesn't match with shape of tensor ", key, " (",
                                   entry->shape.DebugString(), ") from checkpoint ",
                                   source.prefix(), ", of whose axis ", axis, " row ", last,
                                   " is wanted, a word of ", vocabulary.old_vocab);
  }
  Rows rows;
  rows.key = key;
  rows.into = saved;
  rows.vocabulary = &vocabulary;
  MR_ASSIGN_OR_RETURN(rows.shape, slice.ShapeIn(whole));
  MR_ASSIGN_OR_RETURN(TensorSlice resolved, slice.ResolvedIn(whole));
  const auto first = all.begin() + resolved.extents[static_cast<std::size_t>(axis)].start;
  rows.rows.assign(first, first + rows.shape.dim(axis));
  if (saved.slice.empty()) return rows;
  resolved.extents[static_cast<std::size_t>(axis)] = {};
  for (const int64_t size : entry->shape.dims()) StrAppend(&rows.old_slice, size, " ");
  rows.old_slice += resolved.DebugString();
  return rows;
}

// What the variable begins with: rows of `old`, and of the backup initializer.
Output RowsOf(const Scope& scope, const Rows& rows, const Output& old, DataType dtype) {
  const auto count = static_cast<int64_t>(rows.rows.size());
  std::vector<int64_t> index;
  std::vector<bool> is_old;
  for (const int64_t row : rows.rows) {
    index.push_back(std::max<int64_t>(row, 0));
    is_old.push_back(row >= 0);
  }
  const int axis = rows.vocabulary->axis;
  Output backup;
  if (rows.vocabulary->backup_initializer) {
    backup = rows.vocabulary->backup_initializer(scope, rows.shape);
    if (backup.valid() && backup.dtype() != dtype) backup = ops::Cast(scope, backup, dtype);
  } else {
    backup = Zeros(scope, rows.shape, dtype);
  }
  if (!backup.valid()) return backup;
  // Of a table that has no row there is none to take.
  if (std::find(is_old.begin(), is_old.end(), true) == is_old.end()) return backup;
  std::vector<int64_t> along(static_cast<std::size_t>(rows.shape.rank()), 1);
  along[static_cast<std::size_t>(axis)] = count;
  Tensor known(kBool, Shape(std::span<const int64_t>(along)));
  std::copy(is_old.begin(), is_old.end(), known.flat<bool>().begin());
  const Output taken = ops::GatherV2(
      scope, old, Constant(scope, Tensor::FromValues<int64_t>(index, Shape({count}))), axis);
  return ops::SelectV2(scope, Constant(scope, known), taken, backup);
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

// The names that WarmStart is to take.
StatusOr<std::set<std::string>> NamesFor(const std::set<std::string>& names,
                                         const WarmStartOptions& options) {
  std::set<std::string> chosen;
  if (options.variables.empty()) {
    for (const auto& [name, vocabulary] : options.vocabularies) {
      if (names.contains(name)) chosen.insert(name);
    }
    if (!options.vocabularies.empty()) return chosen;
  }
  MR_ASSIGN_OR_RETURN(chosen, Chosen(names, options.variables));
  if (!chosen.empty()) return chosen;
  return errors::InvalidArgument("no variable is to be warm-started: of ", names.size(),
                                 " names none begins with ", StrJoin(options.variables, " or "),
                                 "; there are: ", StrJoin(names, ", "));
}

template <typename T>
Status CheckAllUsed(const std::map<std::string, T>& map, const char* what,
                    const std::set<std::string>& chosen) {
  std::vector<std::string> misspelled;
  for (const auto& [name, value] : map) {
    if (!chosen.contains(name)) misspelled.push_back(name);
  }
  if (misspelled.empty()) return OkStatus();
  return errors::InvalidArgument(
      "You provided the following variables in ", what,
      " that were not used: ", StrJoin(misspelled, ", "),
      ". Perhaps you misspelled them? Here is the list of viable variable names: ",
      StrJoin(chosen, ", "));
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
  for (const Take& take : takes) {
    MR_RETURN_IF_ERROR(BeginWith(graph, source, take.key, take.into.variable, take.into.slice));
  }
  return graph.status();
}

Status WarmStart(Graph& graph, const WarmStartOptions& options) {
  std::set<std::string> names;
  std::set<const Node*> trainable;
  for (const Variable& v : Variables(graph, kTrainableVariables)) {
    trainable.insert(v.handle.op().node());
  }
  const std::vector<SavedVariable> variables = SavedVariables(graph.root());
  for (const SavedVariable& v : variables) {
    if (options.only_trainable && !trainable.contains(v.variable.handle.op().node())) continue;
    names.insert(v.key);
  }
  MR_ASSIGN_OR_RETURN(const std::set<std::string> chosen, NamesFor(names, options));
  const std::set<std::string>& viable = options.variables.empty() ? names : chosen;
  MR_RETURN_IF_ERROR(CheckAllUsed(options.vocabularies, "vocabularies", viable));
  MR_RETURN_IF_ERROR(CheckAllUsed(options.previous_names, "previous_names", chosen));
  std::map<std::string, std::string> assignments;
  std::vector<Rows> tables;
  MR_ASSIGN_OR_RETURN(const Source source, Source::Open(options.checkpoint));
  for (const std::string& name : chosen) {
    const auto previous = options.previous_names.find(name);
    const std::string& from = previous == options.previous_names.end() ? name : previous->second;
    if (const auto known = options.vocabularies.find(name); known != options.vocabularies.end()) {
      MR_ASSIGN_OR_RETURN(const std::vector<int64_t> all, OldRows(known->second));
      for (const SavedVariable& v : variables) {
        if (v.key != name) continue;
        MR_ASSIGN_OR_RETURN(Rows rows, RowsFor(source, from, v, known->second, all));
        tables.push_back(std::move(rows));
      }
    } else if (!assignments.emplace(from, name).second) {
      return errors::InvalidArgument("variables ", assignments[from], " and ", name,
                                     " are both to begin with tensor ", from);
    }
  }
  if (!assignments.empty()) {
    MR_RETURN_IF_ERROR(InitFromCheckpoint(graph, source.prefix(), assignments));
  }
  for (const Rows& rows : tables) {
    const Variable& variable = rows.into.variable;
    const Rule rule = [&](const Scope& scope, const Output& read) {
      return RowsOf(scope, rows, read, BaseType(variable.dtype()));
    };
    MR_RETURN_IF_ERROR(BeginWith(graph, source, rows.key, variable, rows.old_slice, rule));
  }
  return graph.status();
}

}  // namespace millrace
