// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients/loop_nodes.h"

#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {

StatusOr<Node*> LoopNodes::Add(std::string_view name, std::string_view op, AttrMap attrs,
                               std::initializer_list<OutputRef> inputs) {
  DataflowGraph& graph = *state_.graph;
  MR_ASSIGN_OR_RETURN(Node* const node, graph.AddNode(state_.UniqueName(StrCat(prefix_, "/", name)),
                                                      op, std::move(attrs)));
  node->set_requested_device(like_->requested_device());
  node->set_origin(like_->origin());
  int slot = 0;
  for (const OutputRef& input : inputs) {
    MR_RETURN_IF_ERROR(graph.AddEdge(input.node, input.index, node, slot++).status());
  }
  MR_RETURN_IF_ERROR(state_.shapes.AddNode(node));
  return node;
}

StatusOr<Node*> LoopNodes::AddTyped(std::string_view name, std::string_view op, DataType type,
                                    std::initializer_list<OutputRef> inputs) {
  AttrMap attrs;
  attrs.Set("T", BaseType(type));
  return Add(name, op, std::move(attrs), inputs);
}

StatusOr<Node*> LoopNodes::Enter(const OutputRef& source, const std::string& frame, bool constant) {
  AttrMap attrs;
  attrs.Set("T", BaseType(source.node->output_types()[source.index]));
  attrs.Set("frame_name", frame);
  attrs.Set("is_constant", constant);
  attrs.Set("parallel_iterations", parallel_iterations_);
  return Add("Enter", "Enter", std::move(attrs), {source});
}

StatusOr<LoopNodes::Carried> LoopNodes::Carry(const OutputRef& source, const std::string& frame) {
  MR_ASSIGN_OR_RETURN(Node* const enter, Enter(source, frame, /*constant=*/false));
  AttrMap attrs;
  attrs.Set("T", enter->output_types()[0]);
  attrs.Set("N", int64_t{2});
  Carried carried;
  MR_ASSIGN_OR_RETURN(carried.merge, Add("Merge", "Merge", std::move(attrs), {{enter, 0}}));
  return carried;
}

Status LoopNodes::Test(const OutputRef& condition, Carried* carried) {
  MR_ASSIGN_OR_RETURN(carried->branch,
                      AddTyped("Switch", "Switch", carried->merge->output_types()[0],
                               {{carried->merge, 0}, condition}));
  carried->current = {carried->branch, 1};
  return OkStatus();
}

StatusOr<Node*> LoopNodes::Next(const Carried& carried, const OutputRef& value) {
  MR_ASSIGN_OR_RETURN(Node* const next, AddTyped("NextIteration", "NextIteration",
                                                 carried.merge->output_types()[0], {value}));
  MR_RETURN_IF_ERROR(state_.graph->AddEdge(next, 0, carried.merge, 1).status());
  return next;
}

StatusOr<OutputRef> LoopNodes::Exit(const Carried& carried) {
  MR_ASSIGN_OR_RETURN(Node* const exit, AddTyped("Exit", "Exit", carried.merge->output_types()[0],
                                                 {{carried.branch, 0}}));
  return OutputRef{exit, 0};
}

}  // namespace millrace
