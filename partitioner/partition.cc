// SPDX-License-Identifier: Apache-2.0
#include "partitioner/partition.h"

#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/interned_string.h"
#include "base/slab.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "millrace/tensor.h"
#include "partitioner/control_flow.h"

namespace millrace {
namespace {

bool IsTransfer(std::string_view op) {
  return op == "_Send" || op == "_Recv" || op == "_HostSend" || op == "_HostRecv";
}

// The constant that stands for a control edge on its way, and feeds control loops.
AttrMap EmptyConst() {
  AttrMap attrs;
  attrs.Set("dtype", kFloat);
  attrs.Set("value", Tensor(kFloat, Shape({0})));
  return attrs;
}

// One cut of one graph.
class Cutter {
 public:
  // `controls` is by node id, or empty if no loop crosses devices.
  Cutter(const DataflowGraph& graph, const PartitionOptions& options,
         std::vector<LoopControl> controls)
      : graph_(graph), options_(options), controls_(std::move(controls)) {}

  StatusOr<std::vector<Partition>> Run() {
    MR_RETURN_IF_ERROR(CopyNodes());
    for (int id = 2; id < graph_.num_node_ids(); ++id) {
      const Node* node = graph_.node(id);
      if (node != nullptr) MR_RETURN_IF_ERROR(ConnectInputs(*node));
    }
    for (Partition& part : parts_) {
      MR_RETURN_IF_ERROR(PatchIncarnations(part.graph.get()));
      KeepReachableFunctions(part.graph.get());
      part.graph->FixSourceAndSink();
    }
    return std::move(parts_);
  }

 private:
  struct Place {
    int part = -1;
    Node* twin = nullptr;
  };
  // What arrives in a part: the node that makes the value there, and the receive behind it
  // (the same unless an identity or a cast follows).
  struct Arrival {
    Node* value = nullptr;
    Node* receive = nullptr;
  };
  // Source, output (-1 for a control edge), part of the destination, and whether its input
  // is in host memory.
  using ArrivalKey = std::tuple<int, int, int, bool>;

  // ---- Nodes

  int PartAt(const std::string& location) {
    const auto [slot, added] = part_of_.try_emplace(location, static_cast<int>(parts_.size()));
    if (added) {
      Partition part{location, std::make_unique<DataflowGraph>(&graph_.ops())};
      *part.graph->mutable_versions() = graph_.versions();
      if (graph_.library() != nullptr) part.graph->set_library(graph_.library());
      parts_.push_back(std::move(part));
    }
    return slot->second;
  }

  // Neighbours are mostly on one device.
  int PartOnDevice(const Node& node) {
    if (last_part_ < 0 || node.shared_assigned_device() != last_device_) {
      last_part_ = PartAt(options_.node_to_location(node));
      last_device_ = node.shared_assigned_device();
    }
    return last_part_;
  }

  Status CopyNodes() {
    places_.resize(graph_.num_node_ids());
    for (int id = 2; id < graph_.num_node_ids(); ++id) {
      const Node* node = graph_.node(id);
      if (node == nullptr) continue;
      if (node->assigned_device().empty()) {
        return errors::InvalidArgument("cannot cut the graph: {{node ", node->name(),
                                       "}} is on no device");
      }
      Place& place = places_[id];
      place.part = PartOnDevice(*node);
      MR_ASSIGN_OR_RETURN(place.twin, parts_[place.part].graph->AddCopyOf(*node));
      place.twin->set_requested_device(node->shared_assigned_device());
      place.twin->set_device_origin({});
    }
    return OkStatus();
  }

  StatusOr<Node*> AddNode(int part, std::string_view name, std::string_view op, AttrMap attrs,
                          const std::string& device) {
    MR_ASSIGN_OR_RETURN(Node* const node, parts_[part].graph->AddNode(name, op, std::move(attrs)));
    node->set_requested_device(device);
    node->set_assigned_device(device);
    return node;
  }

