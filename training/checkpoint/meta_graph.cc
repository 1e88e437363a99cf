// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/meta_graph.h"

#include <map>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/dataflow_graph.h"
#include "graph/graph_def_io.h"
#include "io/filesystem.h"
#include "io/tensor_slice.h"
#include "proto/variable.pb.h"

namespace millrace {
namespace {

void SetSlice(const SavedVariable& saved, pb::SaveSliceInfoDef* def) {
  Shape whole;
  TensorSlice slice;
  if (!ParseShapeAndSlice(saved.slice, &whole, &slice).ok()) return;
  const StatusOr<TensorSlice> part = slice.ResolvedIn(whole);
  if (!part.ok()) return;
  def->set_full_name(saved.key);
  for (int i = 0; i < whole.rank(); ++i) {
    def->add_full_shape(whole.dim(i));
    def->add_var_offset(part->extents[i].start);
    def->add_var_shape(part->extents[i].length);
  }
}

using SlicesByName = std::map<std::string, const SavedVariable*>;

std::string VariableBytes(const GraphState& state, const Output& handle, bool trainable,
                          const SlicesByName& slices) {
  const auto node = [&](std::string_view suffix) {
    return Operation(handle.op().graph(),
                     state.graph->FindNode(StrCat(handle.op().name(), suffix)));
  };
  pb::VariableDef def;
  def.set_variable_name(handle.name());
  const Operation initializer = node("/Assign"), read = node("/read");
  if (initializer.valid()) {
    def.set_initializer_name(initializer.name());
    def.set_initial_value_name(initializer.input(1).name());
  }
  if (read.valid()) def.set_snapshot_name(read.output(0).name());
  def.set_is_resource(handle.dtype() == kResource);
  def.set_trainable(trainable);
  const auto it = slices.find(handle.op().name());
  if (it != slices.end()) SetSlice(*it->second, def.mutable_save_slice_info_def());
  return def.SerializeAsString();
}

bool AreVariables(const std::vector<Output>& outputs) {
  for (const Output& output : outputs) {
    const std::string& type = output.op().type();
    if (type != "VariableV2" && type != "VarHandleOp" && type != "Variable") return false;
  }
  return !outputs.empty();
}

// A part of a bigger tensor, as MakeShardedVariable marks its own.
void MarkSlice(const pb::SaveSliceInfoDef& def, const Operation& variable) {
  AttrMap& attrs = variable.node()->mutable_attrs();
  if (def.full_shape_size() == 0 || attrs.Has("_save_slice")) return;
  if (def.var_offset_size() != def.full_shape_size() ||
      def.var_shape_size() != def.full_shape_size()) {
    return;
  }
  std::string whole, parts;
  for (int i = 0; i < def.full_shape_size(); ++i) {
    StrAppend(&whole, def.full_shape(i), " ");
    StrAppend(&parts, i == 0 ? "" : ":", def.var_offset(i), ",", def.var_shape(i));
  }
  attrs.Set("_save_name", def.full_name());
  attrs.Set("_save_slice", whole + parts);
}

// What tools share, as far as it is about nodes and variables.
Status ImportCollection(Graph& graph, const std::string& name, const pb::CollectionDef& def,
                        std::string_view below) {
  for (const std::string& text : def.node_list().value()) {
    const Output output = FindTensor(graph, below, text);
    if (!output.valid()) {
      return errors::InvalidArgument("collection ", name, " of the meta graph has ", text,
                                     ", which is not among its nodes");
    }
    graph.AddToCollection(name, output);
  }
  for (const std::string& bytes : def.bytes_list().value()) {
    pb::VariableDef variable;
    if (!variable.ParseFromString(bytes)) continue;
    const Output handle = FindTensor(graph, below, variable.variable_name());
    if (!handle.valid() || !AreVariables({handle})) continue;
    MarkSlice(variable.save_slice_info_def(), handle.op());
    graph.AddToCollection(name, handle);
  }
  return OkStatus();
}

}  // namespace

Output FindTensor(const Graph& graph, std::string_view below, std::string_view name) {
  const std::size_t colon = name.rfind(':');
  const Operation op = graph.FindOperation(StrCat(below, name.substr(0, colon)));
  int64_t index = 0;
  if (!op.valid() || name.empty()) return Output();
  if (colon == std::string_view::npos) return Output(op, 0);
  if (!ParseInt64(name.substr(colon + 1), &index) || index < 0 || index >= op.num_outputs()) {
    return Output();
  }
  return Output(op, static_cast<int>(index));
}

StatusOr<std::unique_ptr<Saver>> ImportMetaGraph(Graph& graph, const std::string& filename,
                                                 std::string_view import_scope) {
  MR_RETURN_IF_ERROR(graph.status());
  MR_ASSIGN_OR_RETURN(const std::string bytes, PosixFileSystem()->ReadFile(filename));
  pb::MetaGraphDef meta;
  if (!meta.ParseFromString(bytes)) {
    return errors::DataLoss(filename, ", of ", bytes.size(), " bytes, is no MetaGraphDef");
  }
  MR_RETURN_IF_ERROR(graph.ImportGraphDef(meta.graph_def().SerializeAsString(), import_scope));
  const std::string below = import_scope.empty() ? "" : StrCat(import_scope, "/");
  // In the order of their names.
  const std::map<std::string, pb::CollectionDef> collections(meta.collection_def().begin(),
                                                             meta.collection_def().end());
  for (const auto& [name, def] : collections) {
    MR_RETURN_IF_ERROR(ImportCollection(graph, name, def, below));
  }
  if (meta.saver_def().restore_op_name().empty()) return std::unique_ptr<Saver>();
  return Saver::FromDef(graph, meta.saver_def().SerializeAsString(), {}, import_scope);
}

StatusOr<std::string> MakeMetaGraph(const GraphState& state, const pb::SaverDef& saver,
                                    std::span<const SavedVariable> saved,
                                    bool strip_default_attrs) {
  pb::MetaGraphDef meta;
  MR_RETURN_IF_ERROR(ExportGraphDef(*state.graph, {.strip_default_attrs = strip_default_attrs},
                                    meta.mutable_graph_def()));
  if (strip_default_attrs) meta.mutable_meta_info_def()->set_stripped_default_attrs(true);
  *meta.mutable_saver_def() = saver;
  SlicesByName slices;
  for (const SavedVariable& v : saved) {
    if (!v.slice.empty()) slices[v.variable.name()] = &v;
  }
  std::map<std::string, bool> trainable;
  if (const auto it = state.collections.find(kTrainableVariables); it != state.collections.end()) {
    for (const Output& handle : it->second) trainable[handle.op().name()] = true;
  }
  for (const auto& [name, outputs] : state.collections) {
    pb::CollectionDef& def = (*meta.mutable_collection_def())[name];
    if (AreVariables(outputs)) {
      for (const Output& handle : outputs) {
        def.mutable_bytes_list()->add_value(
            VariableBytes(state, handle, trainable.contains(handle.op().name()), slices));
      }
    } else {
      for (const Output& output : outputs) {
        const Operation& op = output.op();
        def.mutable_node_list()->add_value(op.num_outputs() == 0 ? op.name() : output.name());
      }
    }
  }
  constexpr std::size_t kMostBytes = 0x7fffffff;
  if (meta.ByteSizeLong() > kMostBytes) {
    return errors::InvalidArgument("the graph has ", meta.ByteSizeLong(),
                                   " bytes as a MetaGraphDef, which may have at most ", kMostBytes,
                                   "; feed big constants, or save without write_meta_graph");
  }
  return meta.SerializeAsString();
}

}  // namespace millrace
