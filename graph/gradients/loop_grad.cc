// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients/loop_grad.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/functions/function_inline.h"
#include "graph/gradients/body_grad.h"
#include "graph/gradients/grad_util.h"
#include "graph/gradients/loop_nodes.h"
#include "graph/prune.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

bool IsDifferentiable(DataType type) {
  return IsFloating(BaseType(type)) || IsComplex(BaseType(type)) || BaseType(type) == kVariant;
}

template <std::size_t N>
bool IsOneOf(const Node& node, const std::string_view (&ops)[N]) {
  return std::find(std::begin(ops), std::end(ops), node.type()) != std::end(ops);
}

// What gives the same when it is asked again within a step.
bool MayRunAgain(const Node& node) {
  static constexpr std::string_view kOps[] = {
      "Placeholder", "VarHandleOp", "Variable", "VariableV2", "VariableShape", "_Arg", "_Retval"};
  return !node.is_stateful() || IsOneOf(node, kOps);
}
// The same, as long as nobody writes.
bool Reads(const Node& node) {
  static constexpr std::string_view kOps[] = {"ReadVariableOp", "ResourceGather",
                                              "TensorArraySizeV3", "VarIsInitializedOp"};
  return IsOneOf(node, kOps);
}
// Touches variables, as far as one can tell; tensor arrays have a value for each place.
bool MayWrite(const Node& node) {
  if (MayRunAgain(node) || Reads(node)) return false;
  if (node.type().starts_with("TensorArray") || node.type().starts_with("Stack")) return false;
  return std::any_of(node.input_types().begin(), node.input_types().end(),
                     [](DataType type) { return type == kResource || IsRefType(type); });
}

// Of a use of an array or a stack: the node that makes it, or null if it comes from elsewhere.
const Node* MakerOf(const Node& use) {
  static constexpr std::string_view kPassOn[] = {"Enter", "Identity", "Switch"};
  if (!use.type().starts_with("TensorArray") && !use.type().starts_with("Stack")) return nullptr;
  const Node* node = &use;
  while (node->type() != "TensorArrayV3" && node->type() != "StackV2") {
    if (!IsOneOf(*node, kPassOn) && node != &use && node->type() != "TensorArrayGradV3") {
      return nullptr;
    }
    const Edge* const edge = node->num_inputs() == 0 ? nullptr : node->input_edge(0);
    if (edge == nullptr) return nullptr;
    node = edge->src;
  }
  return node;
}

class LoopDifferentiator {
 public:
  LoopDifferentiator(const std::string& source, const Scope& scope, const Loops& loops, int index,
                     const std::vector<Output>& dys)
      : source_(source),
        scope_(scope),
        state_(*scope.graph()),
        graph_(*scope.graph()->graph),
        loops_(loops),
        index_(index),
        loop_(loops.loops[index]),
        dys_(dys),
        nodes_(scope.graph(), loop_.condition, loop_.parallel_iterations, "") {}

  Status Run(const std::function<bool(const Output& source)>& wanted,
             const std::function<void(const Output& source, const Output& dx)>& add) {
    MR_RETURN_IF_ERROR(loop_.well_formed);
    if (loop_.variables.empty()) return OkStatus();
    MR_RETURN_IF_ERROR(LookInside());
    MR_RETURN_IF_ERROR(CopyBody());
    std::vector<int> results, args;
    for (std::size_t i = 0; i < loop_.variables.size(); ++i) {
      if (!IsDifferentiable(loop_.variables[i].enter->output_types()[0])) continue;
      results.push_back(static_cast<int>(i));
      args.push_back(static_cast<int>(i));
      carried_.push_back(i);
    }
    for (std::size_t k = 0; k < loop_.invariants.size(); ++k) {
      const DataType type = BaseType(loop_.invariants[k]->output_types()[0]);
      if (!IsDifferentiable(type) && type != kResource) continue;
      if (!wanted(SourceOf(loop_.invariants[k]))) continue;
      args.push_back(static_cast<int>(loop_.variables.size() + k));
      summed_.push_back(k);
    }
    if (carried_.empty()) return OkStatus();
    MR_ASSIGN_OR_RETURN(BodyGradient gradient,
                        DifferentiateBody(source_, std::move(body_), results, args));
    gradient_ = std::move(gradient.body);
    DropIndependent(gradient.depends);
    first_dy_ = loop_.variables.size() + loop_.invariants.size();
    MR_RETURN_IF_ERROR(KeepStatefulOutputs());
    Prune();
    MR_RETURN_IF_ERROR(CountForward());
    MR_RETURN_IF_ERROR(RunBackward());
    MR_RETURN_IF_ERROR(scope_.status());
    for (std::size_t i = 0; i < carried_.size(); ++i) {
      add(SourceOf(loop_.variables[carried_[i]].enter), exits_[i]);
    }
    for (std::size_t i = 0; i < summed_.size(); ++i) {
      add(SourceOf(loop_.invariants[summed_[i]]), exits_[carried_.size() + i]);
    }
    return OkStatus();
  }

