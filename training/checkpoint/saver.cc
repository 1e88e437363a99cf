// SPDX-License-Identifier: Apache-2.0
#include "millrace/saver.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "graph/dataflow_graph.h"
#include "io/background_write.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "training/checkpoint/aside_nodes.h"
#include "training/checkpoint/checkpoint_files.h"
#include "training/checkpoint/meta_graph.h"
#include "training/checkpoint/object_names.h"
#include "training/checkpoint/restored_variables.h"
#include "training/checkpoint/save_nodes.h"
#include "training/sharding/part_marks.h"

namespace millrace {
namespace {

constexpr double kSecondsPerHour = 3600;

// One key stands for one tensor, or for parts of one.
Status CheckKeys(std::span<const SavedVariable> variables) {
  std::map<std::string, const SavedVariable*> seen;
  for (const SavedVariable& v : variables) {
    if (!v.variable.handle.valid()) {
      return errors::InvalidArgument("what is to be saved as '", v.key,
                                     "' is no variable of the graph");
    }
    const auto [it, is_new] = seen.emplace(v.key, &v);
    if (is_new || (!v.slice.empty() && !it->second->slice.empty() && v.slice != it->second->slice))
      continue;
    return errors::InvalidArgument("At least two variables have the same name: ", v.key, " (",
                                   it->second->variable.name(), " and ", v.variable.name(),
                                   "); only parts of one tensor may share a name");
  }
  return OkStatus();
}

std::string StepPrefix(const std::string& prefix, const SaveOptions& options, bool pad) {
  if (!options.global_step) return prefix;
  std::string digits = StrCat(*options.global_step);
  constexpr std::size_t kPadded = 8;
  if (pad && digits.size() < kPadded) digits.insert(0, kPadded - digits.size(), '0');
  return StrCat(prefix, "-", digits);
}

}  // namespace

namespace {

// What a variable in parts says of each of them (MakeShardedVariable).
struct PartOf {
  std::string name, slice;
  PartialShape shape;  // of the part
};

std::map<std::string, PartOf> PartsByName(std::span<const Variable> variables) {
  std::map<std::string, PartOf> parts;
  for (const Variable& v : variables) {
    if (const auto mark = MarkOf(v)) parts[v.name()] = {mark->whole, mark->slice, v.shape()};
  }
  return parts;
}

// A part is stored as a slice of the whole, and what an optimizer keeps for it, "v/part_0/Adam" of
// the same shape, as a slice of "v/Adam": so that another number of parts finds it.
SavedVariable SavedAs(const Variable& v, const std::map<std::string, PartOf>& parts) {
  const std::string& name = v.name();
  for (std::size_t end = name.size(); end != std::string::npos && end > 0;
       end = name.rfind('/', end - 1)) {
    const auto part = parts.find(name.substr(0, end));
    if (part == parts.end() || part->second.shape.DebugString() != v.shape().DebugString()) {
      continue;
    }
    return {part->second.name + name.substr(end), v, part->second.slice};
  }
  return {name, v, ""};
}

}  // namespace

std::vector<SavedVariable> SavedVariables(const Scope& scope, std::string_view collection) {
  const std::vector<Variable> variables = Variables(scope, collection);
  const std::map<std::string, PartOf> parts = PartsByName(variables);
  std::vector<SavedVariable> saved;
  for (const Variable& v : variables) saved.push_back(SavedAs(v, parts));
  return saved;
}

struct Saver::Impl {
  std::shared_ptr<GraphState> state;
  Scope root;  // for nodes that are made later
  SaverOptions options;
  Output filename, saved;
  std::string parts_folder;  // what its name adds to the prefix; "" if there are no parts
  Operation restore;
  std::vector<std::pair<std::string, double>> kept;  // oldest first
  // Complete ones whose saves have failed at the state file: no list has them.
  std::set<std::string> unnamed;
  double next_to_keep = 0;  // seconds since 1970
  std::optional<AsideNodes> aside;
  // Uses what is above: waited for before that goes, or is looked at.
  mutable BackgroundWrite background;

  Impl(Graph& graph, SaverOptions o)
      : state(graph.shared_state()), root(graph.root()), options(std::move(o)) {
    if (!options.clock) options.clock = NowSeconds;
    next_to_keep = options.clock() + options.keep_checkpoint_every_n_hours * kSecondsPerHour;
  }

