// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "frontend/loop_builder.h"
#include "millrace/control_flow.h"
#include "millrace/ops.h"

namespace millrace {

// Of frontend/function_scope.h.
StatusOr<Output> BroughtInside(GraphState* graph, const Output& output);

namespace {

// Replaces the data edges that come into the nodes from `first_id` on from before them.
class Crossings {
 public:
  using Bridge = std::function<Output(const Output& from)>;

  Crossings(GraphState* state, int first_id, Bridge bridge)
      : state_(state), first_id_(first_id), bridge_(std::move(bridge)) {}

  // A node of these without inputs (a constant) counts as outside too if `roots_too`.
  Status Run(bool roots_too) {
    DataflowGraph& graph = *state_->graph;
    const int end = graph.num_node_ids();
    for (int id = first_id_; id < end; ++id) {
      Node* const node = graph.node(id);
      if (node == nullptr) continue;
      std::vector<Edge*> edges;
      for (Edge* edge : node->in_edges()) {
        if (!edge->IsControl() && IsOutside(*edge->src, roots_too)) edges.push_back(edge);
      }
      for (Edge* edge : edges) {
        const Output from(state_, edge->src, edge->src_output);
        const int slot = edge->dst_input;
        graph.RemoveEdge(edge);
        const Output inside = Get(from);
        MR_RETURN_IF_ERROR(state_->status);
        MR_RETURN_IF_ERROR(graph.AddEdge(inside.op().node(), inside.index(), node, slot).status());
      }
    }
    return OkStatus();
  }
  // What stands for this output among the nodes.
  Output Get(const Output& from) {
    Output& inside = bridges_[{from.op().node()->id(), from.index()}];
    if (!inside.valid()) inside = bridge_(from);
    return inside;
  }
  bool IsOutside(const Node& node, bool roots_too) const {
    if (node.id() < first_id_) return true;
    return roots_too && std::none_of(node.in_edges().begin(), node.in_edges().end(),
                                     [](const Edge* edge) { return edge->src->IsOp(); });
  }

 private:
  GraphState* const state_;
  const int first_id_;
  const Bridge bridge_;
  std::map<std::pair<int, int>, Output> bridges_;
};

bool AllValid(std::span<const Output> outputs) {
  return std::all_of(outputs.begin(), outputs.end(),
                     [](const Output& output) { return output.valid(); });
}

// Nodes of a branch are made where the program makes them, all others where it called Cond.
StatusOr<std::vector<Output>> BuildCond(const Scope& outer, const Output& pred,
                                        const BranchBuilder& then_branch,
                                        const BranchBuilder& else_branch,
                                        std::source_location where) {
  const Scope scope = outer.CalledFrom(where);
  GraphState* const state = scope.graph();
  const auto pivots = ops::Switch(scope, pred, pred);
  MR_RETURN_IF_ERROR(scope.status());
  std::vector<std::vector<Output>> results(2);
  for (const bool taken : {false, true}) {
    const Output side = taken ? pivots.output_true : pivots.output_false;
    const Output pivot = ops::Identity(scope.WithOpName(taken ? "pivot_t" : "pivot_f"), side);
    MR_RETURN_IF_ERROR(scope.status());
    const Scope inside = outer.Named(taken ? "then" : "else").WithControlDependencies({pivot.op()});
    const int first_id = state->graph->num_node_ids();
    std::vector<Output> outputs = (taken ? then_branch : else_branch)(inside);
    MR_RETURN_IF_ERROR(scope.status());
    if (!AllValid(outputs)) return errors::InvalidArgument("a branch gives an invalid output");
    Crossings crossings(state, first_id, [&](const Output& from) {
      const auto switched = ops::Switch(scope, from, pred);
      return taken ? switched.output_true : switched.output_false;
    });
    MR_RETURN_IF_ERROR(crossings.Run(/*roots_too=*/false));
    for (Output& output : outputs) {
      const bool foreign = output.op().graph() != state;  // captured by the body around
      MR_ASSIGN_OR_RETURN(output, BroughtInside(state, output));
      if (foreign || crossings.IsOutside(*output.op().node(), false)) {
        output = crossings.Get(output);
      }
    }
    MR_RETURN_IF_ERROR(scope.status());
    results[taken ? 1 : 0] = std::move(outputs);
  }
  if (results[0].size() != results[1].size()) {
    return errors::InvalidArgument("the branches of a Cond give ", results[1].size(), " and ",
                                   results[0].size(), " outputs");
  }
  std::vector<Output> merged;
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    merged.push_back(ops::Merge(scope, {results[0][i], results[1][i]}).output);
  }
  MR_RETURN_IF_ERROR(scope.status());
  return merged;
}

class LoopBuilder {
 public:
  // As of a Cond: what the program makes is made there, all else at `where`.
  LoopBuilder(const Scope& outer, const WhileOptions& options, std::source_location where)
      : outer_(outer), scope_(outer.CalledFrom(where)), state_(outer.graph()), options_(options) {
    frame_ = options.frame_name.empty() ? state_->UniqueName("while_frame") : options.frame_name;
  }

