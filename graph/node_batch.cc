// SPDX-License-Identifier: Apache-2.0
#include "graph/node_batch.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/node_name.h"

namespace millrace {
namespace {

// What a node reads: data by slot, then control by name, as messages list it.
struct Input {
  Node* source;  // may be null in a batch: then `name` is that of a node elsewhere
  std::string_view name;
  int output;
};

bool ByName(const Input& a, const Input& b) { return a.name < b.name; }

Status MissingInput(int slot, const Node& node) {
  return errors::InvalidArgument("Incomplete graph, missing input ", slot, " of node '",
                                 node.name(), "'");
}

StatusOr<std::vector<Input>> InputsOf(const Node& node) {
  std::vector<Input> inputs;
  inputs.reserve(node.in_edges().size());
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Edge* const edge = node.input_edge(i);
    if (edge == nullptr) return MissingInput(i, node);
    inputs.push_back({edge->src, edge->src->name(), edge->src_output});
  }
  for (const Edge* edge : node.in_edges()) {
    if (edge->IsControl() && edge->src->IsOp()) {
      inputs.push_back({edge->src, edge->src->name(), kControlSlot});
    }
  }
  std::sort(inputs.begin() + node.num_inputs(), inputs.end(), ByName);
  return inputs;
}

// The same of a node of a batch, of which `entries` are those that lead to it.
StatusOr<std::vector<Input>> InputsOf(const Node& node, std::span<const NodeBatch::Entry> entries) {
  std::vector<Input> inputs(static_cast<std::size_t>(node.num_inputs()));
  for (const Edge* edge : node.in_edges()) {
    if (!edge->src->IsOp()) continue;
    const Input input{edge->src, edge->src->name(), edge->src_output};
    edge->IsControl() ? inputs.push_back(input) : void(inputs[edge->dst_input] = input);
  }
  for (const NodeBatch::Entry& entry : entries) {
    const Input input{nullptr, entry.source, entry.source_output};
    entry.source_output < 0 ? inputs.push_back(input) : void(inputs[entry.input] = input);
  }
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (inputs[i].name.empty()) return MissingInput(i, node);
  }
  std::sort(inputs.begin() + node.num_inputs(), inputs.end(), ByName);
  return inputs;
}

// Hands out the entries of a batch, which stand in the order of its nodes, node by node.
class EntryReader {
 public:
  explicit EntryReader(const NodeBatch& batch) : rest_(batch.entries) {}
  std::span<const NodeBatch::Entry> Of(const Node* node) {
    std::size_t count = 0;
    while (count < rest_.size() && rest_[count].node == node) ++count;
    const std::span<const NodeBatch::Entry> entries = rest_.first(count);
    rest_ = rest_.subspan(count);
    return entries;
  }

 private:
  std::span<const NodeBatch::Entry> rest_;
};

Status InCycle(const std::vector<Node*>& nodes, const std::vector<int>& pending) {
  std::string names;
  int count = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (pending[i] > 0 && count++ < 5) StrAppend(&names, count == 1 ? "" : ", ", nodes[i]->name());
  }
  return errors::InvalidArgument(count, " nodes in a cycle, among them: ", names);
}

// One call of CopyNodes.
class Copier {
 public:
  Copier(const DataflowGraph& graph, int first_id)
      : from_(graph), first_id_(std::max(first_id, graph.sink()->id() + 1)) {}

  StatusOr<NodeBatch> Run() {
    MR_RETURN_IF_ERROR(CheckVersions(from_.versions()));
    batch_.graph = std::make_unique<DataflowGraph>(&from_.ops());
    *batch_.graph->mutable_versions() = from_.versions();
    batch_.graph->set_library(from_.library());
    for (int id = first_id_; id < from_.num_node_ids(); ++id) {
      if (from_.node(id) != nullptr) nodes_.push_back(from_.node(id));
    }
    twins_.resize(static_cast<std::size_t>(std::max(0, from_.num_node_ids() - first_id_)));
    MR_RETURN_IF_ERROR(SortAfterInputs());
    for (Node* node : nodes_) MR_RETURN_IF_ERROR(Copy(*node));
    for (const auto& [node, slot] : back_edges_) {
      const Edge* const edge = node->input_edge(slot);
      MR_RETURN_IF_ERROR(Connect({edge->src, edge->src->name(), edge->src_output}, *node, slot));
    }
    batch_.graph->FixSourceAndSink();
    return std::move(batch_);
  }