  static void KeepReachableFunctions(DataflowGraph* part) {
    if (part->library() == nullptr) return;
    std::vector<std::string> names;
    for (const Node* node : part->OpNodes()) {
      if (part->IsCall(*node)) names.push_back(node->type());
      for (const auto& [name, value] : node->attrs()) AddMentioned(value, &names);
    }
    part->set_library(part->library()->Reachable(names));
  }

  Status PatchIncarnations(DataflowGraph* part) const {
    if (options_.get_incarnation == nullptr) return OkStatus();
    for (Node* node : part->OpNodes()) {
      if (node->type()[0] != '_' || !IsTransfer(node->type())) continue;
      if (node->attrs().GetOr<int64_t>("send_device_incarnation", 0) != 0) continue;
      MR_ASSIGN_OR_RETURN(const std::string device, node->attrs().Get<std::string>("send_device"));
      node->mutable_attrs().Set("send_device_incarnation",
                                static_cast<int64_t>(options_.get_incarnation(device)));
    }
    return OkStatus();
  }

  // ---- Edges

  // The inputs of `dst` in its part: in order of slots, then the control edges.
  Status ConnectInputs(const Node& dst) {
    control_inputs_.clear();
    Node* loop_merge = nullptr;  // in the part of dst
    int loop_edges = 0;
    if (!controls_.empty() && controls_[dst.id()].merge != nullptr) {
      loop_merge = places_[controls_[dst.id()].merge->id()].twin;
      loop_edges = controls_[dst.id()].edges;
    }
    for (const Edge* edge : dst.in_edges()) {
      if (!edge->IsControl() || !edge->src->IsOp()) continue;
      if (IsControlLoopMerge(*edge->src) && places_[edge->src->id()].part == PartOf(dst)) {
        loop_merge = places_[edge->src->id()].twin;
        ++loop_edges;
      } else {
        control_inputs_.push_back(edge);
      }
    }

    int missing = 0;
    for (int i = 0; i < dst.num_inputs(); ++i) missing += dst.input_edge(i) == nullptr;
    if (missing > 0) {
      return errors::InvalidArgument("Incomplete graph, missing ", missing, " inputs for ",
                                     dst.name());
    }

    ref_receives_.clear();
    before_ref_receives_.clear();
    const auto connect = [&](const Edge& edge) { return Connect(edge, loop_merge, &loop_edges); };
    for (int i = 0; i < dst.num_inputs(); ++i) MR_RETURN_IF_ERROR(connect(*dst.input_edge(i)));
    for (const Edge* edge : control_inputs_) MR_RETURN_IF_ERROR(connect(*edge));

    // A reference is read when everything else that its reader waits for has happened.
    DataflowGraph* const graph = parts_[PartOf(dst)].graph.get();
    for (Node* receive : ref_receives_) {
      for (Node* before : before_ref_receives_) graph->AddControlEdge(before, receive);
    }
    if (loop_edges > 0) graph->AddControlEdge(loop_merge, places_[dst.id()].twin);
    return OkStatus();
  }

