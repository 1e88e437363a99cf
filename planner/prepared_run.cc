// SPDX-License-Identifier: Apache-2.0
#include "planner/prepared_run.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "master/feed_fetch.h"
#include "partitioner/verify.h"

namespace millrace {
namespace {

StatusOr<RunSignature> Signature(const RunRequest& request, const DataflowGraph& graph) {
  RunSignature signature;
  for (const std::string& name : request.feeds) signature.feeds.push_back(FullTensorName(name));
  for (const std::string& name : request.fetches) signature.fetches.push_back(FullTensorName(name));
  signature.targets = request.targets;
  for (const auto& [name, shape] : request.shapes) {
    if (std::count(signature.feeds.begin(), signature.feeds.end(), name) == 0) {
      return errors::InvalidArgument("a shape is given for ", name, ", which is not fed");
    }
  }
  if (signature.fetches.empty() && signature.targets.empty()) {
    for (const Node* node : graph.OpNodes()) signature.targets.push_back(node->name());
  }
  return signature;
}

// Puts a placeholder in the place of each value that the client feeds.
Status AddPlaceholders(const ShapeRefiner& whole_shapes, const DataflowGraph& whole,
                       const RunRequest& request, DataflowGraph* graph) {
  for (Node* const recv : graph->OpNodes()) {
    if (recv->type() != "_Recv" || !recv->attrs().GetOr<bool>("client_terminated", false)) continue;
    const std::string tensor = recv->attrs().GetOr<std::string>("tensor_name", "");
    const std::size_t colon = tensor.rfind(':');
    const Node* const fed =
        colon == std::string::npos ? nullptr : whole.FindNode(tensor.substr(0, colon));
    int64_t output = 0;
    if (fed == nullptr || !ParseInt64(tensor.substr(colon + 1), &output)) continue;
    PartialShape shape = whole_shapes.shape(fed, static_cast<int>(output));
    if (const auto it = request.shapes.find(tensor); it != request.shapes.end()) {
      MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(it->second));
    }
    AttrMap attrs;
    attrs.Set("dtype", BaseType(recv->output_types()[0]));
    attrs.Set("shape", shape);
    const std::string name = recv->name();
    const std::string device = recv->assigned_device();
    const std::vector<Edge*> edges(recv->out_edges().begin(), recv->out_edges().end());
    std::vector<std::pair<Node*, int>> consumers;
    for (const Edge* edge : edges) {
      if (edge->dst->IsOp()) consumers.emplace_back(edge->dst, edge->dst_input);
    }
    graph->RemoveNode(recv);
    MR_ASSIGN_OR_RETURN(Node* const placeholder,
                        graph->AddNode(name, "Placeholder", std::move(attrs)));
    placeholder->set_assigned_device(InternedString(device));
    for (const auto& [dst, slot] : consumers) {
      if (slot < 0) {
        graph->AddControlEdge(placeholder, dst);
      } else {
        MR_RETURN_IF_ERROR(graph->AddEdge(placeholder, 0, dst, slot).status());
      }
    }
  }
  graph->FixSourceAndSink();
  return OkStatus();
}

std::string TaskOf(const Node& node) {
  const StatusOr<DeviceName> device = DeviceName::Parse(node.assigned_device());
  return device.ok() ? TaskName(*device) : std::string();
}

Status Cut(PlannedRun* run) {
  int made = 0;
  PartitionOptions options;
  options.new_name = [&made](std::string_view prefix) { return StrCat(prefix, "_S", made++); };
  options.node_to_location = TaskOf;
  MR_ASSIGN_OR_RETURN(run->task_parts, PartitionGraph(*run->graph, options));
  if (run->task_parts.size() > 1) MR_RETURN_IF_ERROR(VerifyPartitions(run->task_parts));
  options.node_to_location = [](const Node& node) { return node.assigned_device(); };
  options.new_name = [&made](std::string_view prefix) { return StrCat(prefix, "_G", made++); };
  options.control_flow_added = true;
  for (const Partition& part : run->task_parts) {
    MR_ASSIGN_OR_RETURN(std::vector<Partition> devices, PartitionGraph(*part.graph, options));
    std::move(devices.begin(), devices.end(), std::back_inserter(run->device_parts));
  }
  return OkStatus();
}

}  // namespace

std::string FullTensorName(const std::string& name) {
  return name.find(':') == std::string::npos ? name + ":0" : name;
}

PartialShape PlannedRun::shape(const Node& node, int output) const {
  const Node* const typed = typed_graph->FindNode(node.name());
  return typed == nullptr ? PartialShape() : shapes.shape(typed, output);
}

StatusOr<PlannedRun> PrepareRun(const DataflowGraph& placed, const RunRequest& request) {
  MR_ASSIGN_OR_RETURN(const RunSignature signature, Signature(request, placed));
  PlannedRun run;
  run.graph = CopyForRun(signature, placed);
  MR_RETURN_IF_ERROR(RewriteForRun(signature, {request.client_device, 1}, run.graph.get()));
  MR_RETURN_IF_ERROR(VerifySyncCounts(*run.graph));
  ShapeRefiner whole_shapes;
  whole_shapes.AddGraph(placed).IgnoreError();  // what it learned before an error is right
  run.typed_graph = run.graph->Clone();
  MR_RETURN_IF_ERROR(AddPlaceholders(whole_shapes, placed, request, run.typed_graph.get()));
  run.shapes.AddGraph(*run.typed_graph).IgnoreError();
  MR_RETURN_IF_ERROR(Cut(&run));
  return run;
}

}  // namespace millrace