  // `arrays` gets those of what the body keeps, each of `count` elements.
  StatusOr<std::vector<Output>> Run(const std::vector<Output>& initial,
                                    const LoopCondition& condition, const KeepingBody& body,
                                    const Output& count, std::vector<TensorArray>* arrays) {
    if (initial.empty()) return errors::InvalidArgument("a loop needs at least one variable");
    if (!AllValid(initial)) return errors::InvalidArgument("an initial value is not valid");
    std::vector<Output> merged;
    for (const Output& value : initial) {
      const Output enter = Enter(value, /*constant=*/false);
      MR_RETURN_IF_ERROR(scope_.status());
      MR_ASSIGN_OR_RETURN(Node* const merge, AddMerge(enter));
      merged.push_back(Output(state_, merge, 0));
    }
    const Scope inside = scope_.WithoutControlDependencies();
    const Scope theirs = outer_.WithoutControlDependencies();
    const int first_id = state_->graph->num_node_ids();
    const Output goes_on =
        condition(theirs.Named("cond").WithControlDependencies({merged[0].op()}), merged);
    MR_RETURN_IF_ERROR(scope_.status());
    if (!goes_on.valid()) return errors::InvalidArgument("the condition of a loop is not valid");
    const Output loop_cond = ops::LoopCond(inside, goes_on);
    std::vector<Output> current, last;
    for (const Output& value : merged) {
      const auto switched = ops::Switch(inside, value, loop_cond);
      current.push_back(ops::Identity(inside, switched.output_true));
      last.push_back(switched.output_false);
    }
    MR_RETURN_IF_ERROR(scope_.status());
    KeptOutputs kept;
    const std::vector<Output> next =
        body(theirs.Named("body").WithControlDependencies({current[0].op()}), current, &kept);
    MR_RETURN_IF_ERROR(scope_.status());
    if (next.size() != initial.size() || !AllValid(next)) {
      return errors::InvalidArgument("the body of a loop over ", initial.size(),
                                     " variables gives ", next.size(), " valid values");
    }
    std::vector<Output> exits;
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (BaseType(next[i].dtype()) != BaseType(initial[i].dtype())) {
        return errors::InvalidArgument(
            "variable ", i, " of a loop starts as ", DataTypeName(BaseType(initial[i].dtype())),
            ", but its body gives ", DataTypeName(BaseType(next[i].dtype())));
      }
      const Output back = ops::NextIteration(inside, next[i]);
      MR_RETURN_IF_ERROR(scope_.status());
      MR_RETURN_IF_ERROR(
          state_->graph->AddEdge(back.op().node(), 0, merged[i].op().node(), 1).status());
    }
    for (Output& value : kept.values) {
      MR_ASSIGN_OR_RETURN(value, BroughtInside(state_, value));
    }
    Crossings crossings(state_, first_id, [&](const Output& from) {
      return IsMergeOfThisFrame(from.op().node()) ? from : Enter(from, /*constant=*/true);
    });
    MR_RETURN_IF_ERROR(BringInside(first_id, &crossings));
    // A control input from outside would be one from another frame.
    for (const Output& value : last) exits.push_back(ops::Exit(inside, value));
    for (Output& value : kept.values) {
      if (crossings.IsOutside(*value.op().node(), true)) value = crossings.Get(value);
      MR_ASSIGN_OR_RETURN(TensorArray array, Keep(inside, kept.index, value, loop_cond, count));
      arrays->push_back(std::move(array));
    }
    MR_RETURN_IF_ERROR(scope_.status());
    return exits;
  }

 private:
  Output Enter(const Output& value, bool constant) {
    const Output enter =
        ops::Enter(scope_, value, frame_,
                   {.is_constant = constant, .parallel_iterations = options_.parallel_iterations});
    if (enter.valid()) enters_.push_back(enter.op().node());
    return enter;
  }

  // Its second input does not exist yet, which no wrapper allows.
  StatusOr<Node*> AddMerge(const Output& enter) {
    AttrMap attrs;
    attrs.Set("T", enter.dtype());
    attrs.Set("N", int64_t{2});
    const std::string name = state_->UniqueName(StrCat(enter.op().name(), "/Merge"));
    MR_ASSIGN_OR_RETURN(Node* const merge, state_->graph->AddNode(name, "Merge", std::move(attrs)));
    merge->set_requested_device(enter.op().device());
    merge->set_origin(enter.op().node()->origin());
    MR_RETURN_IF_ERROR(state_->graph->AddEdge(enter.op().node(), 0, merge, 0).status());
    MR_RETURN_IF_ERROR(state_->shapes.AddNode(merge));
    return merge;
  }

