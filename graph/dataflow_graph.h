// SPDX-License-Identifier: Apache-2.0
// The graph that every pass works on: nodes and edges with dense ids.
#ifndef GRAPH_DATAFLOW_GRAPH_H_
#define GRAPH_DATAFLOW_GRAPH_H_

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/interned_string.h"
#include "base/slab.h"
#include "base/string_map.h"
#include "graph/edge_list.h"
#include "graph/function_library.h"
#include "millrace/dtype.h"
#include "millrace/status.h"
#include "ops/attr_map.h"
#include "ops/op_registry.h"
#include "proto/full_type.pb.h"
#include "proto/node_def.pb.h"
#include "proto/versions.pb.h"

namespace millrace {

class Node;

// dst_input and src_output are -1 on a control edge.
struct Edge {
  int id = -1;
  Node* src = nullptr;
  Node* dst = nullptr;
  int src_output = -1;
  int dst_input = -1;
  bool IsControl() const { return dst_input < 0; }
};
inline constexpr int kControlSlot = -1;

// What a NodeDef tells beyond its meaning; kept so that an export gives it back.
struct NodeNotes {
  pb::NodeDef::ExperimentalDebugInfo debug_info;
  pb::FullTypeDef full_type;
};

// Not synchronised; changed only through its graph. What many nodes have in common (their
// attributes, types and devices) is shared by them, also with nodes of other graphs.
class Node {
 public:
  int id() const { return id_; }
  const std::string& name() const { return name_; }
  const OpInfo& op() const { return *op_; }
  const std::string& type() const { return op_->def.name(); }
  const AttrMap& attrs() const { return kind_->attrs; }
  AttrMap& mutable_attrs();
  int num_inputs() const { return static_cast<int>(kind_->inputs.size()); }
  int num_outputs() const { return static_cast<int>(kind_->outputs.size()); }
  const std::vector<DataType>& input_types() const { return kind_->inputs; }
  const std::vector<DataType>& output_types() const { return kind_->outputs; }
  // Data edges in order of slots, then control edges in order of creation.
  std::span<Edge* const> in_edges() const { return in_edges_.view(); }
  // In order of creation.
  std::span<Edge* const> out_edges() const { return out_edges_.view(); }
  // The data edge into slot i, null if the slot is not connected.
  const Edge* input_edge(int i) const;

  // As the user asked ("" = anywhere), and as the placer decided ("" = not placed yet).
  const std::string& requested_device() const { return requested_device_.str(); }
  void set_requested_device(InternedString device) { requested_device_ = std::move(device); }
  const std::string& assigned_device() const { return assigned_device_.str(); }
  // For other nodes: a copy of this is no search for the text.
  const InternedString& shared_assigned_device() const { return assigned_device_; }
  void set_assigned_device(InternedString device) { assigned_device_ = std::move(device); }
  // Where the node was made: "file.cc:12" of the C++ caller, "" if unknown.
  const std::string& origin() const { return origin_.str(); }
  void set_origin(InternedString origin) { origin_ = std::move(origin); }
  // How it came to ask for its device: scopes and functions of the program, "" if unknown.
  const std::string& device_origin() const { return device_origin_.str(); }
  void set_device_origin(InternedString origin) { device_origin_ = std::move(origin); }

  // Null for most nodes.
  const NodeNotes* notes() const { return notes_.get(); }
  void set_notes(NodeNotes notes) { notes_ = std::make_shared<const NodeNotes>(std::move(notes)); }

  bool IsSource() const { return id_ == 0; }
  bool IsSink() const { return id_ == 1; }
  bool IsOp() const { return id_ > 1; }
  bool is_stateful() const { return op_->def.is_stateful(); }

 private:
  friend class DataflowGraph;
  // Never changed while there is another owner.
  struct Kind {
    AttrMap attrs;
    std::vector<DataType> inputs, outputs;
  };
  // Everything but the edges and the id.
  void CopyFrom(const Node& other);

  int id_ = -1;
  uint32_t name_hash_ = 0;
  const OpInfo* op_ = nullptr;
  std::string name_;
  std::shared_ptr<Kind> kind_;
  EdgeList in_edges_, out_edges_;
  InternedString requested_device_, assigned_device_, origin_, device_origin_;
  std::shared_ptr<const NodeNotes> notes_;
};

// Always holds _SOURCE (id 0) and _SINK (id 1), joined by edge 0. Ids are dense in order of
// creation; a removed node or edge leaves a null slot. Not synchronised. Node and edge
// pointers stay valid until removed; `ops` must outlive the graph.
class DataflowGraph {
 public:
  explicit DataflowGraph(const OpRegistry* ops);
  ~DataflowGraph();
  DataflowGraph(const DataflowGraph&) = delete;
  DataflowGraph& operator=(const DataflowGraph&) = delete;

  // A deep copy with the same node and edge ids.
  std::unique_ptr<DataflowGraph> Clone() const;
  // A copy of these op nodes, which are in order of ids, with new ids in the same order, and of
  // the edges between them. Source and sink are joined to nothing yet.
  std::unique_ptr<DataflowGraph> CopyOf(std::span<Node* const> nodes) const;