  Status Connect(const Edge& edge, Node* loop_merge, int* loop_edges) {
    const int src_part = PartOf(*edge.src), dst_part = PartOf(*edge.dst);
    const bool is_ref = !edge.IsControl() && IsRefType(edge.src->output_types()[edge.src_output]);
    const bool same_device = src_part == dst_part;
    if (same_device && !ChangesMemory(edge)) {
      Node* const src = places_[edge.src->id()].twin;
      if (!is_ref) before_ref_receives_.push_back(src);
      return Attach(edge, dst_part, src, edge.src_output);
    }
    const bool on_host = !edge.IsControl() && InHost(*edge.dst, edge.dst_input, true);
    const ArrivalKey key(edge.src->id(), edge.src_output, dst_part, on_host);
    const auto found = arrivals_.find(key);
    if (found != arrivals_.end()) {
      before_ref_receives_.push_back(found->second.value);
      return Attach(edge, dst_part, found->second.value, 0);
    }
    MR_ASSIGN_OR_RETURN(Node* const send, AddSend(edge, src_part, same_device));
    MR_ASSIGN_OR_RETURN(const Arrival arrival, AddReceive(edge, dst_part, on_host, same_device));
    if (same_device) {
      // Otherwise the receive would run, and wait, before there is a value.
      parts_[dst_part].graph->AddControlEdge(send, arrival.receive);
    } else if (loop_merge != nullptr) {
      --*loop_edges;
      parts_[dst_part].graph->AddControlEdge(loop_merge, arrival.receive);
    }
    if (is_ref) {
      ref_receives_.push_back(arrival.receive);
    } else {
      arrivals_.emplace(key, arrival);
      before_ref_receives_.push_back(arrival.value);
    }
    return Attach(edge, dst_part, arrival.value, 0);
  }

  Status Attach(const Edge& edge, int part, Node* src, int src_output) {
    Node* const dst = places_[edge.dst->id()].twin;
    DataflowGraph* const graph = parts_[part].graph.get();
    if (edge.IsControl()) {
      graph->AddControlEdge(src, dst);
      return OkStatus();
    }
    return graph->AddEdge(src, src_output, dst, edge.dst_input).status();
  }

  int PartOf(const Node& node) const { return places_[node.id()].part; }

  bool InHost(const Node& node, int slot, bool is_input) const {
    return options_.in_host_memory != nullptr && options_.in_host_memory(node, slot, is_input);
  }

  // True if the edge stays on one device but not in one memory.
  bool ChangesMemory(const Edge& edge) const {
    return options_.in_host_memory != nullptr && !edge.IsControl() &&
           edge.src->assigned_device() == edge.dst->assigned_device() &&
           InHost(*edge.src, edge.src_output, false) != InHost(*edge.dst, edge.dst_input, true);
  }

  // ---- Sends and receives

  static DataType EdgeType(const Edge& edge) {
    return edge.IsControl() ? kFloat : BaseType(edge.src->output_types()[edge.src_output]);
  }

  DataType WireType(const Edge& edge, bool same_device) const {
    if (same_device || options_.should_cast == nullptr) return EdgeType(edge);
    return options_.should_cast(edge);
  }

  AttrMap TransferAttrs(const Edge& edge) const {
    const std::string& from = edge.src->assigned_device();
    AttrMap attrs;
    // In order of names, so that nothing has to move.
    attrs.Set("_dst", edge.dst->name());
    attrs.Set("_src", edge.src->name());
    attrs.Set("client_terminated", false);
    attrs.Set("recv_device", edge.dst->assigned_device());
    attrs.Set("send_device", from);
    attrs.Set("send_device_incarnation",
              static_cast<int64_t>(
                  options_.get_incarnation == nullptr ? 0 : options_.get_incarnation(from)));
    attrs.Set("tensor_name", options_.tensor_name != nullptr
                                 ? options_.tensor_name(edge)
                                 : StrCat("edge_", edge.id, "_", edge.src->name()));
    return attrs;
  }

  StatusOr<Node*> AddCast(int part, const Node& src, const std::string& device, Node* value,
                          int output, DataType from, DataType to, bool in_host) {
    AttrMap attrs;
    attrs.Set("SrcT", from);
    attrs.Set("DstT", to);
    if (to == kBfloat16) attrs.Set("Truncate", true);
    MR_ASSIGN_OR_RETURN(Node* const cast,
                        AddNode(part, options_.new_name(src.name()), in_host ? "_HostCast" : "Cast",
                                std::move(attrs), device));
    MR_RETURN_IF_ERROR(parts_[part].graph->AddEdge(value, output, cast, 0).status());
    return cast;
  }

