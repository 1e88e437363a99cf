// SPDX-License-Identifier: Apache-2.0
// Loading: the graph of a file becomes a Graph and a Session, then the variables get their values,
// then what the model wants to be run first is run.
#include "millrace/saved_model.h"

#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "graph/node_name.h"
#include "io/filesystem.h"
#include "proto/variable.pb.h"
#include "saved_model/model_files.h"
#include "saved_model/signatures.h"

namespace millrace {
namespace {

StatusOr<Output> FindTensor(const Graph& graph, const std::string& name) {
  MR_ASSIGN_OR_RETURN(const TensorName parsed, ParseTensorName(name));
  const Operation op = graph.FindOperation(parsed.node);
  if (!op.valid() || parsed.IsControl() || parsed.index >= op.num_outputs()) {
    return errors::InvalidArgument("the graph has no tensor '", name, "'");
  }
  return op.output(parsed.index);
}

// By the name of the op itself or of one of its outputs.
StatusOr<Operation> FindOp(const Graph& graph, const std::string& name) {
  MR_ASSIGN_OR_RETURN(const TensorName parsed, ParseTensorName(name));
  const Operation op = graph.FindOperation(parsed.node);
  if (!op.valid()) return errors::InvalidArgument("the graph has no op '", name, "'");
  return op;
}

Status CheckTensors(const Graph& graph, const std::map<std::string, SignatureTensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    MR_ASSIGN_OR_RETURN(const Output output, FindTensor(graph, tensor.tensor));
    if (BaseType(output.dtype()) == tensor.dtype) continue;
    return errors::InvalidArgument("'", name, "' is of type ", DataTypeName(tensor.dtype),
                                   ", and the tensor ", tensor.tensor, " of type ",
                                   DataTypeName(output.dtype()));
  }
  return OkStatus();
}

Status CheckSignatures(const Graph& graph,
                       const std::map<std::string, ModelSignature>& signatures) {
  for (const auto& [name, signature] : signatures) {
    Status status = CheckTensors(graph, signature.inputs);
    if (status.ok()) status = CheckTensors(graph, signature.outputs);
    if (!status.ok()) {
      return WithMessage(status, StrCat("signature '", name, "': ", Message(status)));
    }
  }
  return OkStatus();
}

// The lists of variables and of outputs; what stands for nothing in the graph is left out, as
// collections are for tools, and a graph does not need them to run.
void ImportCollections(const pb::MetaGraphDef& meta, Graph* graph) {
  for (const auto& [collection, def] : meta.collection_def()) {
    for (const std::string& name : def.node_list().value()) {
      const StatusOr<Output> output = FindTensor(*graph, name);
      if (output.ok()) graph->AddToCollection(collection, *output);
    }
    for (const std::string& bytes : def.bytes_list().value()) {
      pb::VariableDef variable;
      if (!variable.ParseFromString(bytes)) continue;
      const StatusOr<Output> handle = FindTensor(*graph, variable.variable_name());
      if (handle.ok()) graph->AddToCollection(collection, *handle);
    }
  }
}

// What is fed in both steps of loading.
StatusOr<std::vector<Feed>> MakeAssetFeeds(const pb::MetaGraphDef& meta, const Graph& graph,
                                           const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const auto named, AssetFeeds(meta, directory));
  std::vector<Feed> feeds;
  for (const auto& [name, value] : named) {
    MR_ASSIGN_OR_RETURN(const Output output, FindTensor(graph, name));
    feeds.emplace_back(output, value);
  }
  return feeds;
}

Status RunOp(Session* session, const std::vector<Feed>& feeds, const Operation& op) {
  return session->Run(feeds, {}, std::span(&op, 1)).status();
}

Status Restore(const pb::MetaGraphDef& meta, const Graph& graph, const std::string& directory,
               std::vector<Feed> feeds, Session* session) {
  const pb::SaverDef& saver = meta.saver_def();
  if (saver.restore_op_name().empty()) return OkStatus();
  const std::string prefix = VariablesPrefixOf(directory);
  if (!PosixFileSystem()->FileExists(prefix + ".index")) {
    return errors::NotFound("the variables of the model are missing: there is no ", prefix,
                            ".index");
  }
  MR_ASSIGN_OR_RETURN(const Output filename, FindTensor(graph, saver.filename_tensor_name()));
  MR_ASSIGN_OR_RETURN(const Operation restore, FindOp(graph, saver.restore_op_name()));
  feeds.emplace_back(filename, Tensor::String(prefix));
  return RunOp(session, feeds, restore);
}

