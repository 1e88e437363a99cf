// SPDX-License-Identifier: Apache-2.0
#include "planner/how_often.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "partitioner/control_flow.h"
#include "planner/node_order.h"

namespace millrace {
namespace {

// Beyond this, nodes are said to run maybe.
constexpr std::size_t kDeepest = 64;

template <typename Set>
void Add(const Set& more, std::set<int>* all) {
  all->insert(more.begin(), more.end());
}

}  // namespace

StepCount::StepCount(const DataflowGraph& graph)
    : outcomes_(graph.num_node_ids()),
      predicate_(graph.num_node_ids(), -1),
      in_loop_(graph.num_node_ids()),
      leaves_loops_(graph.num_node_ids()) {
  if (!HasControlFlow(graph)) return;
  const StatusOr<std::vector<FrameOfNode>> frames = FindFrames(graph);
  for (const Node* node : graph.OpNodes()) {
    const int id = node->id();
    in_loop_[id] = !frames.ok() || !(*frames)[id].name.empty();
    leaves_loops_[id] = frames.ok() && IsExit(*node) && in_loop_[id] &&
                        (*frames)[id].parent != nullptr &&
                        (*frames)[(*frames)[id].parent->id()].name.empty();
    if (IsSwitch(*node)) predicate_[id] = PredicateOf(*node);
  }
  for (const Node* node : InOrder(graph)) {
    Outcomes all = IsMerge(*node) ? OfMerge(*node) : OfInputs(*node);
    // What is decided inside of a loop is not decided in the step.
    if (IsExit(*node)) std::erase_if(all, [this](int o) { return o >= 0 && in_loop_[o / 2]; });
    if (all.size() > kDeepest) all = {kUndecided};
    outcomes_[node->id()] = std::move(all);
  }
}

// The node that computes it, before any copies.
int StepCount::PredicateOf(const Node& switch_node) const {
  const Edge* edge = switch_node.num_inputs() > 1 ? switch_node.input_edge(1) : nullptr;
  while (edge != nullptr && edge->src->type() == "Identity") edge = edge->src->input_edge(0);
  return edge == nullptr ? switch_node.id() : edge->src->id();
}

StepCount::Outcomes StepCount::OfOutput(const Node& node, int output) const {
  std::set<int> all;
  Add(outcomes_[node.id()], &all);
  if (output >= 0 && predicate_[node.id()] >= 0) all.insert(2 * predicate_[node.id()] + output);
  return Outcomes(all.begin(), all.end());
}

StepCount::Outcomes StepCount::OfInputs(const Node& node) const {
  std::set<int> all;
  for (const Edge* edge : node.in_edges()) Add(OfOutput(*edge->src, edge->src_output), &all);
  return Outcomes(all.begin(), all.end());
}

StepCount::Outcomes StepCount::OfMerge(const Node& node) const {
  std::vector<Outcomes> inputs;
  std::set<int> result;
  for (const Edge* edge : node.in_edges()) {
    if (edge->IsControl()) {
      Add(outcomes_[edge->src->id()], &result);
    } else if (!IsNextIteration(*edge->src)) {
      inputs.push_back(OfOutput(*edge->src, edge->src_output));
    }
  }
  if (inputs.size() == 1) {
    Add(inputs[0], &result);
  } else if (inputs.size() == 2) {
    Outcomes common, first, second;
    std::set_intersection(inputs[0].begin(), inputs[0].end(), inputs[1].begin(), inputs[1].end(),
                          std::back_inserter(common));
    std::set_difference(inputs[0].begin(), inputs[0].end(), common.begin(), common.end(),
                        std::back_inserter(first));
    std::set_difference(inputs[1].begin(), inputs[1].end(), common.begin(), common.end(),
                        std::back_inserter(second));
    Add(common, &result);
    const bool are_opposites =
        first.size() == 1 && second.size() == 1 && first[0] >= 0 && (first[0] ^ 1) == second[0];
    if (!are_opposites) result.insert(kUndecided);
  } else {
    result.insert(kUndecided);
  }
  return Outcomes(result.begin(), result.end());
}

HowOften StepCount::output(const Node& node, int output) const {
  if (in_loop_[node.id()] && !leaves_loops_[node.id()]) return HowOften::kLoop;
  return OfOutput(node, output).empty() ? HowOften::kOnce : HowOften::kMaybe;
}

}  // namespace millrace
