// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients/popped_values.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/gradients/find_loops.h"
#include "graph/gradients/loop_nodes.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

// Null if the node has no such input, or one of another type than `op`.
Node* SourceOfType(const Node& node, int input, std::string_view op) {
  if (input >= node.num_inputs()) return nullptr;
  const Edge* const edge = node.input_edge(input);
  return edge != nullptr && edge->src->type() == op ? edge->src : nullptr;
}

// The data input of the NextIteration that runs after `node`, if that is an `op` of int32.
Node* CountAfter(const Node& node, std::string_view op) {
  for (const Edge* edge : node.out_edges()) {
    if (!edge->IsControl() || edge->dst->type() != "NextIteration") continue;
    Node* const count = SourceOfType(*edge->dst, 0, op);
    if (count != nullptr && BaseType(count->output_types()[0]) == kInt32) return count;
  }
  return nullptr;
}

// A pop and the push that it answers, as LoopGradient makes them: in iteration i of the one loop
// and in the one of the other loop that counts down to i.
struct Popped {
  Node* pop = nullptr;
  Node* stack = nullptr;
  Node* push = nullptr;
  Node* handle_of_pop = nullptr;  // the Enters
  Node* handle_of_push = nullptr;
  Node* index_of_pop = nullptr;  // nodes of an int32
  Node* index_of_push = nullptr;
  Node* condition_of_push = nullptr;  // the LoopCond
};

std::optional<Popped> FindPush(Node* pop) {
  Popped found;
  found.pop = pop;
  found.handle_of_pop = SourceOfType(*pop, 0, "Enter");
  if (found.handle_of_pop == nullptr) return std::nullopt;
  found.stack = SourceOfType(*found.handle_of_pop, 0, "StackV2");
  found.index_of_pop = CountAfter(*pop, "Sub");
  if (found.stack == nullptr || found.index_of_pop == nullptr) return std::nullopt;
  for (const Edge* to_loop : found.stack->out_edges()) {
    if (to_loop->dst->type() != "Enter") continue;
    for (const Edge* edge : to_loop->dst->out_edges()) {
      if (edge->dst->type() != "StackPushV2") continue;
      if (found.push != nullptr) return std::nullopt;
      found.push = edge->dst;
      found.handle_of_push = to_loop->dst;
    }
  }
  if (found.push == nullptr) return std::nullopt;
  const Node* const sum = CountAfter(*found.push, "AddV2");
  if (sum == nullptr) return std::nullopt;
  found.index_of_push = SourceOfType(*sum, 0, "Identity");
  if (found.index_of_push == nullptr) return std::nullopt;
  const Node* const branch = SourceOfType(*found.index_of_push, 0, "Switch");
  found.condition_of_push = branch == nullptr ? nullptr : SourceOfType(*branch, 1, "LoopCond");
  return found.condition_of_push == nullptr ? std::nullopt : std::optional(found);
}

std::string FrameOf(const Node& enter) {
  return enter.attrs().GetOr<std::string>("frame_name", "");
}
int64_t ParallelIterationsOf(const Node& enter) {
  return enter.attrs().GetOr<int64_t>("parallel_iterations", 10);
}

class ArrayInstead {
 public:
  ArrayInstead(const Scope& scope, const Popped& popped)
      : scope_(scope.WithoutControlDependencies()),
        state_(scope.graph()),
        popped_(popped),
        type_(BaseType(popped.pop->output_types()[0])) {}

  // The node that reads what the pop gives, in the pop's loop.
  StatusOr<Node*> Run() {
    MR_RETURN_IF_ERROR(Write());
    LoopNodes nodes(state_, popped_.pop, ParallelIterationsOf(*popped_.handle_of_pop),
                    popped_.pop->name());
    const std::string frame = FrameOf(*popped_.handle_of_pop);
    MR_ASSIGN_OR_RETURN(Node* const handle, nodes.Enter({array_, 0}, frame, /*constant=*/true));
    MR_ASSIGN_OR_RETURN(Node* const flow, nodes.Enter(written_, frame, /*constant=*/true));
    AttrMap attrs;
    attrs.Set("dtype", type_);
    return nodes.Add("read", "TensorArrayReadV3", std::move(attrs),
                     {{handle, 0}, {popped_.index_of_pop, 0}, {flow, 0}});
  }

