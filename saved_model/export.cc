// SPDX-License-Identifier: Apache-2.0
// Writing: a copy of the graph is cut to what the signatures need and gets nodes that save and
// restore; the values come from the session, whose own graph stays as it is.
#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/prune.h"
#include "io/filesystem.h"
#include "millrace/checkpoint.h"
#include "millrace/partitioners.h"
#include "millrace/saved_model.h"
#include "millrace/saver.h"
#include "millrace/variables.h"
#include "saved_model/model_files.h"
#include "saved_model/signatures.h"

namespace millrace {
namespace {

Status CheckOutput(const Graph& graph, const Output& output, std::string_view what) {
  if (output.valid() && output.op().graph() == graph.state()) return OkStatus();
  return errors::InvalidArgument(what, " is ",
                                 output.valid() ? "of another graph" : "no valid output");
}

StatusOr<ModelSignature> SignatureFor(const Graph& graph, const GraphSignature& from) {
  ModelSignature signature;
  signature.method_name = from.method_name;
  signature.defaults = from.defaults;
  for (const auto& [outputs, tensors] :
       {std::pair(&from.inputs, &signature.inputs), std::pair(&from.outputs, &signature.outputs)}) {
    for (const auto& [name, output] : *outputs) {
      MR_RETURN_IF_ERROR(CheckOutput(graph, output, StrCat("'", name, "'")));
      tensors->emplace(name,
                       SignatureTensor{output.name(), BaseType(output.dtype()), output.shape()});
    }
  }
  return signature;
}

// One export: what is kept, by the names that nodes have in the graph and in its copy.
class Exporter {
 public:
  Exporter(const Graph& graph, const SavedModelExportOptions& options)
      : graph_(graph), options_(options) {}

  Status Run(Session* session, const std::map<std::string, GraphSignature>& signatures,
             const std::string& directory) {
    for (const auto& [name, signature] : signatures) {
      StatusOr<ModelSignature> made = SignatureFor(graph_, signature);
      if (!made.ok()) {
        return WithMessage(made.status(),
                           StrCat("signature '", name, "': ", Message(made.status())));
      }
      signatures_.emplace(name, *std::move(made));
      for (const auto& [input, output] : signature.inputs) Keep(output.op());
      for (const auto& [key, output] : signature.outputs) Keep(output.op());
    }
    MR_RETURN_IF_ERROR(KeepOptions());
    KeepVariables();
    MR_RETURN_IF_ERROR(MakeCopy());
    MR_RETURN_IF_ERROR(WriteValues(session, directory));
    MR_ASSIGN_OR_RETURN(pb::MetaGraphDef meta, MakeMeta());
    for (const SavedModelAsset& asset : options_.assets) {
      MR_RETURN_IF_ERROR(
          CopyFile(asset.path, AssetPathOf(directory, std::string(BaseName(asset.path)))));
    }
    return WriteSavedModel(directory, std::move(meta));
  }

 private:
  void Keep(const Operation& op) { kept_.push_back(op.node()); }

  Status KeepOptions() {
    std::set<std::string_view> names;
    for (const SavedModelAsset& asset : options_.assets) {
      MR_RETURN_IF_ERROR(
          CheckOutput(graph_, asset.filename, StrCat("the filename of ", asset.path)));
      if (!names.insert(BaseName(asset.path)).second) {
        return errors::InvalidArgument("two assets are called '", BaseName(asset.path),
                                       "'; give one of them another name");
      }
      Keep(asset.filename.op());
    }
    if (!options_.init.valid()) return OkStatus();
    if (options_.init.graph() != graph_.state()) {
      return errors::InvalidArgument("SavedModelExportOptions.init is of another graph");
    }
    Keep(options_.init);
    return OkStatus();
  }

  // Those that something kept reads or changes, with what gives them their first values: other
  // programs look for it.
  void KeepVariables() {
    const std::vector<bool> needed = Ancestors(kept_, *graph_.state()->graph);
    for (const char* collection : {kVariables, kLocalVariables}) {
      for (Variable& v : Variables(graph_, collection)) {
        if (!needed[v.handle.op().node()->id()]) continue;
        if (v.initializer.valid()) Keep(v.initializer);
        if (v.read.valid()) Keep(v.read.op());
        variables_.emplace_back(collection, std::move(v));
      }
    }
  }

  Status MakeCopy() {
    MR_ASSIGN_OR_RETURN(const std::string bytes, graph_.ToGraphDef());
    MR_RETURN_IF_ERROR(copy_.ImportGraphDef(bytes));
    DataflowGraph* const nodes = copy_.state()->graph.get();
    std::vector<Node*> kept;
    for (const Node* node : kept_) kept.push_back(nodes->FindNode(node->name()));
    PruneTo(kept, nodes);
    DropFunctions(nodes);
    for (Node* node : nodes->OpNodes()) {
      if (options_.clear_devices) node->set_requested_device("");
    }
    for (const auto& [collection, v] : variables_) {
      const Output handle = copy_.FindOperation(v.name()).output(v.handle.index());
      copy_.AddToCollection(collection, handle);
      if (IsIn(graph_.collection(kTrainableVariables), v.handle)) {
        copy_.AddToCollection(kTrainableVariables, handle);
      }
    }
    return copy_.status();
  }

