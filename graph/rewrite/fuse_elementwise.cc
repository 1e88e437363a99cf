// SPDX-License-Identifier: Apache-2.0
// Elementwise nodes that feed each other become one node, whose kernel keeps what lies between
// them in registers or the first-level cache.
//
// What is put together must be convex: no path may leave it and come back. Each node has a level
// that grows by one on every edge between a node that can be fused and one that cannot, and on
// every control edge; a path that leaves a set of connected nodes of one level never returns to
// that level. Paths that no edge shows (through another device, a queue) are kept out by a second
// rule: every output of a fused node depends on the same receives, queues and branches, so that
// none of them waits, or is dead, for the sake of another one.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "graph/rewrite/rewrite.h"
#include "graph/rewrite/rewrite_util.h"
#include "ops/fused_program.h"

namespace millrace {
namespace {

using namespace rewrite;  // NOLINT: the passes' own

bool IsBackEdge(const Edge& edge) {
  return edge.src->type() == "NextIteration" || edge.src->type() == "RefNextIteration";
}

std::vector<Node*> ForwardOrder(const DataflowGraph& graph) {
  std::vector<int> pending(graph.num_node_ids());
  std::vector<Node*> order;
  for (Node* node : graph.OpNodes()) {
    for (const Edge* edge : node->in_edges()) {
      if (edge->src->IsOp() && !IsBackEdge(*edge)) ++pending[node->id()];
    }
    if (pending[node->id()] == 0) order.push_back(node);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const Edge* edge : order[i]->out_edges()) {
      if (!edge->dst->IsOp() || IsBackEdge(*edge)) continue;
      if (--pending[edge->dst->id()] == 0) order.push_back(edge->dst);
    }
  }
  return order;
}

// The instruction for a node, but for its operands; false if it stays a node.
bool ReadInstruction(const Node& node, FusedInstruction* in) {
  if (!FindFusedOp(node.type(), &in->op) || !IsPure(node)) return false;
  if (node.num_outputs() != 1 || node.num_inputs() == 0 || node.num_inputs() > kMaxFusedInputs) {
    return false;
  }
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Edge* edge = node.input_edge(i);
    if (edge == nullptr || edge->src->output_types()[edge->src_output] != node.input_types()[i]) {
      return false;
    }
  }
  in->type = node.input_types().back();
  in->result = node.output_types()[0];
  if (!IsFusedType(in->type) || !IsFusedType(in->result)) return false;
  switch (FormOf(in->op)) {
    case FusedForm::kNot:
    case FusedForm::kLogic:
      return true;
    case FusedForm::kCast:
      return !node.attrs().GetOr<bool>("Truncate", false);
    case FusedForm::kBias:
      if (node.attrs().GetOr<std::string>("data_format", "NHWC") != "NHWC") return false;
      break;
    case FusedForm::kCompare:
      if (!node.attrs().GetOr<bool>("incompatible_shape_error", true)) return false;
      break;
    default:
      break;
  }
  return in->type != kBool;
}

bool IsRead(const Node& node) {
  return std::any_of(node.out_edges().begin(), node.out_edges().end(),
                     [](const Edge* edge) { return !edge->IsControl() && edge->dst->IsOp(); });
}

// Sets of what nodes wait for beyond edges, by number: 0 is the empty one. Equal sets mostly have
// equal numbers; when there are too many they no longer have, which only keeps nodes apart.
class Causes {
 public:
  Causes() { sets_.emplace_back(); }

  int Union(int a, int b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    const auto key = std::minmax(a, b);
    const auto [it, is_new] = unions_.try_emplace(key, 0);
    if (is_new) {
      std::vector<int> all;
      std::set_union(sets_[a].begin(), sets_[a].end(), sets_[b].begin(), sets_[b].end(),
                     std::back_inserter(all));
      it->second = Intern(std::move(all));
    }
    return it->second;
  }
  // The set and a cause that no other set has yet.
  int Fresh(int set) {
    std::vector<int> all = sets_[set];
    all.push_back(next_cause_++);  // the largest so far
    return Intern(std::move(all));
  }

 private:
  static constexpr std::size_t kMostKept = std::size_t{4} << 20;

  int Intern(std::vector<int> set) {
    if (kept_ > kMostKept) set = {next_cause_++};
    const auto [it, is_new] = numbers_.try_emplace(set, static_cast<int>(sets_.size()));
    if (is_new) {
      kept_ += set.size() + 1;
      sets_.push_back(std::move(set));
    }
    return it->second;
  }

  int next_cause_ = 0;
  std::size_t kept_ = 0;
  std::vector<std::vector<int>> sets_;
  std::map<std::vector<int>, int> numbers_;
  absl::flat_hash_map<std::pair<int, int>, int> unions_;
};