 private:
  // Into the array whatever is pushed, by the number of the iteration.
  Status Write() {
    const Node& push = *popped_.push;
    LoopNodes nodes(state_, popped_.stack, ParallelIterationsOf(*popped_.handle_of_push),
                    popped_.stack->name());
    const Output none = ops::Const(scope_, Tensor::Scalar<int32_t>(0), kInt32);
    MR_RETURN_IF_ERROR(scope_.status());
    // A loop that makes the stack in each of its iterations makes the array so.
    state_->graph->AddControlEdge(popped_.stack, none.op().node());
    AttrMap attrs;
    attrs.Set("dtype", type_);
    attrs.Set("dynamic_size", true);
    attrs.Set("clear_after_read", false);
    MR_ASSIGN_OR_RETURN(array_, nodes.Add("array", "TensorArrayV3", std::move(attrs),
                                          {{none.op().node(), none.index()}}));
    const std::string frame = FrameOf(*popped_.handle_of_push);
    const OutputRef condition = {popped_.condition_of_push, 0};
    MR_ASSIGN_OR_RETURN(Node* const handle, nodes.Enter({array_, 0}, frame, /*constant=*/true));
    MR_ASSIGN_OR_RETURN(LoopNodes::Carried flow, nodes.Carry({array_, 1}, frame));
    MR_RETURN_IF_ERROR(nodes.Test(condition, &flow));
    const Edge* const value = push.input_edge(1);
    AttrMap of_write;
    of_write.Set("T", type_);
    MR_ASSIGN_OR_RETURN(Node* const write,
                        nodes.Add("write", "TensorArrayWriteV3", std::move(of_write),
                                  {{handle, 0},
                                   {popped_.index_of_push, 0},
                                   {value->src, value->src_output},
                                   flow.current}));
    MR_RETURN_IF_ERROR(nodes.Next(flow, {write, 0}).status());
    MR_ASSIGN_OR_RETURN(written_, nodes.Exit(flow));
    return OkStatus();
  }

  const Scope scope_;
  GraphState* const state_;
  const Popped& popped_;
  const DataType type_;
  Node* array_ = nullptr;
  OutputRef written_;
};

class Search {
 public:
  Search(const Scope& scope, std::span<const Output> xs)
      : scope_(scope), graph_(*scope.graph()->graph), xs_(xs) {}

  Status Run(std::span<const Output> ys) {
    for (const Output& y : ys) Visit(y.op().node());
    while (!stack_.empty()) {
      Node* const node = stack_.back();
      stack_.pop_back();
      if (IsX(node)) continue;
      if (node->type() == "StackPopV2") MR_RETURN_IF_ERROR(Replace(node));
      for (const Edge* edge : node->in_edges()) {
        // Within a loop what is only waited for runs again as well.
        if (!edge->IsControl() || (edge->src->IsOp() && IsInLoop(*edge->src))) Visit(edge->src);
      }
    }
    return OkStatus();
  }

 private:
  void Visit(Node* node) {
    if (node->IsOp() && seen_.insert(node).second) stack_.push_back(node);
  }
  bool IsX(const Node* node) const {
    return std::any_of(xs_.begin(), xs_.end(),
                       [&](const Output& x) { return x.op().node() == node; });
  }
  bool IsInLoop(const Node& node) {
    const bool is_new = node.id() >= static_cast<int>(loops_.loop_of.size());
    if (is_new) loops_ = FindLoops(graph_, graph_.num_node_ids());
    return loops_.loop_of[node.id()] >= 0;
  }

  Status Replace(Node* pop) {
    const std::optional<Popped> popped = FindPush(pop);
    if (!popped) return OkStatus();
    std::vector<Edge*> edges;
    for (Edge* edge : pop->out_edges()) {
      if (!edge->IsControl() && edge->dst->IsOp()) edges.push_back(edge);
    }
    MR_ASSIGN_OR_RETURN(Node* const read, ArrayInstead(scope_, *popped).Run());
    for (Edge* edge : edges) {
      Node* const dst = edge->dst;
      const int slot = edge->dst_input;
      graph_.RemoveEdge(edge);
      MR_RETURN_IF_ERROR(graph_.AddEdge(read, 0, dst, slot).status());
    }
    Visit(read);
    return OkStatus();
  }

  const Scope& scope_;
  DataflowGraph& graph_;
  const std::span<const Output> xs_;
  Loops loops_;
  std::vector<Node*> stack_;
  absl::flat_hash_set<const Node*> seen_;
};

}  // namespace

Status ReadPoppedValuesFromArrays(const Scope& scope, std::span<const Output> ys,
                                  std::span<const Output> xs) {
  return Search(scope, xs).Run(ys);
}

}  // namespace millrace