 private:
  static OutputRef InputOf(const Node& node, int i) {
    const Edge* const edge = node.input_edge(i);
    return {edge->src, edge->src_output};
  }
  Output SourceOf(const Node* enter) const {
    const OutputRef source = InputOf(*enter, 0);
    return Output(&state_, source.node, source.index);
  }

  // ---- The body as a function

  bool IsInside(const Node& node) const {
    return node.id() < static_cast<int>(loops_.loop_of.size()) &&
           loops_.loop_of[node.id()] == index_;
  }

  Status LookInside() {
    for (std::size_t id = 2; id < loops_.loop_of.size(); ++id) {
      if (loops_.loop_of[id] != index_) continue;
      const Node& node = *graph_.node(static_cast<int>(id));
      writes_ |= MayWrite(node);
      // What was pushed is a derivative's input too, but no edge says so.
      if (node.type().starts_with("StackPop") && UsesOutputOf(node)) {
        return errors::Unimplemented("{{node ", node.name(),
                                     "}}: the loop computes a gradient itself, and its values come "
                                     "from a stack that Gradients() did not make");
      }
    }
    return OkStatus();
  }

  Status AddArg(DataflowGraph* graph, Node* original, int output, DataType type) {
    AttrMap attrs;
    attrs.Set("T", BaseType(type));
    attrs.Set("index", static_cast<int64_t>(body_->args.size()));
    MR_ASSIGN_OR_RETURN(Node* const arg,
                        graph->AddNode(graph->NewName("arg"), "_Arg", std::move(attrs)));
    body_->args.push_back(arg);
    twins_[{original, output}] = arg;
    return OkStatus();
  }

  Status CopyBody() {
    body_ = std::make_unique<FunctionBody>();
    body_->graph = std::make_unique<DataflowGraph>(&graph_.ops());
    body_->name = StrCat(loop_.frame, " body");
    DataflowGraph* const copy = body_->graph.get();
    copy->set_library(graph_.library());
    absl::flat_hash_set<const Node*> boundary;
    for (const Loop::Variable& variable : loop_.variables) {
      MR_RETURN_IF_ERROR(AddArg(copy, variable.branch, 1, variable.enter->output_types()[0]));
      boundary.insert({variable.branch, variable.merge, variable.next, variable.enter});
    }
    for (Node* enter : loop_.invariants) {
      MR_RETURN_IF_ERROR(AddArg(copy, enter, 0, enter->output_types()[0]));
      boundary.insert(enter);
    }
    boundary.insert(loop_.condition);
    // What leads to the next values.
    std::vector<Node*> stack, members;
    absl::flat_hash_set<const Node*> seen;
    const auto visit = [&](Node* node) {
      if (!boundary.contains(node) && IsInside(*node) && seen.insert(node).second) {
        stack.push_back(node);
        members.push_back(node);
      }
    };
    for (const Loop::Variable& variable : loop_.variables) {
      visit(InputOf(*variable.next, 0).node);
    }
    while (!stack.empty()) {
      Node* const node = stack.back();
      stack.pop_back();
      for (const Edge* edge : node->in_edges()) {
        if (!edge->src->IsOp() || (edge->IsControl() && edge->src->is_stateful())) continue;
        visit(edge->src);
      }
    }
    std::sort(members.begin(), members.end(),
              [](const Node* a, const Node* b) { return a->id() < b->id(); });
    for (const Node* node : members) {
      MR_ASSIGN_OR_RETURN(Node* const twin, copy->AddNodeLike(node->name(), *node));
      twin->set_requested_device(node->requested_device());
      twin->set_origin(node->origin());
      copies_[node] = twin;
      originals_[twin->name()] = const_cast<Node*>(node);
    }
    for (const Node* node : members) {
      for (const Edge* edge : node->in_edges()) {
        if (edge->src->IsOp()) MR_RETURN_IF_ERROR(CopyEdge(*edge, copies_[node], edge->dst_input));
      }
    }
    for (std::size_t i = 0; i < loop_.variables.size(); ++i) {
      AttrMap attrs;
      attrs.Set("T", BaseType(loop_.variables[i].enter->output_types()[0]));
      attrs.Set("index", static_cast<int64_t>(i));
      MR_ASSIGN_OR_RETURN(Node* const result,
                          copy->AddNode(copy->NewName("result"), "_Retval", std::move(attrs)));
      MR_RETURN_IF_ERROR(CopyEdge(*loop_.variables[i].next->input_edge(0), result, 0));
      body_->results.push_back(result);
    }
    return OkStatus();
  }

