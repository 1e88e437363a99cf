// SPDX-License-Identifier: Apache-2.0
#include "graph/lowering/lower_functions.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "graph/functions/function_inline.h"
#include "graph/functions/isolate_calls.h"
#include "graph/lowering/function_gradient.h"
#include "graph/lowering/lower_control_flow.h"
#include "graph/prune.h"

namespace millrace {
namespace {

bool IsPartitionedCall(const Node& node) {
  return node.type() == "PartitionedCall" || node.type() == "StatefulPartitionedCall";
}
bool IsBranch(const Node& node) {
  const std::string& type = node.type();
  return type == "If" || type == "StatelessIf" || type == "Case" || type == "StatelessCase";
}
bool IsLoop(const Node& node) { return node.type() == "While" || node.type() == "StatelessWhile"; }

// The functions that a node runs, in the order in which lowering wants them.
std::vector<FunctionName> FunctionsOf(const DataflowGraph& graph, const Node& node) {
  const AttrMap& attrs = node.attrs();
  const auto of = [&](const char* name) { return attrs.GetOr<FunctionName>(name, {}); };
  if (graph.IsCall(node)) {
    FunctionName function{node.type(), {}};
    for (const auto& [name, value] : attrs) {
      if (!name.starts_with('_')) function.attrs[name] = value;
    }
    return {function};
  }
  const std::string& type = node.type();
  if (IsPartitionedCall(node) || type == "SymbolicGradient") return {of("f")};
  if (type == "If" || type == "StatelessIf") return {of("else_branch"), of("then_branch")};
  if (IsBranch(node)) return attrs.GetOr<std::vector<FunctionName>>("branches", {});
  if (IsLoop(node)) return {of("cond"), of("body")};
  return {};
}

bool AsksForATask(const FunctionBody& body) {
  for (const Node* node : body.graph->OpNodes()) {
    if (node->requested_device().empty()) continue;
    const StatusOr<DeviceName> device = DeviceName::Parse(node->requested_device());
    if (device.ok() && (device->job || device->task)) return true;
  }
  return false;
}

class Lowerer {
 public:
  Lowerer(const LoweringOptions& options, FunctionBodies* bodies, DataflowGraph* graph)
      : bodies_(*bodies),
        graph_(*graph),
        first_new_(graph->num_node_ids()),
        everything_(options.everything),
        keep_control_flow_(options.keep_control_flow) {
    limit_ = static_cast<int64_t>(first_new_) + options.max_added_nodes;
    chains_.push_back({-1, ""});
    ranges_.push_back({options.first_node, 0});
  }

  // Ids grow while bodies are put in: what they hold is seen later on.
  Status Run() {
    std::size_t range = 0;
    for (int id = ranges_[0].first_id; id < graph_.num_node_ids(); ++id) {
      while (range + 1 < ranges_.size() && ranges_[range + 1].first_id <= id) ++range;
      Node* const node = graph_.node(id);
      if (node == nullptr) continue;
      const std::vector<FunctionName> functions = FunctionsOf(graph_, *node);
      if (functions.empty()) continue;
      const int before = graph_.num_node_ids();
      const int chain = ranges_[range].chain;
      MR_RETURN_IF_ERROR(Lower(node, functions, chain));
      if (graph_.num_node_ids() == before) continue;
      const int parent = chain;
      chains_.push_back({parent, functions[0].name});
      for (std::size_t i = 1; i < functions.size(); ++i) {
        chains_.push_back({static_cast<int>(chains_.size()) - 1, functions[i].name});
      }
      ranges_.push_back({before, static_cast<int>(chains_.size()) - 1});
    }
    return OkStatus();
  }

 private:
  // Which functions a node came out of.
  struct Chain {
    int parent;
    std::string function;
  };
  struct Range {
    int first_id;
    int chain;
  };
  static constexpr int kMaxChain = 200;

  bool IsWithin(const std::string& function, int chain) const {
    int length = 0;
    for (; chain >= 0; chain = chains_[chain].parent) {
      if (++length > kMaxChain || chains_[chain].function == function) return true;
    }
    return false;
  }

  // The bodies if they may be put in place of `node`, else none.
  std::vector<const FunctionBody*> Bodies(const Node& node,
                                          const std::vector<FunctionName>& functions, int chain) {
    std::vector<const FunctionBody*> bodies;
    int64_t num_nodes = graph_.num_node_ids();
    for (const FunctionName& function : functions) {
      if (IsWithin(function.name, chain)) return {};
      const FunctionBody* const body =
          bodies_.Find(graph_, function, node.type() == "SymbolicGradient");
      const auto effects = IsBranch(node) || IsLoop(node) ? InlineSite::Effects::kDeclared
                                                          : InlineSite::Effects::kAll;
      if (body == nullptr || !CanInline(*body, effects, everything_)) return {};
      num_nodes += body->graph->num_nodes();
      bodies.push_back(body);
    }
    if (num_nodes > limit_) return {};
    return bodies;
  }

  Status Lower(Node* node, const std::vector<FunctionName>& functions, int chain) {
    const bool by_name = graph_.IsCall(*node);
    const std::vector<const FunctionBody*> bodies = Bodies(*node, functions, chain);
    if (bodies.empty() || !Fits(*node, bodies)) {
      return by_name ? MakePartitionedCall(node, functions[0]) : OkStatus();
    }
    if (IsBranch(*node) || IsLoop(*node)) {
      const bool asks = node->attrs().GetOr<bool>("_lower_using_switch_merge", false);
      const bool lower = everything_ || (asks && !keep_control_flow_) ||
                         std::any_of(bodies.begin(), bodies.end(),
                                     [](const FunctionBody* body) { return AsksForATask(*body); });
      if (!lower) return OkStatus();
      if (IsLoop(*node)) return LowerWhile(node, *bodies[0], *bodies[1], &graph_);
      return LowerBranches(node, bodies, &graph_);
    }
    const bool one_device = !IsPartitionedCall(*node) || node->attrs().Has(kOnOneDevice);
    return InlineCall(*bodies[0], node, one_device, &graph_);
  }