  StatusOr<Node*> AddSend(const Edge& edge, int part, bool same_device) {
    DataflowGraph* const graph = parts_[part].graph.get();
    const Node& src = *edge.src;
    const std::string& device = src.assigned_device();
    const bool in_host = !edge.IsControl() && InHost(src, edge.src_output, false);
    const DataType type = EdgeType(edge), wire_type = WireType(edge, same_device);
    Node* value = places_[src.id()].twin;
    int output = edge.src_output;
    if (edge.IsControl()) {
      MR_ASSIGN_OR_RETURN(Node* const constant,
                          AddNode(part, options_.new_name(StrCat(src.name(), "/ctrl")), "Const",
                                  EmptyConst(), device));
      graph->AddControlEdge(value, constant);
      value = constant;
      output = 0;
    }
    if (wire_type != type) {
      MR_ASSIGN_OR_RETURN(value,
                          AddCast(part, src, device, value, output, type, wire_type, in_host));
      output = 0;
    }
    AttrMap attrs = TransferAttrs(edge);
    attrs.Set("T", wire_type);
    MR_ASSIGN_OR_RETURN(Node* const send,
                        AddNode(part, options_.new_name(src.name()),
                                in_host ? "_HostSend" : "_Send", std::move(attrs), device));
    MR_RETURN_IF_ERROR(graph->AddEdge(value, output, send, 0).status());
    return send;
  }

  StatusOr<Arrival> AddReceive(const Edge& edge, int part, bool in_host, bool same_device) {
    DataflowGraph* const graph = parts_[part].graph.get();
    const Node& src = *edge.src;
    const std::string& device = edge.dst->assigned_device();
    const DataType type = EdgeType(edge), wire_type = WireType(edge, same_device);
    AttrMap attrs = TransferAttrs(edge);
    attrs.Set("tensor_type", wire_type);
    Arrival arrival;
    MR_ASSIGN_OR_RETURN(arrival.receive,
                        AddNode(part, options_.new_name(src.name()),
                                in_host ? "_HostRecv" : "_Recv", std::move(attrs), device));
    arrival.value = arrival.receive;
    if (wire_type != type) {
      MR_ASSIGN_OR_RETURN(arrival.value,
                          AddCast(part, src, device, arrival.receive, 0, wire_type, type, in_host));
    } else if (edge.IsControl()) {
      AttrMap identity;
      identity.Set("T", kFloat);
      MR_ASSIGN_OR_RETURN(arrival.value, AddNode(part, options_.new_name(src.name()), "Identity",
                                                 std::move(identity), device));
      MR_RETURN_IF_ERROR(graph->AddEdge(arrival.receive, 0, arrival.value, 0).status());
    }
    return arrival;
  }

  const DataflowGraph& graph_;
  const PartitionOptions& options_;
  const std::vector<LoopControl> controls_;
  std::vector<Partition> parts_;
  StringMap<int> part_of_;  // by location
  InternedString last_device_;
  int last_part_ = -1;         // of the nodes on last_device_
  LargeVector<Place> places_;  // by node id
  absl::flat_hash_map<ArrivalKey, Arrival> arrivals_;
  // Of the node being connected.
  std::vector<const Edge*> control_inputs_;
  std::vector<Node*> ref_receives_, before_ref_receives_;
};

}  // namespace

StatusOr<std::vector<Partition>> PartitionGraph(const DataflowGraph& graph,
                                                const PartitionOptions& options) {
  if (options.control_flow_added || !HasControlFlow(graph)) {
    return Cutter(graph, options, {}).Run();
  }
  const std::unique_ptr<DataflowGraph> prepared = graph.Clone();
  prepared->FixSourceAndSink();
  MR_ASSIGN_OR_RETURN(std::vector<LoopControl> controls,
                      AddControlLoops(prepared.get(), options.new_name));
  return Cutter(*prepared, options, std::move(controls)).Run();
}

}  // namespace millrace