Status Initialize(const pb::MetaGraphDef& meta, const Graph& graph, const std::vector<Feed>& feeds,
                  Session* session) {
  const std::string name = InitOpOf(meta);
  if (name.empty()) return OkStatus();
  MR_ASSIGN_OR_RETURN(const Operation init, FindOp(graph, name));
  return RunOp(session, feeds, init);
}

}  // namespace

struct SavedModel::Impl {
  std::string directory;
  std::set<std::string> tags;
  pb::MetaGraphDef meta;  // without the graph
  std::map<std::string, ModelSignature> signatures;
  Graph graph;
  std::optional<Session> session;
  Mutex mu;
  // Prepared when they are first run; entries stay.
  std::map<std::string, SignatureCall, std::less<>> prepared ABSL_GUARDED_BY(mu);

  Status Load(const LoadSavedModelOptions& options) {
    std::string bytes;
    const std::vector<std::string> missing = MissingOps(meta.graph_def());
    meta.graph_def().SerializeToString(&bytes);
    meta.clear_graph_def();
    if (const Status status = graph.ImportGraphDef(bytes); !status.ok()) {
      return missing.empty() ? status : Lacking(status, missing);
    }
    MR_ASSIGN_OR_RETURN(signatures, SignaturesOf(meta));
    MR_RETURN_IF_ERROR(CheckSignatures(graph, signatures));
    ImportCollections(meta, &graph);
    MR_ASSIGN_OR_RETURN(const std::vector<Feed> feeds, MakeAssetFeeds(meta, graph, directory));
    StatusOr<Session> made = Session::Create(graph, options.session);
    if (!made.ok()) return missing.empty() ? made.status() : Lacking(made.status(), missing);
    session = *std::move(made);
    MR_RETURN_IF_ERROR(Restore(meta, graph, directory, feeds, &*session));
    return Initialize(meta, graph, feeds, &*session);
  }

  static Status Lacking(const Status& status, const std::vector<std::string>& missing) {
    return Annotate(status, StrCat("; of its ops this build has not: ", StrJoin(missing, ", ")));
  }

  StatusOr<const SignatureCall*> Prepared(const SavedModel& model, std::string_view signature) {
    {
      MutexLock lock(&mu);
      const auto it = prepared.find(signature);
      if (it != prepared.end()) return &it->second;
    }
    MR_ASSIGN_OR_RETURN(SignatureCall call, model.Prepare(signature));
    MutexLock lock(&mu);
    return &prepared.try_emplace(std::string(signature), std::move(call)).first->second;
  }
};

SavedModel::SavedModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SavedModel::SavedModel(SavedModel&&) noexcept = default;
SavedModel& SavedModel::operator=(SavedModel&&) noexcept = default;
SavedModel::~SavedModel() = default;

const std::map<std::string, ModelSignature>& SavedModel::signatures() const {
  return impl_->signatures;
}
const std::set<std::string>& SavedModel::tags() const { return impl_->tags; }
const std::string& SavedModel::directory() const { return impl_->directory; }
Graph& SavedModel::graph() { return impl_->graph; }
Session& SavedModel::session() { return *impl_->session; }

StatusOr<const ModelSignature*> SavedModel::FindSignature(std::string_view name) const {
  const auto it = impl_->signatures.find(std::string(name));
  if (it != impl_->signatures.end()) return &it->second;
  std::vector<std::string> known;
  for (const auto& [other, signature] : impl_->signatures) known.push_back(other);
  return errors::NotFound("the model in ", impl_->directory, " has no signature '", CEscape(name),
                          "', but ", known.empty() ? "none" : StrJoin(known, ", "));
}

StatusOr<SignatureCall> SavedModel::Prepare(std::string_view name) const {
  MR_ASSIGN_OR_RETURN(const ModelSignature* const signature, FindSignature(name));
  SignatureCall call;
  call.signature_ = std::make_shared<const ModelSignature>(*signature);
  std::vector<Output> feeds, fetches;
  for (const auto& [input, tensor] : signature->inputs) {
    MR_ASSIGN_OR_RETURN(feeds.emplace_back(), FindTensor(impl_->graph, tensor.tensor));
    call.inputs_.push_back(input);
  }
  for (const auto& [output, tensor] : signature->outputs) {
    MR_ASSIGN_OR_RETURN(fetches.emplace_back(), FindTensor(impl_->graph, tensor.tensor));
    call.outputs_.push_back(output);
  }
  MR_ASSIGN_OR_RETURN(call.callable_, impl_->session->MakeCallable(feeds, fetches));
  return call;
}

