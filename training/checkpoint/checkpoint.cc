// SPDX-License-Identifier: Apache-2.0
#include "millrace/checkpoint.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "device/device_name.h"
#include "io/filesystem.h"
#include "millrace/ops.h"
#include "training/checkpoint/checkpoint_files.h"
#include "training/checkpoint/checkpoint_impl.h"
#include "training/checkpoint/object_names.h"
#include "training/checkpoint/save_nodes.h"

namespace millrace {
namespace {

constexpr char kCounter[] = "save_counter";

bool OnOneDevice(std::span<const SaveItem> items) {
  return std::all_of(items.begin(), items.end(),
                     [&](const SaveItem& i) { return i.device == items[0].device; });
}

std::vector<SaveItem> ItemsOf(const ObjectTree& tree) {
  std::vector<SaveItem> items;
  for (const TreeObject& object : tree.objects) {
    if (!object.value) continue;
    for (const SavedVariable& part : object.value->parts) {
      items.push_back(ItemOf({KeyOf(object), part.variable, part.slice}));
    }
  }
  return items;
}

// The directory of one, whose variables are a checkpoint in it.
bool IsSavedModel(const std::string& path) {
  if (!PosixFileSystem()->IsDirectory(path)) return false;
  return PosixFileSystem()->FileExists(path + "/saved_model.pb") ||
         PosixFileSystem()->FileExists(path + "/saved_model.pbtxt");
}

Status UpdateState(const std::string& prefix) {
  CheckpointState state;
  state.model_checkpoint_path = prefix;
  return UpdateCheckpointState(std::string(DirectoryName(prefix)), std::move(state), "checkpoint",
                               /*relative=*/true);
}

}  // namespace

StatusOr<Variable> Checkpoint::Impl::Counter() {
  if (counter.handle.valid()) return counter;
  MR_RETURN_IF_ERROR(state->status);
  const Scope scope = graph_root.WithDevice(options.counter_device);
  const Output zero =
      Constant(scope.WithOpName("save_counter/initial_value"), Tensor::Scalar<int64_t>(0));
  const Variable made = MakeVariable(scope, kCounter, zero, {.trainable = false});
  MR_RETURN_IF_ERROR(state->status);
  // Programs that have made their init op already must not wait for it.
  std::erase_if(state->collections[kVariables],
                [&](const Output& handle) { return handle == made.handle; });
  const Scope beside = scope.Named(kCounter);
  counter_ready = IsInitialized(beside, made);
  counter_add = AssignAdd(beside, made, Tensor::Scalar<int64_t>(1));
  MR_RETURN_IF_ERROR(state->status);
  counter = made;
  root.Add(kCounter, counter);
  return counter;
}

StatusOr<int64_t> Checkpoint::Impl::CountSave(Session& session) {
  MR_RETURN_IF_ERROR(Counter().status());
  MR_ASSIGN_OR_RETURN(const Tensor ready, session.Eval(counter_ready));
  MR_ASSIGN_OR_RETURN(const bool is_ready, ready.TryScalar<bool>());
  if (!is_ready) MR_RETURN_IF_ERROR(session.RunTargets({counter.initializer}));
  MR_RETURN_IF_ERROR(session.RunTargets({counter_add}));
  MR_ASSIGN_OR_RETURN(const Tensor count, session.Eval(counter.read));
  return count.TryScalar<int64_t>();
}

StatusOr<ObjectTree> Checkpoint::Impl::Tree() const {
  ObjectTree tree = NumberObjects(root);
  if (!tree.twice.empty()) {
    return errors::Unimplemented("a slot variable may not be the child of an object as well: ",
                                 StrJoin(tree.twice, ", "));
  }
  if (!tree.homeless.empty()) {
    return errors::InvalidArgument("slots of variables that are not in the tree cannot be saved: ",
                                   StrJoin(tree.homeless, ", "),
                                   "; add the variables, or what has them, to the checkpoint");
  }
  if (!tree.partial.empty()) {
    return errors::Unimplemented(
        "what is kept for the parts of one variable is stored as one tensor, for which every part "
        "must have a value of its own shape: ",
        StrJoin(tree.partial, ", "));
  }
  for (const TreeObject& object : tree.objects) {
    if (!object.value) continue;
    for (const SavedVariable& part : object.value->parts) {
      if (part.variable.handle.valid()) continue;
      return errors::InvalidArgument(object.spoken, " is no variable of the graph");
    }
  }
  return tree;
}

StatusOr<std::vector<SaveItem>> Checkpoint::Impl::Items(const Scope& scope, const ObjectTree& tree,
                                                        const std::string& graph) const {
  std::vector<SaveItem> items = ItemsOf(tree);
  for (const SaveItem& item : items) {
    if (layout.max_file_bytes == 0 || item.shape.AsShape()) continue;
    return errors::Unimplemented("files of at most ", layout.max_file_bytes,
                                 " bytes: the shape of ", item.key,
                                 " is not known before it has a value");
  }
  const std::string device = items.empty() ? "" : items.back().device;
  items.push_back({kObjectGraphKey, "",
                   Constant(scope.WithOpName("object_graph"), Tensor::String(graph)), device,
                   PartialShape(Shape())});
  return items;
}

bool Checkpoint::Impl::InParts(std::span<const SaveItem> items) const {
  return !OnOneDevice(items) || !items.back().device.empty() || layout.max_file_bytes > 0 ||
         !layout.io_device.empty();
}

StatusOr<Checkpoint::Impl::Writing> Checkpoint::Impl::MakeWriting(const ObjectTree& tree,
                                                                  const std::string& graph) {
  const Scope scope = graph_root.Named("checkpoint");
  MR_ASSIGN_OR_RETURN(const std::vector<SaveItem> items, Items(scope, tree, graph));
  Writing made;
  made.filename = MakeFilename(scope, "model");
  made.saved = MakeSave(scope, made.filename, items, InParts(items), &made.parts_folder, layout);
  MR_RETURN_IF_ERROR(state->status);
  return made;
}

StatusOr<AsideNodes> Checkpoint::Impl::MakeWritingAside(const ObjectTree& tree,
                                                        const std::string& graph) {
  const Scope scope = graph_root.Named("checkpoint");
  MR_ASSIGN_OR_RETURN(const std::vector<SaveItem> items, Items(scope, tree, graph));
  AsideNodes made = MakeSaveAside(scope, "model", items, InParts(items), layout);
  MR_RETURN_IF_ERROR(state->status);
  return made;
}

Status Checkpoint::Impl::Write(Session& session, const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(const ObjectTree tree, Tree());
  const std::string bytes = ToProto(tree).SerializeAsString();
  auto it = writing.find(bytes);
  if (it == writing.end()) {
    MR_ASSIGN_OR_RETURN(const Writing made, MakeWriting(tree, bytes));
    it = writing.emplace(bytes, made).first;
  }
  MR_ASSIGN_OR_RETURN(const auto claim, WriterClaim::Make(prefix));
  const Feed feed(it->second.filename, Tensor::String(prefix));
  std::optional<PartsFolder> parts;
  if (!it->second.parts_folder.empty()) parts.emplace(prefix + it->second.parts_folder);
  return session.Run(std::span(&feed, 1), std::span(&it->second.saved, 1), {}, options.run)
      .status();
}

Status Checkpoint::Impl::TellWritten(const std::string& prefix) const {
  for (const auto& tell : options.write_callbacks) MR_RETURN_IF_ERROR(tell(prefix));
  return OkStatus();
}

Status Checkpoint::Impl::WriteAside(Session& session, const std::string& prefix,
                                    std::function<Status()> then) {
  MR_ASSIGN_OR_RETURN(const ObjectTree tree, Tree());
  const std::string bytes = ToProto(tree).SerializeAsString();
  auto it = writing_aside.find(bytes);
  if (it == writing_aside.end()) {
    MR_ASSIGN_OR_RETURN(AsideNodes made, MakeWritingAside(tree, bytes));
    it = writing_aside.emplace(bytes, std::move(made)).first;
  }
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const TakenValues> values,
                      TakenValues::Take(session, it->second, options.run));
  return background.Start(
      [values = std::move(values), prefix, then = std::move(then)]() mutable -> Status {
        const Status written = values->Write(prefix);
        values.reset();
        return written.ok() ? then() : written;
      });
}