  // False if the node and its functions do not agree: running it says so.
  static bool Fits(const Node& node, const std::vector<const FunctionBody*>& bodies) {
    std::vector<DataType> inputs, outputs = node.output_types();
    const int first = IsBranch(node) ? 1 : 0;
    for (int i = first; i < node.num_inputs(); ++i) {
      inputs.push_back(BaseType(node.input_types()[i]));
    }
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      if (bodies[b]->arg_types() != inputs) return false;
      const bool is_condition = IsLoop(node) && b == 0;
      if (is_condition ? bodies[b]->results.size() != 1 : bodies[b]->result_types() != outputs) {
        return false;
      }
    }
    return true;
  }

  Status MakePartitionedCall(Node* node, const FunctionName& function) {
    const std::string name = node->name();
    const bool stateful = node->is_stateful();
    AttrMap attrs;
    for (const auto& [key, value] : node->attrs()) {
      if (key.starts_with('_')) attrs.Set(key, value);
    }
    std::vector<DataType> inputs;
    for (const DataType type : node->input_types()) inputs.push_back(BaseType(type));
    attrs.Set("Tin", std::move(inputs));
    attrs.Set("Tout", node->output_types());
    attrs.Set("f", function);
    attrs.Set(kOnOneDevice, true);
    struct End {
      Node* node;
      int output, slot;
    };
    std::vector<End> sources, consumers;
    for (const Edge* edge : node->in_edges()) {
      if (edge->src->IsOp()) sources.push_back({edge->src, edge->src_output, edge->dst_input});
    }
    for (const Edge* edge : node->out_edges()) {
      if (edge->dst->IsOp()) consumers.push_back({edge->dst, edge->src_output, edge->dst_input});
    }
    const InternedString device = node->requested_device(), origin = node->origin();
    graph_.RemoveNode(node);
    MR_ASSIGN_OR_RETURN(
        Node* const call,
        graph_.AddNode(name, stateful ? "StatefulPartitionedCall" : "PartitionedCall",
                       std::move(attrs)));
    call->set_requested_device(device);
    call->set_origin(origin);
    for (const End& from : sources) {
      if (from.slot < 0) {
        graph_.AddControlEdge(from.node, call);
      } else {
        MR_RETURN_IF_ERROR(graph_.AddEdge(from.node, from.output, call, from.slot).status());
      }
    }
    for (const End& to : consumers) {
      if (to.slot < 0) {
        graph_.AddControlEdge(call, to.node);
      } else {
        MR_RETURN_IF_ERROR(graph_.AddEdge(call, to.output, to.node, to.slot).status());
      }
    }
    return OkStatus();
  }

  FunctionBodies& bodies_;
  DataflowGraph& graph_;
  const int first_new_;
  const bool everything_, keep_control_flow_;
  int64_t limit_ = 0;
  std::vector<Chain> chains_;
  std::vector<Range> ranges_;  // by first_id
};

}  // namespace

const FunctionBody* FunctionBodies::Find(const DataflowGraph& graph, const FunctionName& function,
                                         bool gradient) {
  if (library_ != graph.library()) {
    library_ = graph.library();
    bodies_.clear();
  }
  std::string key = StrCat(gradient ? "d " : "", FunctionKey(function));
  const auto known = bodies_.find(key);
  if (known != bodies_.end()) return known->second.get();
  StatusOr<std::unique_ptr<FunctionBody>> body =
      gradient ? InstantiateGradient(graph.ops(), graph.library(), function)
               : InstantiateFunction(graph.ops(), graph.library(), function);
  std::unique_ptr<FunctionBody> made;
  if (body.ok()) {
    made = *std::move(body);
  } else {
    MR_LOG(kInfo, "a call stays as it is: ", Message(body.status()));
  }
  return bodies_.emplace(std::move(key), std::move(made)).first->second.get();
}

Status LowerFunctions(const LoweringOptions& options, FunctionBodies* bodies,
                      DataflowGraph* graph) {
  if (graph->library() == nullptr) return OkStatus();
  FunctionBodies own;
  MR_RETURN_IF_ERROR(Lowerer(options, bodies == nullptr ? &own : bodies, graph).Run());
  return IsolateCalls(options.first_node, graph);
}

Status LowerBody(FunctionBodies* bodies, FunctionBody* body, const LoweringOptions& options) {
  DataflowGraph& graph = *body->graph;
  std::vector<std::string> effects;  // a node of the same name takes the place of what is lowered
  for (const Node* node : body->effects) effects.push_back(node->name());
  MR_RETURN_IF_ERROR(LowerFunctions(options, bodies, &graph));
  body->effects.clear();
  for (const std::string& name : effects) body->effects.push_back(graph.FindNode(name));
  std::vector<Node*> kept = body->effects;
  kept.insert(kept.end(), body->results.begin(), body->results.end());
  kept.insert(kept.end(), body->args.begin(), body->args.end());
  for (Node* node : graph.OpNodes()) {
    if (node->is_stateful()) kept.push_back(node);
  }
  PruneTo(kept, &graph);
  return OkStatus();
}

}  // namespace millrace