  // Adds a node; defaults are filled, attributes validated and types expanded. InvalidArgument
  // on bad attributes, NotFound on an unknown op, AlreadyExists ("is not unique") on a name.
  StatusOr<Node*> AddNode(std::string_view name, std::string_view op, AttrMap attrs);
  // Adds a node of the same op, attributes and types as `like`, which may be of another graph
  // with the same ops and functions; nothing is checked again. AlreadyExists as above.
  StatusOr<Node*> AddNodeLike(std::string_view name, const Node& like);
  // The same with the name, devices, origins and notes of `node`.
  StatusOr<Node*> AddCopyOf(const Node& node);
  // InvalidArgument if slots do not exist, are taken, or types do not fit (a reference may
  // feed a value, not the other way round).
  StatusOr<Edge*> AddEdge(Node* src, int src_output, Node* dst, int dst_input);
  // The existing edge if there is one already.
  Edge* AddControlEdge(Node* src, Node* dst);
  void RemoveEdge(Edge* edge);
  // Also removes its edges.
  void RemoveNode(Node* node);
  // Takes back everything added since the graph had these bounds of ids, as if it had never
  // been there: ids are used again. What existed then must not have been removed since.
  void RollBack(int num_node_ids, int num_edge_ids);
  // Joins roots to _SOURCE and leaves to _SINK again after edits, and takes away such
  // edges where they are no longer due. Looks only at nodes from `first_node` on and at their
  // inputs, which is enough if all was in order and nodes were only added.
  void FixSourceAndSink(int first_node = 2);

  Node* source() const { return nodes_[0]; }
  Node* sink() const { return nodes_[1]; }
  Node* FindNode(std::string_view name) const;  // null if absent
  // Upper bounds of ids; slots may be null.
  int num_node_ids() const { return static_cast<int>(nodes_.size()); }
  int num_edge_ids() const { return static_cast<int>(edges_.size()); }
  Node* node(int id) const { return nodes_[id]; }
  const Edge* edge(int id) const { return edges_[id]; }
  int num_nodes() const { return num_nodes_; }  // living, source and sink included
  // Living op nodes (not source, sink) in id order: for (Node* n : graph.OpNodes()).
  std::vector<Node*> OpNodes() const;
  // "<prefix>/_<n>", never used in this graph.
  std::string NewName(std::string_view prefix);

  const OpRegistry& ops() const { return *ops_; }
  const pb::VersionDef& versions() const { return versions_; }
  pb::VersionDef* mutable_versions() { return &versions_; }
  // Null if there are no functions.
  const std::shared_ptr<const FunctionLibrary>& library() const { return library_; }
  // Node types are looked for among the functions first. What the nodes that are there call
  // must be among them.
  void set_library(std::shared_ptr<const FunctionLibrary> library) {
    library_ = std::move(library);
    last_kinds_.clear();  // of functions that may be gone
  }
  // True for a call of a function by its name.
  bool IsCall(const Node& node) const;
  // The function of this name as an op, else the registered op; NotFound as OpRegistry says.
  StatusOr<const OpInfo*> LookupOp(std::string_view name) const;

 private:
  struct NameHash {
    using is_transparent = void;
    static uint32_t Short(std::string_view name) { return static_cast<uint32_t>(TextHash()(name)); }
    static size_t Spread(uint32_t hash) { return hash * uint64_t{0x9e3779b97f4a7c15}; }
    size_t operator()(std::string_view name) const { return Spread(Short(name)); }
    size_t operator()(const Node* node) const { return Spread(node->name_hash_); }
  };
  struct NameEqual {
    using is_transparent = void;
    static std::string_view Name(std::string_view name) { return name; }
    static std::string_view Name(const Node* node) { return node->name(); }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Name(a) == Name(b);
    }
  };

  Node* NewNode(std::string_view name, uint32_t name_hash);
  Node* Append(Node* node);
  StatusOr<uint32_t> CheckName(std::string_view name) const;
  void DropEdge(Edge* edge);
  Edge* NewEdge(Node* src, int src_output, Node* dst, int dst_input);
  void CopySettings(const DataflowGraph& from);
  void FixEnds(Node* node);

  const OpRegistry* const ops_;
  Slab<Node> node_slab_;
  Slab<Edge> edge_slab_;
  LargeVector<Node*> nodes_;
  LargeVector<Edge*> edges_;
  absl::flat_hash_set<Node*, NameHash, NameEqual> by_name_;
  // The last node of each op: the next one is mostly of the same kind.
  absl::flat_hash_map<const OpInfo*, std::shared_ptr<Node::Kind>> last_kinds_;
  int num_nodes_ = 0;
  int next_name_ = 0;
  pb::VersionDef versions_;
  std::shared_ptr<const FunctionLibrary> library_;
};

// The static input that feeds slot i as (node, output).
struct OutputRef {
  Node* node = nullptr;
  int index = 0;
};

}  // namespace millrace

#endif  // GRAPH_DATAFLOW_GRAPH_H_