// Whether the node, or what it reads, may wait for something that no edge shows, or be dead.
bool IsCause(const Node& node) {
  if (IsControlFlow(node)) return node.type() != "Enter";
  if (node.type() == "_Recv") return !node.attrs().GetOr<bool>("client_terminated", false);
  for (const auto& attr : node.attrs()) {
    if (attr.second.function() != nullptr) return true;
  }
  if (!node.is_stateful()) return false;
  constexpr std::string_view kPrompt[] = {
      "_Arg",          "Variable",     "VariableV2",           "VarHandleOp",    "ReadVariableOp",
      "RandomUniform", "RandomNormal", "RandomStandardNormal", "TruncatedNormal"};
  return std::find(std::begin(kPrompt), std::end(kPrompt), node.type()) == std::end(kPrompt);
}

class Fuser {
 public:
  explicit Fuser(DataflowGraph* graph) : graph_(graph) {}

  StatusOr<int> Run() {
    order_ = ForwardOrder(*graph_);
    const std::size_t ids = graph_->num_node_ids();
    instructions_.resize(ids);
    fusible_.resize(ids);
    level_.resize(ids);
    causes_.resize(ids);
    cluster_.resize(ids);
    int candidates = 0;
    for (const Node* node : order_) {
      fusible_[node->id()] = IsRead(*node) && ReadInstruction(*node, &instructions_[node->id()]);
      candidates += fusible_[node->id()] ? 1 : 0;
    }
    if (candidates == 0) return 0;
    Level();
    Join();
    int fused = 0;
    for (std::vector<Node*>& members : Clusters()) {
      MR_RETURN_IF_ERROR(Replace(members));
      fused += static_cast<int>(members.size());
    }
    return fused;
  }

 private:
  void Level() {
    for (const Node* node : order_) {
      const int id = node->id();
      int set = 0;
      for (const Edge* edge : node->in_edges()) {
        if (!edge->src->IsOp() || IsBackEdge(*edge)) continue;
        const int from = edge->src->id();
        const bool steps = edge->IsControl() || fusible_[from] != fusible_[id];
        level_[id] = std::max(level_[id], level_[from] + (steps ? 1 : 0));
        set = sets_.Union(set, CausesOf(*edge));
      }
      causes_[id] = IsCause(*node) ? sets_.Fresh(set) : set;
    }
  }

  // The sides of a branch are dead at different times.
  int CausesOf(const Edge& edge) {
    const int from = edge.src->id();
    const std::string& type = edge.src->type();
    if (edge.IsControl() || (type != "Switch" && type != "_SwitchN")) return causes_[from];
    const auto [it, is_new] = sides_.try_emplace({from, edge.src_output}, 0);
    if (is_new) it->second = sets_.Fresh(causes_[from]);
    return it->second;
  }

  int Find(int id) {
    while (cluster_[id] != id) id = cluster_[id] = cluster_[cluster_[id]];
    return id;
  }

  void Join() {
    for (std::size_t i = 0; i < cluster_.size(); ++i) cluster_[i] = static_cast<int>(i);
    for (const Node* node : order_) {
      if (!fusible_[node->id()]) continue;
      for (const Edge* edge : node->in_edges()) {
        const int from = edge->src->id(), to = node->id();
        if (!edge->IsControl() && fusible_[from] && level_[from] == level_[to]) {
          cluster_[Find(from)] = Find(to);
        }
      }
    }
  }

  // One alone is if a reduction will be part of it.
  static bool IsWorthIt(const std::vector<Node*>& members) {
    return members.size() > 1 || (members.size() == 1 && ReductionOver(*members[0]) != nullptr);
  }

  // What is worth a node of its own, each in forward order.
  std::vector<std::vector<Node*>> Clusters() {
    std::vector<std::vector<Node*>> whole;
    std::vector<int> index(cluster_.size(), -1);
    for (Node* node : order_) {
      if (!fusible_[node->id()]) continue;
      int& i = index[Find(node->id())];
      if (i < 0) {
        i = static_cast<int>(whole.size());
        whole.emplace_back();
      }
      whole[i].push_back(node);
    }
    std::vector<std::vector<Node*>> clusters;
    for (const std::vector<Node*>& members : whole) {
      if (!IsWorthIt(members)) continue;
      for (const std::vector<Node*>& alike : ByCauses(members)) Cut(alike, &clusters);
    }
    return clusters;
  }

  // All members, if every output depends on all that any of them depends on; else those that
  // depend on the same. Sets grow along edges, so that the parts are convex too.
  std::vector<std::vector<Node*>> ByCauses(const std::vector<Node*>& members) {
    int all = 0;
    for (const Node* node : members) all = sets_.Union(all, causes_[node->id()]);
    const bool fit = std::all_of(members.begin(), members.end(), [&](const Node* node) {
      return causes_[node->id()] == all || !IsOutput(*node, Find(node->id()));
    });
    if (fit) return {members};
    std::map<int, std::vector<Node*>> parts;
    for (Node* node : members) parts[causes_[node->id()]].push_back(node);
    std::vector<std::vector<Node*>> result;
    for (auto& [set, part] : parts) result.push_back(std::move(part));
    return result;
  }

  // Read, or waited for, outside of its cluster.
  bool IsOutput(const Node& node, int cluster) {
    return std::any_of(node.out_edges().begin(), node.out_edges().end(), [&](const Edge* edge) {
      return edge->dst->IsOp() && (!fusible_[edge->dst->id()] || Find(edge->dst->id()) != cluster);
    });
  }

