// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <queue>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/slab.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "graph/graph_def_io.h"
#include "graph/node_name.h"
#include "ops/op_def_check.h"

namespace millrace {
namespace {

bool IsMergeOp(std::string_view op) { return op == "Merge" || op == "RefMerge"; }
bool IsNextIterationOp(std::string_view op) {
  return op == "NextIteration" || op == "RefNextIteration";
}

std::string Tag(const pb::NodeDef& def) { return StrCat("\n\t [[{{node ", def.name(), "}}]]"); }

// One import: checks that need the whole message first, then nodes and edges in order.
class Importer {
 public:
  Importer(const ImportOptions& options, const pb::GraphDef& def, DataflowGraph* graph)
      : options_(options), def_(def), graph_(graph) {}

  Status Run() {
    MR_RETURN_IF_ERROR(MergeVersions());
    MR_RETURN_IF_ERROR(ParseNodes());
    MR_RETURN_IF_ERROR(ResolveInputs());
    // Ops are looked up before the order is found: an unknown op is the better error.
    const std::shared_ptr<const FunctionLibrary> old_library = graph_->library();
    const int num_nodes = graph_->num_node_ids();
    const int num_edges = graph_->num_edge_ids();
    Status status = MergeLibrary();
    if (status.ok()) status = AddAll();
    if (!status.ok()) {
      graph_->RollBack(num_nodes, num_edges);
      if (graph_->library() != old_library) graph_->set_library(old_library);
      return status;
    }
    *graph_->mutable_versions() = versions_;
    graph_->FixSourceAndSink(num_nodes);
    return OkStatus();
  }

 private:
  struct Input {
    int def_index = -1;        // of the source among the nodes of def_, or
    Node* existing = nullptr;  // a node that was in the graph before
    int output = 0;            // -1: control
  };
  struct Item {
    int inputs_begin = 0, num_inputs = 0;        // of inputs_
    int consumers_begin = 0, num_consumers = 0;  // of consumers_
    int pending = 0;
    Node* node = nullptr;
  };
  std::span<const Input> InputsOf(const Item& item) const {
    return std::span(inputs_).subspan(item.inputs_begin, item.num_inputs);
  }
  // If the input of a Merge closes a loop: the node is added before that.
  bool IsBackEdge(int index, const Input& input) const {
    return input.output >= 0 && IsMergeOp(def_.node(index).op()) &&
           IsNextIterationOp(def_.node(input.def_index).op());
  }

  Status MergeVersions();
  Status MergeLibrary();
  Status ParseNodes();
  Status ResolveInputs();
  void FindConsumers();
  Status AddAll();
  Status AddOne(int index);
  Status ConnectInput(int index, int slot);
  void WarnOfUnknownAttrs(const pb::OpDef& op, const pb::NodeDef& def);

  const ImportOptions& options_;
  const pb::GraphDef& def_;
  DataflowGraph* const graph_;
  pb::VersionDef versions_;
  absl::flat_hash_map<std::string_view, int, TextHash, std::equal_to<>> index_by_name_;
  LargeVector<Item> items_;
  LargeVector<Input> inputs_;
  LargeVector<int> consumers_;                   // one entry per input that depends on the node
  std::vector<std::pair<int, int>> back_edges_;  // (node, slot)
  StringSet warned_;
};

Status Importer::MergeVersions() {
  pb::VersionDef added = def_.versions();
  if (!def_.has_versions()) added.set_producer(def_.version());
  MR_ASSIGN_OR_RETURN(versions_, VersionsWith(*graph_, added));
  return OkStatus();
}

Status Importer::MergeLibrary() {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const FunctionLibrary> merged,
                      FunctionLibrary::Extend(graph_->library(), def_.library()));
  graph_->set_library(std::move(merged));
  return OkStatus();
}

Status Importer::ParseNodes() {
  index_by_name_.reserve(static_cast<std::size_t>(def_.node_size()));
  const bool was_empty = graph_->num_nodes() <= 2;
  for (int i = 0; i < def_.node_size(); ++i) {
    const pb::NodeDef& node = def_.node(i);
    if (!IsNodeName(node.name(), options_.internal_names)) {
      return errors::InvalidArgument("Illegal op name '", CEscape(node.name()), "'", Tag(node));
    }
    if (!was_empty && graph_->FindNode(node.name()) != nullptr) {
      return errors::InvalidArgument(
          "GraphDef argument to Extend includes node '", node.name(),
          "', which was created by a previous call to Create or Extend in this session.");
    }
    if (!index_by_name_.try_emplace(node.name(), i).second) {
      return errors::InvalidArgument("Node '", node.name(), "' is not unique", Tag(node));
    }
  }
  return OkStatus();
}

Status Importer::ResolveInputs() {
  items_.resize(static_cast<std::size_t>(def_.node_size()));
  for (int i = 0; i < def_.node_size(); ++i) {
    const pb::NodeDef& node = def_.node(i);
    Item& item = items_[i];
    item.inputs_begin = static_cast<int>(inputs_.size());
    bool control_seen = false;
    for (const std::string& text : node.input()) {
      StatusOr<TensorName> name = ParseTensorName(text, options_.internal_names);
      if (!name.ok()) return Annotate(name.status(), Tag(node));
      if (control_seen && !name->IsControl()) {
        return errors::InvalidArgument("Node '", node.name(),
                                       "': Control dependencies must come after regular "
                                       "dependencies",
                                       Tag(node));
      }
      control_seen = name->IsControl();
      Input input{-1, nullptr, name->index};
      auto it = index_by_name_.find(name->node);
      if (it != index_by_name_.end()) {
        input.def_index = it->second;
      } else if (Node* existing = graph_->FindNode(name->node);
                 existing != nullptr && existing->IsOp()) {
        input.existing = existing;
      } else {
        return errors::InvalidArgument("Node '", node.name(), "': Unknown input node '", text, "'",
                                       Tag(node));
      }
      inputs_.push_back(input);
      ++item.num_inputs;
    }
  }
  return OkStatus();
}

void Importer::FindConsumers() {
  // Counted first, so that all lie in one array.
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < def_.node_size(); ++i) {
      for (const Input& input : InputsOf(items_[i])) {
        if (input.def_index < 0 || IsBackEdge(i, input)) continue;
        Item& source = items_[input.def_index];
        if (pass == 0) {
          ++items_[i].pending;
          ++source.num_consumers;
        } else {
          consumers_[source.consumers_begin + source.num_consumers++] = i;
        }
      }
    }
    if (pass > 0) break;
    int total = 0;
    for (Item& item : items_) {
      item.consumers_begin = total;
      total += std::exchange(item.num_consumers, 0);
    }
    consumers_.resize(total);
  }
}