StatusOr<std::map<std::string, Tensor>> SavedModel::Run(std::string_view name,
                                                        const std::map<std::string, Tensor>& inputs,
                                                        const RunOptions& options) const {
  MR_ASSIGN_OR_RETURN(const SignatureCall* const call, impl_->Prepared(*this, name));
  const StatusOr<std::vector<Tensor>> fed = call->InOrder(inputs);
  if (!fed.ok()) return Annotate(fed.status(), StrCat(" (signature '", name, "')"));
  std::vector<Tensor> values;
  MR_RETURN_IF_ERROR(call->Run(*fed, &values, options));
  std::map<std::string, Tensor> outputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    outputs.emplace(call->outputs()[i], std::move(values[i]));
  }
  return outputs;
}

Status SavedModel::Save(const std::string& directory) const {
  pb::MetaGraphDef meta = impl_->meta;
  const pb::SaverDef& saver = meta.saver_def();
  if (!saver.restore_op_name().empty()) {
    if (saver.save_tensor_name().empty()) {
      return errors::FailedPrecondition(GraphFileOf(impl_->directory),
                                        " does not say how its variables are saved");
    }
    MR_ASSIGN_OR_RETURN(const Output saved, FindTensor(impl_->graph, saver.save_tensor_name()));
    MR_ASSIGN_OR_RETURN(const Output filename,
                        FindTensor(impl_->graph, saver.filename_tensor_name()));
    const std::string prefix = VariablesPrefixOf(directory);
    MR_RETURN_IF_ERROR(PosixFileSystem()->CreateDirectories(std::string(DirectoryName(prefix))));
    const Feed feed(filename, Tensor::String(prefix));
    MR_RETURN_IF_ERROR(impl_->session->Run(std::span(&feed, 1), std::span(&saved, 1)).status());
  }
  MR_ASSIGN_OR_RETURN(const std::vector<pb::AssetFileDef> assets, AssetsOf(meta));
  for (const pb::AssetFileDef& asset : assets) {
    MR_RETURN_IF_ERROR(CopyFile(AssetPathOf(impl_->directory, asset.filename()),
                                AssetPathOf(directory, asset.filename())));
  }
  MR_ASSIGN_OR_RETURN(const std::string bytes, impl_->graph.ToGraphDef());
  if (!meta.mutable_graph_def()->ParseFromString(bytes)) {
    return errors::Internal("the graph that was written for ", directory, " cannot be read");
  }
  return WriteSavedModel(directory, std::move(meta));
}

StatusOr<SavedModel> LoadSavedModel(const std::string& directory,
                                    const LoadSavedModelOptions& options) {
  const std::string file = GraphFileOf(directory);
  MR_ASSIGN_OR_RETURN(pb::SavedModel message, ReadSavedModel(directory));
  auto impl = std::make_unique<SavedModel::Impl>();
  impl->directory = directory;
  impl->tags = options.tags;
  MR_ASSIGN_OR_RETURN(impl->meta, ChooseMetaGraph(std::move(message), options.tags, file));
  if (const Status status = impl->Load(options); !status.ok()) {
    return WithMessage(status, StrCat("cannot load ", file, ": ", Message(status)));
  }
  return SavedModel(std::move(impl));
}

StatusOr<std::vector<SavedModelInfo>> ReadSavedModelInfo(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const pb::SavedModel message, ReadSavedModel(directory));
  std::vector<SavedModelInfo> graphs;
  for (const pb::MetaGraphDef& meta : message.meta_graphs()) {
    SavedModelInfo& info = graphs.emplace_back();
    info.tags = TagsOf(meta);
    StatusOr<std::map<std::string, ModelSignature>> signatures = SignaturesOf(meta);
    if (!signatures.ok()) {
      return WithMessage(signatures.status(),
                         StrCat(GraphFileOf(directory), ": ", Message(signatures.status())));
    }
    info.signatures = *std::move(signatures);
    info.missing_ops = MissingOps(meta.graph_def());
    info.num_nodes = meta.graph_def().node_size();
    info.num_functions = meta.graph_def().library().function_size();
    info.written_by = meta.meta_info_def().tensorflow_version();
  }
  return graphs;
}

}  // namespace millrace