  Status CopyEdge(const Edge& edge, Node* dst, int slot) {
    const auto copied = copies_.find(edge.src);
    if (slot == kControlSlot) {
      if (copied != copies_.end()) {
        body_->graph->AddControlEdge(copied->second, dst);
      } else if (const auto arg = twins_.find({edge.src, 1}); arg != twins_.end()) {
        body_->graph->AddControlEdge(arg->second, dst);
      }
      return OkStatus();
    }
    if (copied != copies_.end()) {
      return body_->graph->AddEdge(copied->second, edge.src_output, dst, slot).status();
    }
    const auto arg = twins_.find({edge.src, edge.src_output});
    if (arg == twins_.end()) {
      return errors::Unimplemented("the gradient of the loop '", loop_.frame, "': {{node ",
                                   edge.dst->name(), "}} in its body uses {{node ",
                                   edge.src->name(), "}}, which belongs to its condition");
    }
    return body_->graph->AddEdge(arg->second, 0, dst, slot).status();
  }

  // ---- What the forward loop has to keep

  // A second run of what has state would give something else: its first results are arguments.
  Status KeepStatefulOutputs() {
    Prune();
    DataflowGraph& graph = *gradient_->graph;
    const Loops inner = FindLoops(graph, graph.num_node_ids());
    for (Node* node : graph.OpNodes()) {
      const auto original = originals_.find(node->name());
      if (original == originals_.end() || MayRunAgain(*node)) continue;
      if (!writes_ && Reads(*node)) continue;
      // The second run makes such an array anew, and fills it anew.
      if (MakerOf(*node) != nullptr) continue;
      if (inner.loop_of[node->id()] >= 0) {
        if (!UsesOutputOf(*node)) continue;
        return errors::Unimplemented(
            "the gradient of a loop within a loop: {{node ", node->name(), "}} (op: ", node->type(),
            ") in the inner one would give something else when it runs again");
      }
      for (int output = 0; output < node->num_outputs(); ++output) {
        std::vector<Edge*> edges;
        for (Edge* edge : node->out_edges()) {
          if (edge->src_output == output && !edge->IsControl()) edges.push_back(edge);
        }
        if (edges.empty() || BaseType(node->output_types()[output]) == kResource) continue;
        AttrMap attrs;
        attrs.Set("T", BaseType(node->output_types()[output]));
        attrs.Set("index", static_cast<int64_t>(gradient_->args.size()));
        MR_ASSIGN_OR_RETURN(Node* const arg,
                            graph.AddNode(graph.NewName("kept"), "_Arg", std::move(attrs)));
        gradient_->args.push_back(arg);
        kept_.push_back({original->second, output});
        for (Edge* edge : edges) {
          Node* const dst = edge->dst;
          const int slot = edge->dst_input;
          graph.RemoveEdge(edge);
          MR_RETURN_IF_ERROR(graph.AddEdge(arg, 0, dst, slot).status());
        }
      }
    }
    return OkStatus();
  }