Status Checkpoint::Impl::Restore(Session& session, const std::string& prefix,
                                 std::span<const SavedVariable> variables) {
  if (variables.empty()) return OkStatus();
  std::string signature;
  for (const SavedVariable& v : variables) {
    StrAppend(&signature, v.key, "\n", v.slice, "\n", v.variable.name(), "\n");
  }
  auto it = reading.find(signature);
  if (it == reading.end()) {
    const Scope scope = graph_root.Named("checkpoint");
    Reading made;
    made.filename = MakeFilename(scope, "model");
    made.restore = MakeRestore(scope, made.filename, variables,
                               {.sharded = true, .io_device = layout.io_device});
    MR_RETURN_IF_ERROR(state->status);
    it = reading.emplace(signature, made).first;
  }
  const Feed feed(it->second.filename, Tensor::String(prefix));
  return session.Run(std::span(&feed, 1), {}, std::span(&it->second.restore, 1), options.run)
      .status();
}

StatusOr<LoadStatus> Checkpoint::Impl::Read(Session& session, const std::string& prefix) {
  auto load = std::make_shared<LoadStatus::Load>();
  load->checkpoint = shared_from_this();
  load->prefix = prefix;
  load->number = ++loads;
  if (prefix.empty()) return LoadStatus(load);
  StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(PosixFileSystem(), prefix);
  if (errors::IsNotFound(reader.status())) {
    return WithMessage(reader.status(),
                       StrCat("error when restoring from checkpoint at ", prefix, ": ",
                              "Unsuccessful TensorSliceReader constructor: Failed to find any "
                              "matching files for ",
                              prefix,
                              ". You may be missing the checkpoint suffix (e.g. the '-1' in "
                              "'path/to/ckpt-1'). (",
                              Message(reader.status()), ")"));
  }
  MR_RETURN_IF_ERROR(reader.status());
  load->reader = *std::move(reader);
  load->by_name = load->reader->Find(kObjectGraphKey) == nullptr;
  if (!load->by_name) {
    MR_ASSIGN_OR_RETURN(load->graph, ReadObjectGraph(*load->reader));
    load->object_of.resize(static_cast<std::size_t>(load->graph.nodes_size()));
    if (options.skip_slot_variables) {
      for (const auto& node : load->graph.nodes()) {
        for (const auto& slot : node.slot_variables()) {
          load->skipped.insert(slot.slot_variable_node_id());
        }
      }
    }
  }
  MR_RETURN_IF_ERROR(load->Restore(session));
  return LoadStatus(load);
}