  bool empty() const { return !restore.valid(); }

  Status Build(std::source_location where) {
    std::vector<SavedVariable>& variables = options.variables;
    if (variables.empty()) variables = SavedVariables(root);
    std::stable_sort(variables.begin(), variables.end(),
                     [](const SavedVariable& a, const SavedVariable& b) { return a.key < b.key; });
    if (variables.empty()) {
      if (options.allow_empty) return OkStatus();
      return errors::InvalidArgument(
          "No variables to save: make them before the saver, name some "
          "in its options, or set allow_empty");
    }
    MR_RETURN_IF_ERROR(CheckKeys(variables));
    const Scope scope = root.Named(options.name).CalledFrom(where);
    std::vector<SaveItem> items;
    for (const SavedVariable& v : variables) items.push_back(ItemOf(v));
    filename = MakeFilename(scope, options.filename);
    saved = MakeSave(scope, filename, items, options.sharded, &parts_folder);
    restore = MakeRestore(scope, filename, variables,
                          {.sharded = options.sharded,
                           .reshape = options.reshape,
                           .sequentially = options.restore_sequentially});
    if (options.asynchronous) {
      const Scope beside = root.Named(StrCat(options.name, "_aside")).CalledFrom(where);
      aside = MakeSaveAside(beside, options.filename, items, options.sharded);
    }
    return state->status;
  }

  // Nodes that are there already.
  Status Adopt(Graph& graph, const pb::SaverDef& def, std::string_view scope) {
    const std::string below = scope.empty() ? "" : StrCat(scope, "/");
    options.max_to_keep = def.max_to_keep();
    options.sharded = def.sharded();
    options.keep_checkpoint_every_n_hours = def.keep_checkpoint_every_n_hours();
    next_to_keep = options.clock() + options.keep_checkpoint_every_n_hours * kSecondsPerHour;
    const auto missing = [&](const char* what, const std::string& name) {
      return errors::InvalidArgument("saver_def must specify the ", what, ", but the graph has no ",
                                     below, name.empty() ? "<none>" : name,
                                     ": was it made from the same meta graph?");
    };
    filename = FindTensor(graph, below, def.filename_tensor_name());
    if (!filename.valid()) return missing("filename_tensor_name", def.filename_tensor_name());
    saved = FindTensor(graph, below, def.save_tensor_name());
    if (!saved.valid()) return missing("save_tensor_name", def.save_tensor_name());
    restore = graph.FindOperation(below + def.restore_op_name());
    if (!restore.valid()) return missing("restore_op_name", def.restore_op_name());
    options.variables = VariablesRestoredBy(restore);
    return OkStatus();
  }

  pb::SaverDef Def() const {
    pb::SaverDef def;
    if (!empty()) {
      def.set_filename_tensor_name(filename.name());
      def.set_save_tensor_name(saved.name());
      def.set_restore_op_name(restore.name());
    }
    def.set_max_to_keep(options.max_to_keep);
    def.set_sharded(options.sharded);
    def.set_keep_checkpoint_every_n_hours(
        static_cast<float>(options.keep_checkpoint_every_n_hours));
    def.set_version(pb::SaverDef::V2);
    return def;
  }

  Status CheckNames(const std::string& prefix, const SaveOptions& save) const {
    if (prefix.empty() || prefix.ends_with('/')) {
      return errors::InvalidArgument("'", prefix,
                                     "' is no prefix of a checkpoint: name files in a directory, "
                                     "such as 'dir/model.ckpt'");
    }
    if (save.latest_filename.find('/') != std::string::npos) {
      return errors::InvalidArgument("'latest_filename' must not contain path components, as '",
                                     save.latest_filename, "' does");
    }
    if (!save.global_step && !options.sharded && BaseName(prefix) == save.latest_filename) {
      return errors::InvalidArgument("'latest_filename' collides with 'save_path': '",
                                     save.latest_filename, "' and '", prefix, "'");
    }
    return OkStatus();
  }