  // Of the invariants at which nothing arrives nothing needs to be summed up.
  void DropIndependent(const std::vector<bool>& depends) {
    std::vector<std::size_t> summed;
    std::vector<Node*> results;
    for (std::size_t i = 0; i < depends.size(); ++i) {
      Node* const result = gradient_->results[i];
      if (i >= carried_.size() && !depends[i]) {
        gradient_->graph->RemoveNode(result);
        continue;
      }
      result->mutable_attrs().Set("index", static_cast<int64_t>(results.size()));
      results.push_back(result);
      if (i >= carried_.size()) summed.push_back(summed_[i - carried_.size()]);
    }
    gradient_->results = std::move(results);
    summed_ = std::move(summed);
  }

  void Prune() {
    std::vector<Node*> kept = gradient_->results;
    kept.insert(kept.end(), gradient_->args.begin(), gradient_->args.end());
    PruneTo(kept, gradient_->graph.get());
  }

  static bool UsesOutputOf(const Node& node) {
    return std::any_of(node.out_edges().begin(), node.out_edges().end(),
                       [](const Edge* edge) { return !edge->IsControl() && edge->dst->IsOp(); });
  }

  bool IsUsed(std::size_t arg) const {
    const auto edges = gradient_->args[arg]->out_edges();
    return std::any_of(edges.begin(), edges.end(),
                       [](const Edge* edge) { return edge->dst->IsOp(); });
  }

  // ---- Small ones

  OutputRef Ref(const Output& output) const { return {output.op().node(), output.index()}; }
  OutputRef IntConst(int32_t value) {
    return Ref(ops::Const(scope_.WithoutControlDependencies(), Tensor::Scalar<int32_t>(value),
                          DataType::kInt32));
  }

  // The forward loop counts its iterations, and pushes what the other one needs onto stacks.
  Status CountForward() {
    nodes_.set_prefix(StrCat("gradients/", loop_.frame, "_count"));
    const OutputRef zero = IntConst(0), one = IntConst(1), no_bound = IntConst(-1);
    MR_ASSIGN_OR_RETURN(LoopNodes::Carried count, nodes_.Carry(zero, loop_.frame));
    MR_RETURN_IF_ERROR(nodes_.Test({loop_.condition, 0}, &count));
    MR_ASSIGN_OR_RETURN(Node* const pivot,
                        nodes_.AddTyped("Identity", "Identity", kInt32, {count.current}));
    MR_ASSIGN_OR_RETURN(Node* const step, nodes_.Enter(one, loop_.frame, /*constant=*/true));
    MR_ASSIGN_OR_RETURN(Node* const sum,
                        nodes_.AddTyped("Add", "AddV2", kInt32, {{pivot, 0}, {step, 0}}));
    MR_ASSIGN_OR_RETURN(Node* const next, nodes_.Next(count, {sum, 0}));
    MR_ASSIGN_OR_RETURN(total_, nodes_.Exit(count));
    stacks_.resize(gradient_->args.size());
    for (std::size_t arg = 0; arg < gradient_->args.size(); ++arg) {
      OutputRef value;
      if (arg < loop_.variables.size()) {
        value = {loop_.variables[arg].branch, 1};
      } else if (arg >= first_dy_ + carried_.size()) {
        value = kept_[arg - first_dy_ - carried_.size()];
      } else {
        continue;
      }
      if (!IsUsed(arg)) continue;
      const DataType type = BaseType(value.node->output_types()[value.index]);
      AttrMap attrs;
      attrs.Set("elem_type", type);
      attrs.Set("stack_name", loop_.frame);
      MR_ASSIGN_OR_RETURN(Node* const stack,
                          nodes_.Add("Stack", "StackV2", std::move(attrs), {no_bound}));
      stacks_[arg] = {stack, 0};
      MR_ASSIGN_OR_RETURN(Node* const handle,
                          nodes_.Enter({stack, 0}, loop_.frame, /*constant=*/true));
      MR_ASSIGN_OR_RETURN(Node* const push,
                          nodes_.AddTyped("StackPush", "StackPushV2", type, {{handle, 0}, value}));
      // One iteration after the other, and all before the end.
      graph_.AddControlEdge(pivot, push);
      graph_.AddControlEdge(push, next);
      for (Node* node : {stack, handle, push}) {
        node->set_requested_device(value.node->requested_device());
      }
    }
    return OkStatus();
  }

  // ---- The backward loop

