// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients/find_loops.h"

#include <algorithm>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"

namespace millrace {
namespace {

bool IsEnter(const Node& node) { return node.type() == "Enter" || node.type() == "RefEnter"; }
bool IsExit(const Node& node) { return node.type() == "Exit" || node.type() == "RefExit"; }
bool IsMerge(const Node& node) { return node.type() == "Merge" || node.type() == "RefMerge"; }
bool IsNext(const Node& node) {
  return node.type() == "NextIteration" || node.type() == "RefNextIteration";
}

Status Malformed(const Node& node, std::string_view why) {
  return errors::InvalidArgument("the loop of {{node ", node.name(), "}} is malformed: ", why);
}

// Frames as the executor sees them: an Enter is where its input is, its outputs are inside.
struct Frames {
  std::vector<int> frame_of;  // by node id; 0 is outside of all loops
  std::vector<int> parent;    // by frame
  std::vector<std::string> name;

  int Outermost(int frame) const {
    while (frame > 0 && parent[frame] > 0) frame = parent[frame];
    return frame;
  }
};

Frames AssignFrames(const DataflowGraph& graph, int num_ids) {
  Frames frames;
  frames.frame_of.assign(num_ids, -1);
  frames.parent.push_back(-1);
  frames.name.emplace_back();
  std::vector<const Node*> stack;
  for (int id = 2; id < num_ids; ++id) {
    const Node* const node = graph.node(id);
    if (node == nullptr) continue;
    const bool is_root = std::none_of(node->in_edges().begin(), node->in_edges().end(),
                                      [](const Edge* edge) { return edge->src->IsOp(); });
    if (!is_root) continue;
    frames.frame_of[id] = 0;
    stack.push_back(node);
  }
  while (!stack.empty()) {
    const Node* const node = stack.back();
    stack.pop_back();
    int frame = frames.frame_of[node->id()];
    if (IsEnter(*node)) {
      const std::string name = node->attrs().GetOr<std::string>("frame_name", "");
      int child = 1;
      while (child < static_cast<int>(frames.name.size()) &&
             (frames.name[child] != name || frames.parent[child] != frame)) {
        ++child;
      }
      if (child == static_cast<int>(frames.name.size())) {
        frames.name.push_back(name);
        frames.parent.push_back(frame);
      }
      frame = child;
    } else if (IsExit(*node)) {
      frame = std::max(0, frames.parent[frame]);
    }
    for (const Edge* edge : node->out_edges()) {
      const Node* const dst = edge->dst;
      if (!dst->IsOp() || dst->id() >= num_ids || frames.frame_of[dst->id()] >= 0) continue;
      frames.frame_of[dst->id()] = frame;
      stack.push_back(dst);
    }
  }
  return frames;
}

const Edge* FindConsumer(const Node& node, bool (*is)(const Node&)) {
  for (const Edge* edge : node.out_edges()) {
    if (!edge->IsControl() && edge->dst->IsOp() && is(*edge->dst)) return edge;
  }
  return nullptr;
}

// Enter, Merge, Switch, NextIteration and Exit of one variable.
StatusOr<Loop::Variable> FindVariable(Node* enter) {
  Loop::Variable variable;
  variable.enter = enter;
  const Edge* const to_merge = FindConsumer(*enter, IsMerge);
  if (to_merge == nullptr) return Malformed(*enter, "no Merge behind an Enter");
  variable.merge = to_merge->dst;
  for (const Edge* edge : variable.merge->in_edges()) {
    if (!edge->IsControl() && IsNext(*edge->src)) variable.next = edge->src;
  }
  if (variable.next == nullptr) return Malformed(*variable.merge, "nothing comes back to it");
  for (const Edge* edge : variable.merge->out_edges()) {
    if (edge->IsControl() || edge->src_output != 0 || edge->dst_input != 0) continue;
    const std::string& type = edge->dst->type();
    const Edge* const predicate =
        type == "Switch" || type == "RefSwitch" ? edge->dst->input_edge(1) : nullptr;
    if (predicate != nullptr && predicate->src->type() == "LoopCond") variable.branch = edge->dst;
  }
  if (variable.branch == nullptr) return Malformed(*variable.merge, "no Switch behind it");
  for (const Edge* edge : variable.branch->out_edges()) {
    if (edge->src_output == 0 && edge->dst->IsOp() && IsExit(*edge->dst)) variable.exit = edge->dst;
  }
  return variable;
}

}  // namespace

Loops FindLoops(const DataflowGraph& graph, int num_ids) {
  Loops found;
  found.loop_of.assign(num_ids, -1);
  bool any = false;
  for (int id = 2; id < num_ids && !any; ++id) {
    any = graph.node(id) != nullptr && IsEnter(*graph.node(id));
  }
  if (!any) return found;
  const Frames frames = AssignFrames(graph, num_ids);
  absl::flat_hash_map<int, int> loop_of_frame;
  for (int id = 2; id < num_ids; ++id) {
    Node* const node = graph.node(id);
    if (node == nullptr || frames.frame_of[id] < 0) continue;
    int frame = frames.Outermost(frames.frame_of[id]);
    const bool enters = frame == 0 && IsEnter(*node);
    if (enters) {
      const std::string name = node->attrs().GetOr<std::string>("frame_name", "");
      for (frame = 1; frames.name[frame] != name || frames.parent[frame] != 0;) ++frame;
    }
    if (frame == 0) continue;
    const auto [slot, is_new] =
        loop_of_frame.try_emplace(frame, static_cast<int>(found.loops.size()));
    if (is_new) {
      found.loops.emplace_back();
      found.loops.back().frame = frames.name[frame];
    }
    Loop& loop = found.loops[slot->second];
    found.loop_of[id] = slot->second;
    if (!enters) continue;
    loop.parallel_iterations = node->attrs().GetOr<int64_t>("parallel_iterations", 10);
    if (node->attrs().GetOr<bool>("is_constant", false)) {
      loop.invariants.push_back(node);
      continue;
    }
    const StatusOr<Loop::Variable> variable = FindVariable(node);
    if (!variable.ok()) {
      if (loop.well_formed.ok()) loop.well_formed = variable.status();
      continue;
    }
    loop.condition = variable->branch->input_edge(1)->src;
    loop.variables.push_back(*variable);
  }
  return found;
}

}  // namespace millrace