Status Importer::AddAll() {
  const std::string* last_op = nullptr;
  for (const pb::NodeDef& node : def_.node()) {
    if (last_op != nullptr && *last_op == node.op()) continue;
    last_op = &node.op();
    StatusOr<const OpInfo*> op = graph_->LookupOp(node.op());
    if (!op.ok()) return Annotate(op.status(), Tag(node));
  }
  // A Merge that closes a loop is ready once its first other input and its control inputs
  // are there; the back edges come at the end.
  FindConsumers();
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < def_.node_size(); ++i) {
    if (items_[i].pending == 0) ready.push(i);
  }
  int added = 0;
  while (!ready.empty()) {
    const int index = ready.top();
    ready.pop();
    MR_RETURN_IF_ERROR(AddOne(index));
    ++added;
    const Item& item = items_[index];
    for (int i = 0; i < item.num_consumers; ++i) {
      const int consumer = consumers_[item.consumers_begin + i];
      if (--items_[consumer].pending == 0) ready.push(consumer);
    }
  }
  if (added < def_.node_size()) {
    std::string names;
    int named = 0;
    for (int i = 0; i < def_.node_size() && named < 5; ++i) {
      if (items_[i].node != nullptr) continue;
      StrAppend(&names, named++ == 0 ? "" : ", ", def_.node(i).name());
    }
    return errors::InvalidArgument(def_.node_size() - added,
                                   " nodes in a cycle, among them: ", names);
  }
  for (const auto& [index, slot] : back_edges_) MR_RETURN_IF_ERROR(ConnectInput(index, slot));
  return OkStatus();
}

Status Importer::AddOne(int index) {
  const pb::NodeDef& def = def_.node(index);
  Item& item = items_[index];
  AttrMap attrs;
  InternedString origin, device_origin;
  for (const auto& [name, value] : def.attr()) {
    if (value.has_s() && (name == kOriginAttr || name == kDeviceOriginAttr)) {
      (name == kOriginAttr ? origin : device_origin) = value.s();
      continue;
    }
    StatusOr<AttrValue> converted = AttrFromProto(value);
    if (!converted.ok()) {
      return Annotate(converted.status(), StrCat(" for attr '", name, "'", Tag(def)));
    }
    attrs.Set(name, *std::move(converted));
  }
  StatusOr<Node*> added = graph_->AddNode(def.name(), def.op(), std::move(attrs));
  if (!added.ok()) return added.status();
  Node* node = *added;
  item.node = node;
  const pb::OpDef& op = node->op().def;
  MR_RETURN_IF_ERROR(CheckOpVersion(*node, versions_.producer()));
  WarnOfUnknownAttrs(op, def);
  node->set_origin(std::move(origin));
  node->set_device_origin(std::move(device_origin));
  node->set_requested_device(def.device());
  if (options_.devices_are_assigned) node->set_assigned_device(def.device());
  if (def.has_experimental_debug_info() || def.has_experimental_type()) {
    node->set_notes({def.experimental_debug_info(), def.experimental_type()});
  }
  const std::span<const Input> inputs = InputsOf(item);
  const auto data_inputs = std::count_if(inputs.begin(), inputs.end(),
                                         [](const Input& input) { return input.output >= 0; });
  if (data_inputs != node->num_inputs()) {
    std::vector<std::string> expected;
    for (DataType type : node->input_types()) expected.push_back(DataTypeName(type));
    return errors::InvalidArgument("NodeDef expected inputs '", StrJoin(expected, ", "),
                                   "' do not match ", data_inputs, " inputs specified; Op<",
                                   Signature(op), ">; NodeDef: {{node ", def.name(), "}}");
  }
  for (std::size_t slot = 0; slot < inputs.size(); ++slot) {
    const Input& input = inputs[slot];
    if (input.def_index >= 0 && items_[input.def_index].node == nullptr) {
      back_edges_.emplace_back(index, static_cast<int>(slot));
      continue;
    }
    MR_RETURN_IF_ERROR(ConnectInput(index, static_cast<int>(slot)));
  }
  return OkStatus();
}