 private:
  bool IsNew(const Node* node) const { return node->id() >= first_id_; }

  // Mostly they are in order. Else: the lowest id of those whose inputs are there comes next.
  Status SortAfterInputs() {
    const auto is_late = [&](const Edge* edge) {
      return edge->src->IsOp() && edge->src->id() > edge->dst->id() &&
             !ClosesLoop(*edge->src, *edge->dst);
    };
    const bool in_order = std::none_of(nodes_.begin(), nodes_.end(), [&](const Node* node) {
      return std::any_of(node->in_edges().begin(), node->in_edges().end(), is_late);
    });
    if (in_order) return OkStatus();
    std::vector<int> index(twins_.size(), -1), pending(nodes_.size(), 0);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      index[nodes_[i]->id() - first_id_] = static_cast<int>(i);
    }
    const auto counts = [&](const Edge* edge) {
      return edge->src->IsOp() && IsNew(edge->src) && IsNew(edge->dst) &&
             (edge->IsControl() || !ClosesLoop(*edge->src, *edge->dst));
    };
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const std::span<Edge* const> edges = nodes_[i]->in_edges();
      pending[i] = static_cast<int>(std::count_if(edges.begin(), edges.end(), counts));
      if (pending[i] == 0) ready.push(static_cast<int>(i));
    }
    std::vector<Node*> sorted;
    sorted.reserve(nodes_.size());
    while (!ready.empty()) {
      sorted.push_back(nodes_[ready.top()]);
      ready.pop();
      for (const Edge* edge : sorted.back()->out_edges()) {
        if (!counts(edge)) continue;
        const int consumer = index[edge->dst->id() - first_id_];
        if (--pending[consumer] == 0) ready.push(consumer);
      }
    }
    if (sorted.size() < nodes_.size()) return InCycle(nodes_, pending);
    nodes_ = std::move(sorted);
    return OkStatus();
  }

  Status Copy(Node& node) {
    if (!IsNodeName(node.name())) {
      return errors::InvalidArgument("Illegal op name '", CEscape(node.name()), "'\n\t [[{{node ",
                                     node.name(), "}}]]");
    }
    MR_RETURN_IF_ERROR(CheckOpVersion(node, from_.versions().producer()));
    MR_ASSIGN_OR_RETURN(const std::vector<Input> inputs, InputsOf(node));
    MR_ASSIGN_OR_RETURN(Node* const twin, batch_.graph->AddCopyOf(node));
    if (!node.assigned_device().empty()) {
      twin->set_requested_device(node.shared_assigned_device());
      twin->set_assigned_device({});
    }
    twins_[node.id() - first_id_] = twin;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const int slot = inputs[i].output < 0 ? kControlSlot : static_cast<int>(i);
      // Of those that are copied only what closes a loop may still be missing.
      const Node* const source = inputs[i].source;
      if (IsNew(source) && twins_[source->id() - first_id_] == nullptr) {
        back_edges_.emplace_back(&node, slot);
        continue;
      }
      MR_RETURN_IF_ERROR(Connect(inputs[i], node, slot));
    }
    return OkStatus();
  }

  Status Connect(const Input& input, const Node& node, int slot) {
    Node* const twin = twins_[node.id() - first_id_];
    if (!IsNew(input.source)) {
      batch_.entries.push_back({std::string(input.name), input.output, twin, slot});
      return OkStatus();
    }
    Node* const source = twins_[input.source->id() - first_id_];
    if (slot >= 0) return batch_.graph->AddEdge(source, input.output, twin, slot).status();
    batch_.graph->AddControlEdge(source, twin);
    return OkStatus();
  }

  const DataflowGraph& from_;
  const int first_id_;
  std::vector<Node*> nodes_;                       // in the order of the batch
  std::vector<Node*> twins_;                       // by id, from first_id_ on
  std::vector<std::pair<Node*, int>> back_edges_;  // node and slot
  NodeBatch batch_;
};

// One call of AddNodes.
class Adder {
 public:
  Adder(const NodeBatch& batch, DataflowGraph* graph) : batch_(batch), graph_(graph) {}

