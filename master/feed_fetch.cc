// SPDX-License-Identifier: Apache-2.0
#include "master/feed_fetch.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/functions/function_inline.h"
#include "graph/node_name.h"
#include "graph/prune.h"

namespace millrace {
namespace {

void SetClientAttrs(const std::string& tensor, const ClientDevice& client, AttrMap* attrs) {
  attrs->Set("tensor_name", tensor);
  attrs->Set("send_device", client.name);
  attrs->Set("send_device_incarnation", static_cast<int64_t>(client.incarnation));
  attrs->Set("recv_device", client.name);
  attrs->Set("client_terminated", true);
}

// The data edges out of one output.
std::vector<Edge*> Consumers(Node* node, int output) {
  std::vector<Edge*> edges;
  for (Edge* edge : node->out_edges()) {
    if (edge->src_output == output && !edge->IsControl()) edges.push_back(edge);
  }
  return edges;
}

Status MoveEdges(const std::vector<Edge*>& edges, Node* src, int output, DataflowGraph* graph) {
  for (Edge* edge : edges) {
    Node* const dst = edge->dst;
    const int slot = edge->dst_input;
    graph->RemoveEdge(edge);
    MR_RETURN_IF_ERROR(graph->AddEdge(src, output, dst, slot).status());
  }
  return OkStatus();
}

StatusOr<OutputRef> FindFeed(const std::string& name, const DataflowGraph& graph) {
  const StatusOr<TensorName> parsed = ParseTensorName(name);
  Node* const node = parsed.ok() && !parsed->IsControl() ? graph.FindNode(parsed->node) : nullptr;
  if (node == nullptr) {
    return errors::NotFound("FeedInputs: unable to find feed output ", name);
  }
  if (parsed->index >= node->num_outputs()) {
    return errors::InvalidArgument("FeedInputs: ", parsed->node, " should have output index < ",
                                   node->num_outputs());
  }
  // Of a call that was inlined others use what its body makes.
  if (const Edge* input = node->input_edge(parsed->index);
      input != nullptr && node->attrs().Has(kStandsForInputs)) {
    return OutputRef{input->src, input->src_output};
  }
  return OutputRef{node, parsed->index};
}

StatusOr<OutputRef> FindFetch(const std::string& name, const DataflowGraph& graph) {
  const StatusOr<TensorName> parsed = ParseTensorName(name);
  Node* const node = parsed.ok() && !parsed->IsControl() ? graph.FindNode(parsed->node) : nullptr;
  if (node == nullptr) return errors::NotFound("FetchOutputs node ", name, ": not found");
  if (node->num_outputs() == 0) {
    return errors::InvalidArgument("Tried to fetch data for '", name,
                                   "', which produces no output. To run to a node but not fetch "
                                   "any data, name it as a target.");
  }
  if (parsed->index >= node->num_outputs()) {
    return errors::InvalidArgument("FetchOutputs ", name, ": output index too large, must be < ",
                                   node->num_outputs());
  }
  return OutputRef{node, parsed->index};
}

bool IsPlaceholder(const Node& node) {
  return node.type() == "Placeholder" || node.type() == "PlaceholderV2";
}

Status AddFeed(const std::string& name, const ClientDevice& client, DataflowGraph* graph) {
  MR_ASSIGN_OR_RETURN(const OutputRef fed, FindFeed(name, *graph));
  AttrMap attrs;
  attrs.Set("tensor_type", BaseType(fed.node->output_types()[fed.index]));
  SetClientAttrs(name, client, &attrs);
  MR_ASSIGN_OR_RETURN(Node* const recv,
                      graph->AddNode(StrCat("_recv_", fed.node->name(), "_", fed.index), "_Recv",
                                     std::move(attrs)));
  recv->set_assigned_device(client.name);
  MR_RETURN_IF_ERROR(MoveEdges(Consumers(fed.node, fed.index), recv, 0, graph));
  // A fed placeholder is never run: what waited for it waits for the feed.
  if (IsPlaceholder(*fed.node)) {
    std::vector<Edge*> controls;
    for (Edge* edge : fed.node->out_edges()) {
      if (edge->IsControl() && edge->dst->IsOp()) controls.push_back(edge);
    }
    for (Edge* edge : controls) {
      Node* const dst = edge->dst;
      graph->RemoveEdge(edge);
      graph->AddControlEdge(recv, dst);
    }
  }
  return OkStatus();
}

StatusOr<Node*> AddFetch(const std::string& name, const ClientDevice& client,
                         DataflowGraph* graph) {
  MR_ASSIGN_OR_RETURN(const OutputRef fetched, FindFetch(name, *graph));
  AttrMap attrs;
  attrs.Set("T", BaseType(fetched.node->output_types()[fetched.index]));
  SetClientAttrs(name, client, &attrs);
  MR_ASSIGN_OR_RETURN(Node* const send,
                      graph->AddNode(StrCat("_send_", fetched.node->name(), "_", fetched.index),
                                     "_Send", std::move(attrs)));
  send->set_assigned_device(client.name);
  MR_RETURN_IF_ERROR(graph->AddEdge(fetched.node, fetched.index, send, 0).status());
  return send;
}

}  // namespace

std::unique_ptr<DataflowGraph> CopyForRun(const RunSignature& signature,
                                          const DataflowGraph& full) {
  if (!signature.connections.empty()) return full.Clone();
  std::vector<bool> copied(full.num_node_ids()), entered(full.num_node_ids());
  std::size_t num_copied = 0;
  int first = full.num_node_ids(), last = -1;  // of the copied ones
  std::vector<Node*> stack;
  const auto copy = [&](const Node* node) {
    if (copied[node->id()]) return;
    copied[node->id()] = true;
    first = std::min(first, node->id());
    last = std::max(last, node->id());
    ++num_copied;
  };
  const auto copy_named = [&](const std::string& tensor) {
    const StatusOr<TensorName> name = ParseTensorName(tensor);
    Node* const node = name.ok() ? full.FindNode(name->node) : nullptr;
    if (node != nullptr && node->IsOp()) copy(node);
  };
  absl::flat_hash_set<std::pair<const Node*, int>> fed;  // -1: what waits for a placeholder
  for (const std::string& name : signature.feeds) {
    const StatusOr<OutputRef> output = FindFeed(name, full);
    if (!output.ok()) {  // RewriteForRun says why, if it sees the node
      copy_named(name);
      continue;
    }
    copy(output->node);
    copy_named(name);  // if it stands for what was fed
    fed.emplace(output->node, output->index);
    if (IsPlaceholder(*output->node)) fed.emplace(output->node, kControlSlot);
  }
  for (const std::string& name : signature.fetches) {
    const StatusOr<OutputRef> output = FindFetch(name, full);
    if (!output.ok()) {
      copy_named(name);
      continue;
    }
    copy(output->node);
    if (!fed.contains({output->node, output->index})) stack.push_back(output->node);
  }
  for (const std::string& name : signature.targets) {
    Node* const node = full.FindNode(name);
    if (node != nullptr && node->IsOp()) stack.push_back(node);
  }
  while (!stack.empty()) {
    Node* const node = stack.back();
    stack.pop_back();
    if (entered[node->id()]) continue;
    entered[node->id()] = true;
    copy(node);
    for (const Edge* edge : node->in_edges()) {
      if (!edge->src->IsOp() || entered[edge->src->id()]) continue;
      if (!fed.empty() && fed.contains({edge->src, edge->src_output})) continue;
      stack.push_back(edge->src);
    }
  }
  std::vector<Node*> nodes;
  nodes.reserve(num_copied);
  for (int id = first; id <= last; ++id) {
    if (copied[id]) nodes.push_back(full.node(id));
  }
  return full.CopyOf(nodes);
}

Status ConnectTensors(const std::vector<std::pair<std::string, std::string>>& connections,
                      DataflowGraph* graph) {
  for (const auto& [from, to] : connections) {
    const StatusOr<TensorName> parsed = ParseTensorName(from);
    Node* const node =
        parsed.ok() && !parsed->IsControl() ? graph->FindNode(parsed->node) : nullptr;
    if (node == nullptr) {
      return errors::InvalidArgument("Tensor connection from ", from, ": unknown node");
    }
    if (parsed->index >= node->num_outputs()) {
      return errors::InvalidArgument("Tensor connection from ", from, ": unknown edge");
    }
    MR_ASSIGN_OR_RETURN(const OutputRef replaced, FindFeed(to, *graph));
    const std::vector<Edge*> edges = Consumers(replaced.node, replaced.index);
    const std::vector<bool> before = Ancestors({&node, 1}, *graph);
    for (const Edge* edge : edges) {
      if (before[edge->dst->id()]) {
        return errors::InvalidArgument("Tensor connection from ", from, " to ", to,
                                       " would create a cycle at ", edge->dst->name());
      }
    }
    MR_RETURN_IF_ERROR(MoveEdges(edges, node, parsed->index, graph));
  }
  return OkStatus();
}

Status RewriteForRun(const RunSignature& signature, const ClientDevice& client,
                     DataflowGraph* graph) {
  std::vector<Node*> wanted;
  std::string unknown;
  for (const std::string& name : signature.targets) {
    Node* const node = graph->FindNode(name);
    if (node == nullptr) {
      StrAppend(&unknown, unknown.empty() ? "" : " ", name);
    } else {
      wanted.push_back(node);
    }
  }
  for (const std::string& name : signature.feeds) {
    MR_RETURN_IF_ERROR(AddFeed(name, client, graph));
  }
  for (const std::string& name : signature.fetches) {
    MR_ASSIGN_OR_RETURN(Node * send, AddFetch(name, client, graph));
    wanted.push_back(send);
  }
  if (!unknown.empty()) {
    return errors::NotFound("PruneForTargets: Some target nodes not found: ", unknown);
  }
  PruneTo(wanted, graph);
  return OkStatus();
}

}  // namespace millrace