Checkpoint::Checkpoint(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::~Checkpoint() { impl_->background.Wait(); }

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Create(
    Graph& graph, const std::map<std::string, Trackable>& children,
    const CheckpointOptions& options) {
  MR_RETURN_IF_ERROR(graph.status());
  auto impl = std::make_shared<Impl>(graph, options);
  for (const auto& [name, child] : children) {
    if (name.empty() || name == kCounter) {
      return errors::InvalidArgument("an object of a checkpoint cannot be called '", name, "'");
    }
    impl->root.Add(name, child);
  }
  return std::unique_ptr<Checkpoint>(new Checkpoint(std::move(impl)));
}

Trackable& Checkpoint::root() { return impl_->root; }

StatusOr<Variable> Checkpoint::save_counter() { return impl_->Counter(); }

StatusOr<std::string> Checkpoint::Save(Session& session, const std::string& prefix) {
  MR_RETURN_IF_ERROR(impl_->background.Sync());
  MR_ASSIGN_OR_RETURN(const int64_t count, impl_->CountSave(session));
  const std::string numbered = StrCat(prefix, "-", count);
  MR_RETURN_IF_ERROR(impl_->Write(session, numbered));
  MR_RETURN_IF_ERROR(UpdateState(numbered));
  DeleteAbandonedParts(prefix);
  MR_RETURN_IF_ERROR(impl_->TellWritten(numbered));
  return numbered;
}

Status Checkpoint::Write(Session& session, const std::string& prefix) {
  MR_RETURN_IF_ERROR(impl_->background.Sync());
  MR_RETURN_IF_ERROR(impl_->Write(session, prefix));
  return impl_->TellWritten(prefix);
}

StatusOr<LoadStatus> Checkpoint::Restore(Session& session, const std::string& prefix) {
  if (!prefix.empty()) MR_RETURN_IF_ERROR(impl_->Counter().status());
  return Read(session, IsSavedModel(prefix) ? prefix + "/variables/variables" : prefix);
}

StatusOr<LoadStatus> Checkpoint::Read(Session& session, const std::string& prefix) {
  MR_RETURN_IF_ERROR(impl_->background.Sync());
  return impl_->Read(session, prefix);
}

StatusOr<std::string> Checkpoint::SaveAsync(Session& session, const std::string& prefix) {
  MR_RETURN_IF_ERROR(impl_->background.Sync());
  MR_ASSIGN_OR_RETURN(const int64_t count, impl_->CountSave(session));
  const std::string numbered = StrCat(prefix, "-", count);
  const auto finish = [impl = impl_.get(), prefix, numbered]() -> Status {
    MR_RETURN_IF_ERROR(UpdateState(numbered));
    DeleteAbandonedParts(prefix);
    return impl->TellWritten(numbered);
  };
  MR_RETURN_IF_ERROR(impl_->WriteAside(session, numbered, finish));
  return numbered;
}

Status Checkpoint::WriteAsync(Session& session, const std::string& prefix) {
  MR_RETURN_IF_ERROR(impl_->background.Sync());
  return impl_->WriteAside(session, prefix,
                           [impl = impl_.get(), prefix] { return impl->TellWritten(prefix); });
}

Status Checkpoint::Sync() { return impl_->background.Sync(); }

Status SetLayout(Checkpoint& checkpoint, const CheckpointLayout& layout) {
  if (layout.max_file_bytes < 0) {
    return errors::InvalidArgument("a file cannot have ", layout.max_file_bytes,
                                   " bytes at most; 0 sets no limit");
  }
  if (!layout.io_device.empty()) MR_RETURN_IF_ERROR(DeviceName::Parse(layout.io_device).status());
  Checkpoint::Impl& impl = checkpoint.impl();
  impl.layout = layout;
  impl.writing.clear();
  impl.writing_aside.clear();
  impl.reading.clear();
  return OkStatus();
}

}  // namespace millrace