Status Importer::ConnectInput(int index, int slot) {
  const Item& item = items_[index];
  const Input& input = InputsOf(item)[slot];
  Node* src = input.existing != nullptr ? input.existing : items_[input.def_index].node;
  if (input.output < 0) {
    graph_->AddControlEdge(src, item.node);
    return OkStatus();
  }
  StatusOr<Edge*> edge = graph_->AddEdge(src, input.output, item.node, slot);
  return edge.ok() ? OkStatus() : Annotate(edge.status(), Tag(def_.node(index)));
}

void Importer::WarnOfUnknownAttrs(const pb::OpDef& op, const pb::NodeDef& def) {
  for (const auto& [name, value] : def.attr()) {
    if (name.starts_with('_') || FindAttrDef(op, name) != nullptr) continue;
    // Once per op and attribute: a graph may have thousands of such nodes.
    if (!warned_.insert(StrCat(op.name(), " ", name)).second) continue;
    MR_LOG(kWarning, "attr '", name, "' of node '", def.name(), "' is not known to op '", op.name(),
           "'; the graph may be newer than this program: the attr is ignored");
  }
}

}  // namespace

Status CheckVersions(const pb::VersionDef& versions) {
  if (versions.producer() < kGraphVersionMinProducer) {
    return errors::InvalidArgument("GraphDef producer version ", versions.producer(),
                                   " below min producer ", kGraphVersionMinProducer,
                                   " supported here. Please regenerate your graph.");
  }
  if (versions.min_consumer() > kGraphVersion) {
    return errors::InvalidArgument("GraphDef min consumer version ", versions.min_consumer(),
                                   " above current version ", kGraphVersion,
                                   ". Please upgrade this program.");
  }
  const auto& bad = versions.bad_consumers();
  if (std::find(bad.begin(), bad.end(), kGraphVersion) != bad.end()) {
    return errors::InvalidArgument("GraphDef disallows consumer version ", kGraphVersion,
                                   ". Please upgrade this program: this version is likely buggy.");
  }
  return OkStatus();
}

StatusOr<pb::VersionDef> VersionsWith(const DataflowGraph& graph, const pb::VersionDef& added) {
  MR_RETURN_IF_ERROR(CheckVersions(added));
  if (graph.num_nodes() <= 2) return added;
  const pb::VersionDef& have = graph.versions();
  if (have.producer() != added.producer()) {
    return errors::InvalidArgument("Can't extend a graph of producer version ", have.producer(),
                                   " with nodes of producer version ", added.producer());
  }
  pb::VersionDef both = added;
  both.set_min_consumer(std::max(have.min_consumer(), added.min_consumer()));
  for (int bad : have.bad_consumers()) {
    const auto& all = both.bad_consumers();
    if (std::find(all.begin(), all.end(), bad) == all.end()) both.add_bad_consumers(bad);
  }
  return both;
}

Status CheckOpVersion(const Node& node, int producer) {
  const pb::OpDef& op = node.op().def;
  if (!op.has_deprecation() || producer < op.deprecation().version()) return OkStatus();
  return errors::Unimplemented("Op ", op.name(), " is not available in GraphDef version ", producer,
                               ". It has been removed in version ", op.deprecation().version(),
                               ". ", op.deprecation().explanation(), "\n\t [[{{node ", node.name(),
                               "}}]]");
}

bool ClosesLoop(const Node& source, const Node& node) {
  return IsMergeOp(node.type()) && IsNextIterationOp(source.type());
}

Status ImportGraphDef(const ImportOptions& options, const pb::GraphDef& def, DataflowGraph* graph) {
  return Importer(options, def, graph).Run();
}

}  // namespace millrace
