// SPDX-License-Identifier: Apache-2.0
#include "worker/late_reads.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

bool IsOneOf(const Node& node, std::initializer_list<std::string_view> types) {
  return std::find(types.begin(), types.end(), node.type()) != types.end();
}

// Nodes that hand on what they are given, or whose inputs belong to another frame or may be dead.
bool IsControlFlow(const Node& node) {
  return IsOneOf(node, {"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit",
                        "RefExit", "NextIteration", "RefNextIteration", "LoopCond"});
}

bool IsRefOutput(const Edge& edge) {
  return !edge.IsControl() && IsRefType(edge.src->output_types()[edge.src_output]);
}
// True if what the edge brings may be written to.
bool TakesRef(const Edge& edge) {
  return IsRefOutput(edge) && IsRefType(edge.dst->input_types()[edge.dst_input]);
}

// Where a value comes from that is a variable's memory in TensorFlow.
struct Read {
  const Edge* reference = nullptr;  // into the Identity; null if it is no such value
  std::vector<const Node*> enters;  // that brought it here, the last one first
  bool is_direct = true;            // the Identity itself
};

Read ReadBehind(const Edge& edge) {
  constexpr int kMaxSteps = 64;  // longer chains are nobody's variable
  Read read;
  const Edge* at = &edge;
  for (int i = 0; i < kMaxSteps && at != nullptr; ++i, at = at->src->input_edge(0)) {
    const Node& node = *at->src;
    if (node.type() == "Identity") {
      const Edge* const input = node.input_edge(0);
      if (input != nullptr && IsRefOutput(*input)) {
        read.reference = input;
        return read;
      }
    } else if (node.type() == "Enter" && node.attrs().GetOr<bool>("is_constant", false)) {
      read.enters.push_back(&node);
    } else if (node.type() != "Switch") {
      return {};
    }
    read.is_direct = false;
  }
  return {};
}

// The node that makes the reference: a variable.
const Node* VariableOf(const Edge& reference) {
  const Node* node = reference.src;
  for (int i = 0; i < node->num_inputs();) {
    const Edge* const input = node->input_edge(i++);
    if (input == nullptr || !TakesRef(*input) || input->src == node) continue;
    if (node->type() == "RefMerge") return node;  // may be one of several, may be a loop
    node = input->src;
    i = 0;
  }
  return node;
}

// A constant that waits: TensorFlow's Python leaves a control edge out where an input already
// has it, so a node under control_dependencies may wait through its constants alone.
bool IsWaitingConst(const Node& node) {
  if (node.type() != "Const") return false;
  for (const Edge* edge : node.in_edges()) {
    if (edge->src->IsOp()) return true;
  }
  return false;
}

class LateReader {
 public:
  explicit LateReader(DataflowGraph* graph) : graph_(*graph) {}

  Status Run() {
    for (Node* node : graph_.OpNodes()) {
      if (IsControlFlow(*node)) continue;
      std::vector<Edge*> edges;
      for (Edge* edge : node->in_edges()) {
        if (!edge->IsControl() && ReadBehind(*edge).reference != nullptr) edges.push_back(edge);
      }
      MR_RETURN_IF_ERROR(MakeAllLate(node, edges));
    }
    return OkStatus();
  }

 private:
  using Nodes = absl::flat_hash_set<int>;  // ids
  // Of all variables together; then every node is taken for one that comes after an update.
  static constexpr int64_t kMaxReached = 20'000'000;

  // Both operands of a product come from one read.
  struct Late {
    const Node* early;
    int output;
    Node* node;
  };

  Status MakeAllLate(Node* node, const std::vector<Edge*>& edges) {
    std::vector<Late> known;
    for (Edge* edge : edges) {
      Node* early = edge->src;
      const int output = edge->src_output, slot = edge->dst_input;
      const auto same = std::find_if(known.begin(), known.end(), [&](const Late& late) {
        return late.early == early && late.output == output;
      });
      Node* late = nullptr;
      if (same != known.end()) {
        late = same->node;
      } else {
        MR_ASSIGN_OR_RETURN(late, MakeLate(node, *edge));
        known.push_back({early, output, late});
      }
      if (late == nullptr) continue;
      graph_.RemoveEdge(edge);
      MR_RETURN_IF_ERROR(graph_.AddEdge(late, 0, node, slot).status());
    }
    return OkStatus();
  }