  Status Run() {
    for (const Node* node : batch_.graph->OpNodes()) {
      if (graph_->FindNode(node->name()) == nullptr) continue;
      return errors::InvalidArgument(
          "GraphDef argument to Extend includes node '", node->name(),
          "', which was created by a previous call to Create or Extend in this session.");
    }
    EntryReader entries(batch_);
    twins_.resize(static_cast<std::size_t>(batch_.graph->num_node_ids()));
    for (const Node* node : batch_.graph->OpNodes()) {
      MR_RETURN_IF_ERROR(Add(*node, entries.Of(node)));
    }
    for (const auto& [node, slot] : back_edges_) {
      const Edge* const edge = node->input_edge(slot);
      MR_RETURN_IF_ERROR(Connect({edge->src, edge->src->name(), edge->src_output}, *node, slot));
    }
    return OkStatus();
  }

 private:
  Status Add(const Node& node, std::span<const NodeBatch::Entry> entries) {
    MR_ASSIGN_OR_RETURN(const std::vector<Input> inputs, InputsOf(node, entries));
    MR_ASSIGN_OR_RETURN(twins_[node.id()], graph_->AddCopyOf(node));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Input& input = inputs[i];
      const int slot = input.output < 0 ? kControlSlot : static_cast<int>(i);
      if (input.source != nullptr && twins_[input.source->id()] == nullptr) {
        back_edges_.emplace_back(&node, slot);
        continue;
      }
      MR_RETURN_IF_ERROR(Connect(input, node, slot));
    }
    return OkStatus();
  }

  Status Connect(const Input& input, const Node& node, int slot) {
    Node* const source =
        input.source != nullptr ? twins_[input.source->id()] : graph_->FindNode(input.name);
    if (source == nullptr || !source->IsOp()) {
      return errors::InvalidArgument("Node '", node.name(), "': Unknown input node '", input.name,
                                     "'\n\t [[{{node ", node.name(), "}}]]");
    }
    if (slot >= 0) return graph_->AddEdge(source, input.output, twins_[node.id()], slot).status();
    graph_->AddControlEdge(source, twins_[node.id()]);
    return OkStatus();
  }

  const NodeBatch& batch_;
  DataflowGraph* const graph_;
  std::vector<Node*> twins_;  // by id in the batch
  std::vector<std::pair<const Node*, int>> back_edges_;
};

}  // namespace

StatusOr<NodeBatch> CopyNodes(const DataflowGraph& graph, int first_id) {
  return Copier(graph, first_id).Run();
}

bool CanAddNodes(const NodeBatch& batch, const DataflowGraph& graph) {
  if (&batch.graph->ops() != &graph.ops()) return false;
  const FunctionLibrary* const added = batch.graph->library().get();
  const FunctionLibrary* const have = graph.library().get();
  if (have == nullptr || have == added) return true;
  if (added == nullptr) return false;  // the names of its functions may be those of ops there
  return std::all_of(have->functions().begin(), have->functions().end(),
                     [&](const std::shared_ptr<const Function>& function) {
                       return added->Find(function->name()) == function.get() &&
                              added->GradientOf(function->name()) ==
                                  have->GradientOf(function->name());
                     });
}

Status AddNodes(const NodeBatch& batch, DataflowGraph* graph) {
  MR_ASSIGN_OR_RETURN(pb::VersionDef versions, VersionsWith(*graph, batch.graph->versions()));
  const std::shared_ptr<const FunctionLibrary> old_library = graph->library();
  const int num_nodes = graph->num_node_ids(), num_edges = graph->num_edge_ids();
  if (batch.graph->library() != old_library) graph->set_library(batch.graph->library());
  if (Status status = Adder(batch, graph).Run(); !status.ok()) {
    graph->RollBack(num_nodes, num_edges);
    if (graph->library() != old_library) graph->set_library(old_library);
    return status;
  }
  *graph->mutable_versions() = std::move(versions);
  graph->FixSourceAndSink(num_nodes);
  return OkStatus();
}

Status ExportNodes(const NodeBatch& batch, const ExportOptions& options, pb::GraphDef* def) {
  def->Clear();
  *def->mutable_versions() = batch.graph->versions();
  if (batch.graph->library() != nullptr) batch.graph->library()->ToProto(def->mutable_library());
  EntryReader entries(batch);
  for (const Node* node : batch.graph->OpNodes()) {
    MR_ASSIGN_OR_RETURN(const std::vector<Input> inputs, InputsOf(*node, entries.Of(node)));
    pb::NodeDef* const out = def->add_node();
    ExportNode(*node, options, out);
    for (const Input& input : inputs) {
      out->add_input(FormatTensorName(std::string(input.name), input.output));
    }
  }
  return OkStatus();
}

}  // namespace millrace