  Status Write(Session& session, const std::string& prefix, const SaveOptions& save) const {
    MR_ASSIGN_OR_RETURN(const auto claim, WriterClaim::Make(prefix));
    const Feed feed(filename, Tensor::String(prefix));
    std::optional<PartsFolder> parts;
    if (!parts_folder.empty()) parts.emplace(prefix + parts_folder);
    return WithReason(
        prefix, session.Run(std::span(&feed, 1), std::span(&saved, 1), {}, save.run).status());
  }

  // The error of a write; that of one without a directory says so.
  static Status WithReason(const std::string& prefix, const Status& status) {
    if (!errors::IsNotFound(status) && !errors::IsFailedPrecondition(status)) return status;
    const std::string directory(DirectoryName(prefix));
    if (directory.empty() || PosixFileSystem()->IsDirectory(directory)) return status;
    return errors::InvalidArgument("Parent directory of ", prefix,
                                   " doesn't exist, can't save: ", Message(status));
  }

  // Deletes one that is not in the list any more, unless it is its time to stay for good.
  void DeleteOld(const std::string& prefix, double time, const std::string& meta_graph_suffix) {
    if (time > next_to_keep) {
      next_to_keep += options.keep_checkpoint_every_n_hours * kSecondsPerHour;
      return;
    }
    RemoveOldCheckpoint(prefix, meta_graph_suffix);
  }

  // Those that failed saves have left, once the state file is known to name none of them.
  void DeleteUnnamed(const std::string& meta_graph_suffix) {
    for (const auto& [path, time] : kept) unnamed.erase(path);
    for (const std::string& path : std::exchange(unnamed, {})) {
      RemoveOldCheckpoint(path, meta_graph_suffix);
    }
  }

  // Until the file is written the list is what it says, and nothing is deleted.
  Status UpdateState(const std::string& prefix, const SaveOptions& save) {
    auto with = kept;
    std::optional<std::pair<std::string, double>> old;
    if (options.max_to_keep > 0) {
      std::erase_if(with, [&](const auto& k) { return k.first == prefix; });
      with.emplace_back(prefix, options.clock());
      if (static_cast<int>(with.size()) > options.max_to_keep) {
        old = with.front();
        with.erase(with.begin());
      }
    }
    CheckpointState said;
    said.model_checkpoint_path = prefix;
    for (const auto& [path, time] : with) said.all_model_checkpoint_paths.push_back(path);
    const Status named = UpdateCheckpointState(std::string(DirectoryName(prefix)), std::move(said),
                                               save.latest_filename, options.save_relative_paths);
    if (!named.ok()) {
      if (options.max_to_keep > 0) unnamed.insert(prefix);
      return Annotate(named, StrCat("; the checkpoint ", prefix,
                                    " is on the disk, but the state file does not name it, and no "
                                    "older one is deleted"));
    }
    kept = std::move(with);
    if (old) DeleteOld(old->first, old->second, save.meta_graph_suffix);
    DeleteUnnamed(save.meta_graph_suffix);
    return OkStatus();
  }

  // "" if none is wanted.
  StatusOr<std::string> MetaGraph(const SaveOptions& save) const {
    if (!save.write_meta_graph) return std::string();
    return MakeMetaGraph(*state, Def(), options.variables, save.strip_default_attrs);
  }

  // What follows when the tensors of `full`, which is `prefix` with a number, are on the disk.
  Status Finish(const std::string& prefix, const std::string& full, const SaveOptions& save,
                const StatusOr<std::string>& meta_graph) {
    if (save.write_state) MR_RETURN_IF_ERROR(UpdateState(full, save));
    MR_RETURN_IF_ERROR(meta_graph.status());
    if (!meta_graph->empty()) {
      MR_RETURN_IF_ERROR(PosixFileSystem()->WriteFileAtomically(
          MetaGraphFilename(full, save.meta_graph_suffix), *meta_graph));
    }
    DeleteAbandonedParts(prefix);
    return OkStatus();
  }

  Status SaveAside(Session& session, const std::string& prefix, const std::string& full,
                   const SaveOptions& save) {
    MR_ASSIGN_OR_RETURN(std::string meta_graph, MetaGraph(save));
    MR_ASSIGN_OR_RETURN(std::shared_ptr<const TakenValues> values,
                        TakenValues::Take(session, *aside, save.run));
    return background.Start(
        [this, values = std::move(values), prefix, full, save, meta_graph]() mutable -> Status {
          const Status written = WithReason(full, values->Write(full));
          values.reset();
          return written.ok() ? Finish(prefix, full, save, meta_graph) : written;
        });
  }