  StatusOr<OutputRef> InitialGradient(std::size_t variable) {
    if (dys_[variable].valid()) return Ref(dys_[variable]);
    const Loop::Variable& of = loop_.variables[variable];
    Node* exit = of.exit;
    if (exit == nullptr) {
      MR_ASSIGN_OR_RETURN(
          exit, nodes_.AddTyped("Exit", "Exit", of.enter->output_types()[0], {{of.branch, 0}}));
    }
    return Ref(ops::ZerosLike(scope_, Output(&state_, exit, 0)));
  }

  Status RunBackward() {
    const std::string frame = state_.UniqueName(StrCat("gradients/", loop_.frame, "_back"));
    nodes_.set_prefix(frame);
    const OutputRef zero = IntConst(0), one = IntConst(1);
    MR_ASSIGN_OR_RETURN(LoopNodes::Carried count, nodes_.Carry(total_, frame));
    std::vector<LoopNodes::Carried> sums;
    for (const std::size_t variable : carried_) {
      MR_ASSIGN_OR_RETURN(const OutputRef initial, InitialGradient(variable));
      MR_ASSIGN_OR_RETURN(const LoopNodes::Carried carried, nodes_.Carry(initial, frame));
      sums.push_back(carried);
    }
    for (std::size_t i = 0; i < summed_.size(); ++i) {
      const Node& result = *gradient_->results[carried_.size() + i];
      const Output zeros = ZerosFor(scope_, SourceOf(loop_.invariants[summed_[i]]),
                                    result.attrs().GetOr<DataType>("T", kFloat));
      MR_RETURN_IF_ERROR(scope_.status());
      MR_ASSIGN_OR_RETURN(const LoopNodes::Carried carried, nodes_.Carry(Ref(zeros), frame));
      sums.push_back(carried);
    }
    MR_ASSIGN_OR_RETURN(Node* const bound, nodes_.Enter(zero, frame, /*constant=*/true));
    MR_ASSIGN_OR_RETURN(Node* const goes_on, nodes_.AddTyped("Greater", "Greater", kInt32,
                                                             {{count.merge, 0}, {bound, 0}}));
    MR_ASSIGN_OR_RETURN(Node* const condition,
                        nodes_.Add("LoopCond", "LoopCond", {}, {{goes_on, 0}}));
    MR_RETURN_IF_ERROR(nodes_.Test({condition, 0}, &count));
    for (LoopNodes::Carried& sum : sums) MR_RETURN_IF_ERROR(nodes_.Test({condition, 0}, &sum));
    MR_ASSIGN_OR_RETURN(Node* const pivot,
                        nodes_.AddTyped("Identity", "Identity", kInt32, {count.current}));
    MR_ASSIGN_OR_RETURN(Node* const step, nodes_.Enter(one, frame, /*constant=*/true));
    MR_ASSIGN_OR_RETURN(Node* const rest,
                        nodes_.AddTyped("Sub", "Sub", kInt32, {{pivot, 0}, {step, 0}}));
    MR_ASSIGN_OR_RETURN(Node* const next, nodes_.Next(count, {rest, 0}));
    MR_ASSIGN_OR_RETURN(std::vector<OutputRef> outputs, InlineGradient(frame, sums, pivot, next));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      OutputRef value = outputs[i];
      if (i >= carried_.size()) {
        AttrMap attrs;
        attrs.Set("T", BaseType(sums[i].merge->output_types()[0]));
        attrs.Set("N", int64_t{2});
        MR_ASSIGN_OR_RETURN(Node* const sum,
                            nodes_.Add("AddN", "AddN", std::move(attrs), {sums[i].current, value}));
        value = {sum, 0};
      }
      MR_RETURN_IF_ERROR(nodes_.Next(sums[i], value).status());
      MR_ASSIGN_OR_RETURN(const OutputRef exit, nodes_.Exit(sums[i]));
      exits_.push_back(Output(&state_, exit.node, exit.index));
    }
    return OkStatus();
  }

  StatusOr<std::vector<OutputRef>> InlineGradient(const std::string& frame,
                                                  const std::vector<LoopNodes::Carried>& sums,
                                                  Node* pivot, Node* next) {
    // Only what is used: the rest has no place to come from.
    FunctionBody used;
    used.graph = std::move(gradient_->graph);
    used.name = gradient_->name;
    used.results = gradient_->results;
    InlineSite site;
    site.prefix = StrCat(frame, "/body");
    site.device = loop_.condition->requested_device();
    site.controls = {pivot};
    site.controls_decide = true;
    site.effects = InlineSite::Effects::kNone;
    const auto is_used = [](const Node& arg) {
      return std::any_of(arg.out_edges().begin(), arg.out_edges().end(),
                         [](const Edge* edge) { return edge->dst->IsOp(); });
    };
    for (std::size_t arg = 0; arg < gradient_->args.size(); ++arg) {
      Node* const node = gradient_->args[arg];
      if (!is_used(*node)) {
        used.graph->RemoveNode(node);
        continue;
      }
      node->mutable_attrs().Set("index", static_cast<int64_t>(used.args.size()));
      used.args.push_back(node);
      if (stacks_[arg].node != nullptr) {
        MR_ASSIGN_OR_RETURN(const OutputRef popped, Pop(stacks_[arg], frame, pivot, next));
        site.inputs.push_back(popped);
      } else if (arg < first_dy_) {
        const Node* const enter = loop_.invariants[arg - loop_.variables.size()];
        MR_ASSIGN_OR_RETURN(Node* const again,
                            nodes_.Enter(InputOf(*enter, 0), frame, /*constant=*/true));
        again->set_requested_device(enter->requested_device());
        site.inputs.push_back({again, 0});
        site.invariant.resize(site.inputs.size());
        site.invariant.back() = true;
      } else {
        site.inputs.push_back(sums[arg - first_dy_].current);
      }
    }
    const int first_new = graph_.num_node_ids();
    MR_ASSIGN_OR_RETURN(InlinedBody inlined, InlineBody(used, site, &graph_));
    for (int id = first_new; id < graph_.num_node_ids(); ++id) {
      const Node* const node = graph_.node(id);
      if (node != nullptr) state_.names_in_use.try_emplace(node->name(), 1);
    }
    return std::move(inlined.outputs);
  }

  StatusOr<OutputRef> Pop(const OutputRef& stack, const std::string& frame, Node* pivot,
                          Node* next) {
    MR_ASSIGN_OR_RETURN(Node* const handle, nodes_.Enter(stack, frame, /*constant=*/true));
    AttrMap attrs;
    MR_ASSIGN_OR_RETURN(const DataType type, stack.node->attrs().Get<DataType>("elem_type"));
    attrs.Set("elem_type", type);
    MR_ASSIGN_OR_RETURN(Node* const pop,
                        nodes_.Add("StackPop", "StackPopV2", std::move(attrs), {{handle, 0}}));
    graph_.AddControlEdge(pivot, pop);
    graph_.AddControlEdge(pop, next);
    for (Node* node : {handle, pop}) node->set_requested_device(stack.node->requested_device());
    return OutputRef{pop, 0};
  }

  const std::string& source_;
  const Scope& scope_;
  GraphState& state_;
  DataflowGraph& graph_;
  const Loops& loops_;
  const int index_;
  const Loop& loop_;
  const std::vector<Output>& dys_;
  LoopNodes nodes_;

  std::unique_ptr<FunctionBody> body_, gradient_;
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> twins_;  // of what enters the body
  absl::flat_hash_map<const Node*, Node*> copies_;
  StringMap<Node*> originals_;                 // by name in the body
  std::vector<std::size_t> carried_, summed_;  // variables and invariants with derivatives
  std::size_t first_dy_ = 0;                   // among the arguments of the derivative
  std::vector<OutputRef> kept_;                // outputs of the forward loop: its last arguments
  std::vector<OutputRef> stacks_;              // by argument
  bool writes_ = false;                        // something in the loop may write variables
  OutputRef total_;
  std::vector<Output> exits_;
};

}  // namespace

Status LoopGradient(const std::string& source, const Scope& scope, const Loops& loops, int loop,
                    const std::vector<Output>& dys,
                    const std::function<bool(const Output& source)>& wanted,
                    const std::function<void(const Output& source, const Output& dx)>& add) {
  return LoopDifferentiator(source, scope, loops, loop, dys).Run(wanted, add);
}

}  // namespace millrace
