// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/meta_graph.h"

#include <map>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/graph_def_io.h"
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

}  // namespace

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