  // Whether every variable is in the checkpoint, in its type and shape: no step that would change
  // some and fail at others is begun.
  Status CheckFits(const std::string& prefix) const {
    MR_ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(PosixFileSystem(), prefix));
    for (const SavedVariable& v : options.variables) {
      DataType dtype;
      Shape stored;
      MR_RETURN_IF_ERROR(reader->Lookup(v.key, &dtype, &stored));
      const DataType wanted = BaseType(v.variable.dtype());
      if (dtype != wanted) {
        return errors::InvalidArgument("tensor_name = ", v.key, "; expected dtype ",
                                       DataTypeName(wanted), " does not equal original dtype ",
                                       DataTypeName(dtype));
      }
      const auto shape = v.variable.shape().AsShape();
      if (options.reshape || !v.slice.empty() || !shape || *shape == stored) continue;
      return errors::InvalidArgument("variable ", v.variable.name(), " has shape ",
                                     shape->DebugString(), ", but ", v.key, " was saved with ",
                                     stored.DebugString());
    }
    return OkStatus();
  }

  Status RunRestore(Session& session, const Output& name, const Operation& op,
                    const std::string& prefix, const RunOptions& run) const {
    const Feed feed(name, Tensor::String(prefix));
    return session.Run(std::span(&feed, 1), {}, std::span(&op, 1), run).status();
  }

  // Of a checkpoint of objects: each variable is found by the name that it had in the program.
  Status RestoreObjects(Session& session, const std::string& prefix, const Status& why,
                        const RunOptions& run) {
    const StatusOr<std::map<std::string, std::string>> keys = KeysByName(prefix);
    if (!keys.ok()) {
      return WithMessage(
          why, StrCat("restoring from checkpoint ", prefix,
                      " failed. This is most likely due to a Variable name or other graph key that "
                      "is missing from the checkpoint: ",
                      Message(why)));
    }
    std::vector<SavedVariable> by_object = options.variables;
    std::vector<std::string> missing;
    for (SavedVariable& v : by_object) {
      const auto it = keys->find(v.key);
      if (it == keys->end()) {
        missing.push_back(v.key);
      } else {
        v.key = it->second;
      }
    }
    if (!missing.empty()) {
      return errors::NotFound("Existing variables not in the checkpoint: ", StrJoin(missing, ", "),
                              "; ", prefix, " is a checkpoint of objects, with ", keys->size(),
                              " named variables");
    }
    MR_LOG(kWarning, "restoring a checkpoint of objects (", prefix,
           ") by the names of variables; use Checkpoint to restore it by its objects");
    const Scope scope = root.Named(StrCat(options.name, "_objects"));
    const Output name = MakeFilename(scope, options.filename);
    const Operation op = MakeRestore(scope, name, by_object,
                                     {.sharded = options.sharded, .reshape = options.reshape});
    MR_RETURN_IF_ERROR(state->status);
    return RunRestore(session, name, op, prefix, run);
  }
};

Saver::Saver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Saver::~Saver() = default;

StatusOr<std::unique_ptr<Saver>> Saver::Create(Graph& graph, SaverOptions options,
                                               std::source_location where) {
  MR_RETURN_IF_ERROR(graph.status());
  if (options.max_to_keep < 0) {
    return errors::InvalidArgument("max_to_keep must not be negative, but is ", options.max_to_keep,
                                   "; 0 keeps all checkpoints");
  }
  if (options.write_version == 1) {
    return errors::Unimplemented(
        "write_version=1: a Saver writes no checkpoint of TensorFlow's first format (before 2017), "
        "which has no index, by which complete ones are told from torn ones; leave it at 2, which "
        "TensorFlow reads since 1.0, or use the op SaveSlices");
  }
  if (options.write_version != 2) {
    return errors::InvalidArgument("there is no write_version ", options.write_version,
                                   ": a Saver writes version 2");
  }
  auto impl = std::make_unique<Impl>(graph, std::move(options));
  MR_RETURN_IF_ERROR(impl->Build(where));
  return std::unique_ptr<Saver>(new Saver(std::move(impl)));
}