  // Cuts along the order into pieces that a kernel takes.
  void Cut(const std::vector<Node*>& members, std::vector<std::vector<Node*>>* clusters) {
    std::vector<Node*> piece;
    std::vector<std::pair<const Node*, int>> inputs;
    const auto close = [&] {
      if (IsWorthIt(piece)) clusters->push_back(piece);
      piece.clear();
      inputs.clear();
    };
    for (Node* node : members) {
      const auto add_inputs = [&] {
        for (int i = 0; i < node->num_inputs(); ++i) {
          const Edge* edge = node->input_edge(i);
          const std::pair<const Node*, int> from(edge->src, edge->src_output);
          if (std::find(piece.begin(), piece.end(), edge->src) == piece.end() &&
              std::find(inputs.begin(), inputs.end(), from) == inputs.end()) {
            inputs.push_back(from);
          }
        }
      };
      add_inputs();
      if (piece.size() == kMaxFusedInstructions || inputs.size() > kMaxFusedInputs) {
        close();
        add_inputs();
      }
      piece.push_back(node);
    }
    close();
  }

  struct Consumer {
    Node* dst;
    int input, output;
  };
  // What joins the new node to the rest of the graph.
  struct Seams {
    std::vector<std::pair<Node*, int>> inputs;
    std::vector<Consumer> consumers;
    std::vector<Node*> before, after;
  };

  // The program of the members, which are in order, and their seams.
  FusedProgram Describe(const std::vector<Node*>& members, Seams* seams, AttrMap* attrs) {
    absl::flat_hash_map<const Node*, int> number;
    for (std::size_t i = 0; i < members.size(); ++i) number[members[i]] = static_cast<int>(i);
    FusedProgram program;
    std::vector<DataType> in_types, out_types;
    std::vector<std::string> names;
    for (Node* node : members) {
      names.push_back(node->name());
      FusedInstruction in = instructions_[node->id()];
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Edge* edge = node->input_edge(i);
        if (const auto it = number.find(edge->src); it != number.end()) {
          in.args.push_back(~it->second);
          continue;
        }
        const std::pair<Node*, int> from(edge->src, edge->src_output);
        const auto at = std::find(seams->inputs.begin(), seams->inputs.end(), from);
        in.args.push_back(static_cast<int32_t>(at - seams->inputs.begin()));
        if (at == seams->inputs.end()) {
          seams->inputs.push_back(from);
          in_types.push_back(node->input_types()[i]);
        }
      }
      bool is_output = false;
      for (const Edge* edge : node->out_edges()) {
        if (!edge->dst->IsOp() || number.contains(edge->dst)) continue;
        if (edge->IsControl()) {
          seams->after.push_back(edge->dst);
          continue;
        }
        is_output = true;
        seams->consumers.push_back(
            {edge->dst, edge->dst_input, static_cast<int>(program.outputs.size())});
      }
      for (const Edge* edge : node->in_edges()) {
        if (edge->IsControl() && edge->src->IsOp()) seams->before.push_back(edge->src);
      }
      if (is_output) {
        program.outputs.push_back(number[node]);
        out_types.push_back(in.result);
      }
      program.instructions.push_back(std::move(in));
    }
    attrs->Set("Tin", in_types);
    attrs->Set("Tout", out_types);
    attrs->Set("program", FormatFusedProgram(program));
    attrs->Set("nodes", names);
    return program;
  }

  Status Replace(const std::vector<Node*>& members) {
    Seams seams;
    AttrMap attrs;
    const FusedProgram program = Describe(members, &seams, &attrs);
    const Node* const last = members[program.outputs.back()];
    const std::string name = last->name();
    const InternedString device = last->shared_assigned_device(), origin(last->origin());
    for (Node* node : members) graph_->RemoveNode(node);
    MR_ASSIGN_OR_RETURN(Node* const fused, graph_->AddNode(name, "_Fused", std::move(attrs)));
    fused->set_assigned_device(device);
    fused->set_origin(origin);
    // Other members' successors may be new themselves: all that is left is found by edges.
    for (std::size_t i = 0; i < seams.inputs.size(); ++i) {
      const auto& [src, output] = seams.inputs[i];
      MR_RETURN_IF_ERROR(graph_->AddEdge(src, output, fused, static_cast<int>(i)).status());
    }
    for (const Consumer& to : seams.consumers) {
      MR_RETURN_IF_ERROR(graph_->AddEdge(fused, to.output, to.dst, to.input).status());
    }
    for (Node* node : seams.before) graph_->AddControlEdge(node, fused);
    for (Node* node : seams.after) graph_->AddControlEdge(fused, node);
    return OkStatus();
  }

  DataflowGraph* const graph_;
  std::vector<Node*> order_;
  // By ids of nodes.
  std::vector<FusedInstruction> instructions_;
  std::vector<char> fusible_;
  std::vector<int> level_, causes_, cluster_;
  Causes sets_;
  absl::flat_hash_map<std::pair<int, int>, int> sides_;  // by node and output of branches
};

}  // namespace

StatusOr<int> FuseElementwise(DataflowGraph* graph) { return Fuser(graph).Run(); }

}  // namespace millrace
