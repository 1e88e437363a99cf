// SPDX-License-Identifier: Apache-2.0
// Graphs, and what a step did in them.
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "proto/config.pb.h"
#include "proto/graph.pb.h"
#include "proto/meta_graph.pb.h"
#include "proto/step_stats.pb.h"
#include "summary/event_writer.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

template <typename Message>
Status Parse(std::string_view bytes, std::string_view what, Message* message) {
  if (bytes.size() <= INT32_MAX &&
      message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return OkStatus();
  }
  return errors::InvalidArgument("these ", bytes.size(), " bytes are no ", what);
}

StatusOr<pb::RunMetadata> MetadataOf(const RunMetadata& run) {
  pb::RunMetadata metadata;
  MR_RETURN_IF_ERROR(Parse(run.step_stats, "step statistics", metadata.mutable_step_stats()));
  for (const std::string& graph : run.partition_graphs) {
    MR_RETURN_IF_ERROR(Parse(graph, "graph of a partition", metadata.add_partition_graphs()));
  }
  return metadata;
}

// Node to device, of all nodes that the run tells of.
StringMap<std::string> DevicesOf(const pb::RunMetadata& run) {
  StringMap<std::string> devices;
  for (const pb::DeviceStepStats& device : run.step_stats().dev_stats()) {
    for (const pb::NodeExecStats& node : device.node_stats()) {
      devices.emplace(node.node_name(), device.device());
    }
  }
  for (const pb::GraphDef& graph : run.partition_graphs()) {
    for (const pb::NodeDef& node : graph.node()) {
      if (!node.device().empty()) devices.insert_or_assign(node.name(), node.device());
    }
  }
  return devices;
}

}  // namespace

Status EventWriter::WriteGraph(const Graph& graph) {
  MR_ASSIGN_OR_RETURN(std::string bytes, graph.ToGraphDef());
  pb::Event event;
  event.set_graph_def(std::move(bytes));
  return impl_->Write(&event);
}

Status EventWriter::WriteGraph(const Graph& graph, const RunMetadata& run) {
  if (run.step_stats.empty() && run.partition_graphs.empty()) {
    return errors::InvalidArgument(
        "this RunMetadata says nothing of devices: set RunOptions.partition_graphs or trace");
  }
  MR_ASSIGN_OR_RETURN(const pb::RunMetadata metadata, MetadataOf(run));
  const StringMap<std::string> devices = DevicesOf(metadata);
  MR_ASSIGN_OR_RETURN(const std::string bytes, graph.ToGraphDef());
  pb::GraphDef def;
  MR_RETURN_IF_ERROR(Parse(bytes, "GraphDef", &def));
  for (pb::NodeDef& node : *def.mutable_node()) {
    const auto it = devices.find(node.name());
    if (it != devices.end()) node.set_device(it->second);
  }
  pb::Event event;
  event.set_graph_def(def.SerializeAsString());
  return impl_->Write(&event);
}

Status EventWriter::WriteGraphDef(std::string_view graph_def) {
  pb::GraphDef parsed;
  MR_RETURN_IF_ERROR(Parse(graph_def, "GraphDef", &parsed));
  pb::Event event;
  event.set_graph_def(std::string(graph_def));
  return impl_->Write(&event);
}

Status EventWriter::WriteMetaGraph(std::string_view meta_graph) {
  pb::MetaGraphDef parsed;
  MR_RETURN_IF_ERROR(Parse(meta_graph, "MetaGraphDef", &parsed));
  pb::Event event;
  event.set_meta_graph_def(std::string(meta_graph));
  return impl_->Write(&event);
}

Status EventWriter::WriteKerasModel(std::string_view json) {
  MR_RETURN_IF_ERROR(CheckUtf8("the description of a model", json));
  pb::Event event;
  MR_ASSIGN_OR_RETURN(
      pb::Summary::Value * summary,
      AddValue({.plugin = "graph_keras_model", .content = "1"}, "keras", "", &event));
  TensorToReadableProto(Tensor::String(json), summary->mutable_tensor());
  return impl_->Write(&event);
}

Status EventWriter::WriteRunMetadata(std::string_view tag, const RunMetadata& run, int64_t step) {
  if (tag.empty()) {
    return errors::InvalidArgument("statistics of a step have no tag: give them a name");
  }
  MR_RETURN_IF_ERROR(CheckUtf8("a tag", tag));
  if (run.step_stats.empty()) {
    return errors::InvalidArgument("the RunMetadata '", tag,
                                   "' has no statistics of the step: set RunOptions.trace");
  }
  MR_ASSIGN_OR_RETURN(const pb::RunMetadata metadata, MetadataOf(run));
  pb::Event event;
  event.set_step(step);
  event.mutable_tagged_run_metadata()->set_tag(std::string(tag));
  event.mutable_tagged_run_metadata()->set_run_metadata(metadata.SerializeAsString());
  return impl_->Write(&event);
}

}  // namespace millrace