StatusOr<std::unique_ptr<Saver>> Saver::FromDef(Graph& graph, std::string_view saver_def,
                                                SaverOptions options,
                                                std::string_view import_scope) {
  MR_RETURN_IF_ERROR(graph.status());
  pb::SaverDef def;
  if (!def.ParseFromString(std::string(saver_def))) {
    return errors::InvalidArgument("these ", saver_def.size(), " bytes are no SaverDef");
  }
  SaverOptions taken;
  taken.pad_step_number = options.pad_step_number;
  taken.save_relative_paths = options.save_relative_paths;
  taken.clock = std::move(options.clock);
  auto impl = std::make_unique<Impl>(graph, std::move(taken));
  MR_RETURN_IF_ERROR(impl->Adopt(graph, def, import_scope));
  return std::unique_ptr<Saver>(new Saver(std::move(impl)));
}

StatusOr<std::string> Saver::Save(Session& session, const std::string& prefix,
                                  const SaveOptions& options) {
  if (impl_->empty()) return std::string();
  MR_RETURN_IF_ERROR(impl_->CheckNames(prefix, options));
  const std::string full = StepPrefix(prefix, options, impl_->options.pad_step_number);
  if (impl_->options.asynchronous) {
    MR_RETURN_IF_ERROR(impl_->background.Sync());
    MR_RETURN_IF_ERROR(impl_->SaveAside(session, prefix, full, options));
    return full;
  }
  MR_RETURN_IF_ERROR(impl_->Write(session, full, options));
  MR_RETURN_IF_ERROR(impl_->Finish(prefix, full, options, impl_->MetaGraph(options)));
  return full;
}

Status Saver::Sync() { return impl_->background.Sync(); }

Status Saver::Restore(Session& session, const std::string& prefix, const RunOptions& run) {
  if (impl_->empty()) return OkStatus();
  if (prefix.empty()) return errors::InvalidArgument("Can't load save_path when it is None.");
  MR_RETURN_IF_ERROR(Sync());
  if (!CheckpointExists(prefix)) {
    return errors::InvalidArgument("The passed save_path is not a valid checkpoint: ", prefix);
  }
  Status status = impl_->CheckFits(prefix);
  if (status.ok()) {
    status = impl_->RunRestore(session, impl_->filename, impl_->restore, prefix, run);
  }
  if (errors::IsNotFound(status)) return impl_->RestoreObjects(session, prefix, status, run);
  if (errors::IsInvalidArgument(status)) {
    return WithMessage(status, StrCat("restoring from checkpoint ", prefix,
                                      " failed. This is most likely due to a mismatch between the "
                                      "current graph and the graph from the checkpoint: ",
                                      Message(status)));
  }
  return status;
}

std::vector<std::string> Saver::last_checkpoints() const {
  impl_->background.Wait();
  std::vector<std::string> prefixes;
  for (const auto& [prefix, time] : impl_->kept) prefixes.push_back(prefix);
  return prefixes;
}

const std::vector<std::pair<std::string, double>>& Saver::last_checkpoints_with_time() const {
  impl_->background.Wait();
  return impl_->kept;
}

void Saver::SetLastCheckpoints(const std::vector<std::string>& prefixes) {
  impl_->background.Wait();
  impl_->kept.clear();
  for (const std::string& prefix : prefixes) {
    impl_->kept.emplace_back(prefix, std::numeric_limits<double>::infinity());
  }
}

void Saver::SetLastCheckpointsWithTime(std::vector<std::pair<std::string, double>> checkpoints) {
  impl_->background.Wait();
  impl_->kept = std::move(checkpoints);
}

void Saver::RecoverLastCheckpoints(const std::vector<std::string>& prefixes) {
  impl_->background.Wait();
  impl_->kept.clear();
  for (const std::string& prefix : prefixes) {
    if (const auto time = CheckpointTime(prefix)) impl_->kept.emplace_back(prefix, *time);
  }
}

std::string Saver::ToSaverDef() const { return impl_->Def().SerializeAsString(); }

StatusOr<std::string> Saver::ExportMetaGraph() const {
  return MakeMetaGraph(*impl_->state, impl_->Def(), impl_->options.variables);
}

const std::vector<SavedVariable>& Saver::variables() const { return impl_->options.variables; }

}  // namespace millrace