  // A read for this one consumer; null if it need not be late.
  StatusOr<Node*> MakeLate(Node* node, const Edge& edge) {
    const Read read = ReadBehind(edge);
    std::vector<Node*> awaited;
    for (const Edge* other : node->in_edges()) {
      if (other == &edge || !other->src->IsOp() || other->src == edge.src) continue;
      const bool waits = read.is_direct && (other->IsControl() || IsWaitingConst(*other->src));
      if (waits || IsAfterUpdate(*other, *VariableOf(*read.reference))) {
        MR_ASSIGN_OR_RETURN(Node* const before, Awaitable(*other));
        awaited.push_back(before);
      }
    }
    if (awaited.empty()) return nullptr;
    MR_ASSIGN_OR_RETURN(Node* const early, Awaitable(edge));
    awaited.push_back(early);
    OutputRef reference{read.reference->src, read.reference->src_output};
    for (std::size_t i = read.enters.size(); i-- > 0;) {
      MR_ASSIGN_OR_RETURN(reference.node, EnterToo(*read.enters[i], reference));
      reference.index = 0;
    }
    const Node& identity = *read.reference->dst;
    MR_ASSIGN_OR_RETURN(Node* const late, Add("Identity", identity));
    MR_RETURN_IF_ERROR(graph_.AddEdge(reference.node, reference.index, late, 0).status());
    for (Node* before : awaited) graph_.AddControlEdge(before, late);
    return late;
  }

  StatusOr<Node*> Add(std::string_view op, const Node& like) {
    AttrMap attrs;
    for (const char* name : {"T", "frame_name", "is_constant", "parallel_iterations"}) {
      const AttrValue* const value = like.attrs().Find(name);
      if (value != nullptr) attrs.Set(name, *value);
    }
    MR_ASSIGN_OR_RETURN(Node* const node,
                        graph_.AddNode(graph_.NewName(like.name()), op, std::move(attrs)));
    node->set_assigned_device(like.assigned_device());
    return node;
  }

  // The reference within the frame of `enter`, dead if what that brings is.
  StatusOr<Node*> EnterToo(const Node& enter, const OutputRef& reference) {
    Node*& known = entered_[{&enter, reference.node}];
    if (known != nullptr) return known;
    MR_ASSIGN_OR_RETURN(known, Add("RefEnter", enter));
    MR_RETURN_IF_ERROR(graph_.AddEdge(reference.node, reference.index, known, 0).status());
    MR_ASSIGN_OR_RETURN(Node* const early, Awaitable(*enter.input_edge(0)));
    graph_.AddControlEdge(early, known);
    return known;
  }

  // A node that is dead when what the edge brings is: a Switch never is.
  StatusOr<Node*> Awaitable(const Edge& edge) {
    if (edge.IsControl() || !IsOneOf(*edge.src, {"Switch", "RefSwitch"})) return edge.src;
    Node*& known = gates_[{edge.src, edge.src_output}];
    if (known != nullptr) return known;
    MR_ASSIGN_OR_RETURN(known, Add("Identity", *edge.src));
    MR_RETURN_IF_ERROR(graph_.AddEdge(edge.src, edge.src_output, known, 0).status());
    return known;
  }

  bool IsAfterUpdate(const Edge& edge, const Node& variable) {
    const auto [known, is_new] = after_.try_emplace(&variable);
    if (is_new) known->second = AfterUpdates(variable);
    return known->second.contains(edge.src->id()) || num_reached_ >= kMaxReached;
  }

  // What comes after a node that may write to the variable, that node included.
  Nodes AfterUpdates(const Node& variable) {
    Nodes holds, after;
    std::vector<const Node*> holders = {&variable}, reached;
    while (!holders.empty()) {
      const Node* const node = holders.back();
      holders.pop_back();
      for (const Edge* edge : node->out_edges()) {
        if (!edge->dst->IsOp() || !TakesRef(*edge)) continue;
        if (!holds.insert(edge->dst->id()).second) continue;
        holders.push_back(edge->dst);
        if (IsControlFlow(*edge->dst) || edge->dst->type() == "RefIdentity") continue;
        after.insert(edge->dst->id());
        reached.push_back(edge->dst);
      }
    }
    while (!reached.empty() && num_reached_ < kMaxReached) {
      const Node* const node = reached.back();
      reached.pop_back();
      for (const Edge* edge : node->out_edges()) {
        if (!after.insert(edge->dst->id()).second) continue;
        reached.push_back(edge->dst);
        ++num_reached_;
      }
    }
    return after;
  }

  DataflowGraph& graph_;
  absl::flat_hash_map<const Node*, Nodes> after_;  // by variable
  int64_t num_reached_ = 0;
  absl::flat_hash_map<std::pair<const Node*, const Node*>, Node*> entered_;
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> gates_;
};

}  // namespace

Status ReadLate(DataflowGraph* graph) { return LateReader(graph).Run(); }

}  // namespace millrace
