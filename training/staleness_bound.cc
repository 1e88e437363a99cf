// SPDX-License-Identifier: Apache-2.0
#include "millrace/staleness_bound.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/dataflow_graph.h"

namespace millrace {
namespace {

// What reads the variable does so after `enter`.
void ReadAfter(const Operation& enter, const Variable& variable) {
  DataflowGraph* const graph = enter.graph()->graph.get();
  const std::vector<const Edge*> edges(variable.handle.op().node()->out_edges().begin(),
                                       variable.handle.op().node()->out_edges().end());
  for (const Edge* edge : edges) {
    if (edge->IsControl()) continue;
    if (edge->dst->type() == "Identity" || edge->dst->type() == "ReadVariableOp") {
      graph->AddControlEdge(enter.node(), edge->dst);
    }
  }
}

Operation FindEnter(const Scope& scope) {
  for (Node* node : scope.graph()->graph->OpNodes()) {
    if (node->type() == "_StalenessEnter") return Operation(scope.graph(), node);
  }
  return Operation();
}

}  // namespace

StalenessBound::StalenessBound(std::unique_ptr<Optimizer> inner,
                               const StalenessBoundOptions& options)
    : inner_(std::move(inner)), options_(options) {}
StalenessBound::~StalenessBound() = default;

StatusOr<Operation> StalenessBound::ApplyGradients(const Scope& outer,
                                                   std::span<const GradientAndVariable> gradients,
                                                   const Variable* global_step,
                                                   std::source_location where) {
  if (inner_ == nullptr) {
    return errors::InvalidArgument("StalenessBound was given no optimizer");
  }
  if (global_step == nullptr) {
    return errors::InvalidArgument("a staleness bound is kept beside the global step: give one");
  }
  if (options_.bound < 0) {
    return errors::InvalidArgument("a staleness bound must not be negative, is ", options_.bound);
  }
  const Scope scope = outer.CalledFrom(where);
  const Scope s = scope.Named("staleness_bound");
  const Scope beside = s.WithoutControlDependencies().ColocateWith(global_step->handle);
  const auto add = [&](const Scope& at, std::string_view op, std::string_view name) {
    return at.WithOpName(name).AddOp(op, {},
                                     {{"bound", options_.bound},
                                      {"shared_name", std::string("staleness_bound")},
                                      {"worker", options_.worker}},
                                     where);
  };
  // A step enters once, whatever it updates then.
  Operation enter = FindEnter(scope);
  if (!enter.valid()) enter = add(beside, "_StalenessEnter", "enter");
  MR_RETURN_IF_ERROR(s.status());
  // Once they are there: what waits for its turn holds up nobody who has one.
  std::vector<Operation> computed;
  for (const GradientAndVariable& g : gradients) {
    if (!g.gradient.valid()) continue;
    ReadAfter(enter, g.variable);
    computed.push_back(g.gradient.op());
  }
  const Operation ready = Group(s.WithOpName("ready"), computed);
  const Operation commit =
      add(beside.WithControlDependencies({enter, ready}), "_StalenessCommit", "commit");
  std::vector<GradientAndVariable> in_turn(gradients.begin(), gradients.end());
  for (GradientAndVariable& g : in_turn) {
    if (!g.gradient.valid()) continue;
    g.gradient = ops::Identity(s.ColocateWith(g.variable.handle).WithControlDependencies({commit}),
                               g.gradient);
  }
  MR_RETURN_IF_ERROR(s.status());
  MR_ASSIGN_OR_RETURN(const Operation update, inner_->ApplyGradients(scope, in_turn, global_step));
  const Operation train =
      add(beside.WithControlDependencies({update}), "_StalenessFinish", "train");
  MR_RETURN_IF_ERROR(s.status());
  return train;
}

}  // namespace millrace