  // What the loop takes from outside is the same in every iteration. The edges of its own
  // variables come from nodes of the frame, however old.
  Status BringInside(int first_id, Crossings* crossings) {
    MR_RETURN_IF_ERROR(crossings->Run(/*roots_too=*/true));
    // What a node inside shall run after, all of the loop runs after.
    for (int id = first_id; id < state_->graph->num_node_ids(); ++id) {
      const Node* const node = state_->graph->node(id);
      if (node == nullptr || IsEnterOfThisFrame(node)) continue;
      std::vector<Edge*> from_outside;
      for (Edge* edge : node->in_edges()) {
        if (edge->IsControl() && edge->src->IsOp() && edge->src->id() < first_id &&
            !IsMergeOfThisFrame(edge->src)) {
          from_outside.push_back(edge);
        }
      }
      for (Edge* edge : from_outside) {
        Node* const before = edge->src;
        state_->graph->RemoveEdge(edge);
        for (Node* enter : enters_) state_->graph->AddControlEdge(before, enter);
      }
    }
    return OkStatus();
  }
  // One more variable, the flow of an array that is written to in every iteration. Made when all
  // edges from outside are: its nodes are wired as they shall be.
  StatusOr<TensorArray> Keep(const Scope& inside, const Output& index, const Output& value,
                             const Output& loop_cond, const Output& count) {
    const TensorArray array(scope_, value.dtype(), count, {.element_shape = value.shape()});
    const Output handle = Enter(array.handle(), /*constant=*/true);
    const Output enter = Enter(array.flow(), /*constant=*/false);
    MR_RETURN_IF_ERROR(scope_.status());
    MR_ASSIGN_OR_RETURN(Node* const merge, AddMerge(enter));
    const auto switched = ops::Switch(inside, Output(state_, merge, 0), loop_cond);
    const Output flow = ops::TensorArrayWriteV3(inside, handle, index, value, switched.output_true);
    const Output back = ops::NextIteration(inside, flow);
    MR_RETURN_IF_ERROR(scope_.status());
    MR_RETURN_IF_ERROR(state_->graph->AddEdge(back.op().node(), 0, merge, 1).status());
    return array.After(ops::Exit(inside, switched.output_false));
  }

  bool IsEnterOfThisFrame(const Node* node) const {
    return std::find(enters_.begin(), enters_.end(), node) != enters_.end();
  }
  // The Merges were made before what is inside, straight after the Enters that they belong to.
  bool IsMergeOfThisFrame(const Node* node) const {
    return node->type() == "Merge" && IsEnterOfThisFrame(node->input_edge(0)->src);
  }

  const Scope outer_;
  const Scope scope_;
  GraphState* const state_;
  const WhileOptions& options_;
  std::string frame_;
  std::vector<Node*> enters_;
};

std::vector<Output> ValueOr(StatusOr<std::vector<Output>> built, const Scope& scope,
                            std::source_location where) {
  if (built.ok()) return *std::move(built);
  scope.RecordError(built.status(), where);
  return {};
}

}  // namespace

std::vector<Output> Cond(const Scope& scope, const Output& pred, const BranchBuilder& then_branch,
                         const BranchBuilder& else_branch, std::source_location where) {
  if (!scope.status().ok()) return {};
  return ValueOr(BuildCond(scope.Named("cond"), pred, then_branch, else_branch, where), scope,
                 where);
}

std::vector<Output> WhileLoop(const Scope& scope, const std::vector<Output>& initial,
                              const LoopCondition& condition, const LoopBody& body,
                              const WhileOptions& options, std::source_location where) {
  if (!scope.status().ok()) return {};
  const KeepingBody keeps_nothing = [&](const Scope& inside, std::span<const Output> variables,
                                        KeptOutputs*) { return body(inside, variables); };
  return ValueOr(LoopBuilder(scope.Named("while"), options, where)
                     .Run(initial, condition, keeps_nothing, Output(), nullptr),
                 scope, where);
}

StatusOr<std::vector<Output>> BuildKeepingLoop(
    const Scope& scope, const std::vector<Output>& initial, const LoopCondition& condition,
    const KeepingBody& body, const Output& count, const WhileOptions& options,
    std::source_location where, std::vector<TensorArray>* arrays) {
  return LoopBuilder(scope, options, where).Run(initial, condition, body, count, arrays);
}

}  // namespace millrace