  static bool IsIn(const std::vector<Output>& outputs, const Output& output) {
    return std::find(outputs.begin(), outputs.end(), output) != outputs.end();
  }

  // Those that no node of the rest calls: they may have ops that other programs do not know.
  static void DropFunctions(DataflowGraph* nodes) {
    if (nodes->library() == nullptr) return;
    std::vector<std::string> names;
    for (const Node* node : nodes->OpNodes()) {
      if (nodes->IsCall(*node)) names.push_back(node->type());
      for (const auto& [name, value] : node->attrs()) AddMentioned(value, &names);
    }
    nodes->set_library(nodes->library()->Reachable(names));
  }

  Status WriteValues(Session* session, const std::string& directory) {
    if (variables_.empty()) return OkStatus();
    std::vector<Variable> all;
    for (const auto& [collection, v] : variables_) all.push_back(v);
    // Where savers look for a variable in parts: as one tensor.
    const std::vector<ShardedVariable> wholes = JoinParts(all);
    std::vector<Output> reads;
    for (const ShardedVariable& whole : wholes) {
      for (const VariablePart& part : whole.parts) reads.push_back(part.variable.read);
    }
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, session->Run({}, reads));
    std::map<std::string, Tensor> named;
    std::span<const Tensor> left = values;
    for (const ShardedVariable& whole : wholes) {
      MR_ASSIGN_OR_RETURN(named[whole.name], Joined(whole.shape, left.first(whole.parts.size())));
      left = left.subspan(whole.parts.size());
    }
    return WriteTensors(VariablesPrefixOf(directory), named);
  }

  // The rows of all parts of a tensor.
  static StatusOr<Tensor> Joined(const Shape& shape, std::span<const Tensor> parts) {
    if (parts.size() == 1) return parts[0];
    MR_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(parts[0].dtype(), shape));
    int64_t at = 0;
    for (const Tensor& part : parts) {
      const int64_t count = part.num_elements();
      if (part.dtype() == kString) {
        std::copy_n(part.data<std::string>(), count, whole.data<std::string>() + at);
      } else if (count > 0) {
        const auto bytes = static_cast<int64_t>(DataTypeSize(part.dtype()));
        std::memcpy(static_cast<char*>(whole.raw_data()) + at * bytes, part.raw_data(),
                    part.num_bytes());
      }
      at += count;
    }
    return whole;
  }

  StatusOr<pb::MetaGraphDef> MakeMeta() {
    SaverOptions saver_options{.allow_empty = true};
    for (const char* collection : {kVariables, kLocalVariables}) {
      for (SavedVariable& saved : SavedVariables(copy_.root(), collection)) {
        saver_options.variables.push_back(std::move(saved));
      }
    }
    MR_ASSIGN_OR_RETURN(const auto saver, Saver::Create(copy_, std::move(saver_options)));
    MR_ASSIGN_OR_RETURN(const std::string bytes, saver->ExportMetaGraph());
    pb::MetaGraphDef meta;
    if (!meta.ParseFromString(bytes)) {
      return errors::Internal("the graph that was made for the SavedModel cannot be read");
    }
    for (const std::string& tag : options_.tags) meta.mutable_meta_info_def()->add_tags(tag);
    for (const auto& [name, signature] : signatures_) {
      SignatureToProto(signature, &(*meta.mutable_signature_def())[name]);
    }
    for (const SavedModelAsset& asset : options_.assets) {
      pb::AssetFileDef* const def = meta.add_asset_file_def();
      def->set_filename(std::string(BaseName(asset.path)));
      def->mutable_tensor_info()->set_name(asset.filename.name());
      def->mutable_tensor_info()->set_dtype(pb::DT_STRING);
    }
    if (options_.init.valid()) {
      (*meta.mutable_collection_def())[kMainOpCollection].mutable_node_list()->add_value(
          options_.init.name());
    }
    return meta;
  }

  const Graph& graph_;
  const SavedModelExportOptions& options_;
  std::map<std::string, ModelSignature> signatures_;
  std::vector<Node*> kept_;                                  // of graph_
  std::vector<std::pair<const char*, Variable>> variables_;  // with their collections
  Graph copy_;
};

}  // namespace

Status ExportSavedModel(const Graph& graph, Session& session,
                        const std::map<std::string, GraphSignature>& signatures,
                        const std::string& directory, const SavedModelExportOptions& options) {
  MR_RETURN_IF_ERROR(graph.status());
  if (signatures.empty()) {
    return errors::InvalidArgument("a SavedModel without signatures cannot be asked anything: ",
                                   "name one, such as \"", kServingDefault, "\"");
  }
  return Exporter(graph, options).Run(&session, signatures, directory);
}

}  // namespace millrace
