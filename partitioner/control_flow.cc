// SPDX-License-Identifier: Apache-2.0
#include "partitioner/control_flow.h"

#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "millrace/tensor.h"

namespace millrace {
namespace {

constexpr std::string_view kControlLoopPrefix = "_cloop";

bool IsOneOf(const Node& node, std::string_view plain, std::string_view ref) {
  return node.type() == plain || node.type() == ref;
}

StatusOr<std::string_view> FrameName(const Node& enter) {
  const AttrValue* attr = enter.attrs().Find("frame_name");
  const std::string* name = attr == nullptr ? nullptr : attr->get_if<std::string>();
  if (name == nullptr || name->empty()) {
    return errors::InvalidArgument("The Enter {{node ", enter.name(), "}} must have a frame name.");
  }
  return std::string_view(*name);
}

// The frame in which a node's inputs are made, and that of its outputs.
const Node* InputFrame(const Node& node, const std::vector<FrameOfNode>& frames) {
  return IsEnter(node) ? frames[node.id()].parent : frames[node.id()].frame;
}
const Node* OutputFrame(const Node& node, const std::vector<FrameOfNode>& frames) {
  return IsExit(node) ? frames[node.id()].parent : frames[node.id()].frame;
}

Status DifferentFrames(const Node& node, const Node& input, std::string_view frame,
                       const Node* earlier, std::string_view earlier_frame) {
  const auto made_at = [](const Node& n) {
    return n.origin().empty() ? std::string() : StrCat(" (made at ", n.origin(), ")");
  };
  return errors::InvalidArgument(
      "{{node ", node.name(), "}}", made_at(node),
      " has inputs from different frames. The input {{node ", input.name(), "}}", made_at(input),
      " is in frame '", frame, "'. The input {{node ", earlier == nullptr ? "" : earlier->name(),
      "}}", earlier == nullptr ? "" : made_at(*earlier), " is in frame '", earlier_frame,
      "'. What is made in the body of a loop exists there only: return it from the body as a "
      "variable of the loop, and use what the loop returns.");
}

// Depth first from the source as TensorFlow walks, because the order decides: a node takes
// the device that its neighbour has by then.
void Recolocate(DataflowGraph* graph) {
  const auto visit = [](Node* node) {
    if (IsSwitch(*node) || IsExit(*node)) {
      const Edge* edge = node->num_inputs() > 0 ? node->input_edge(0) : nullptr;
      if (edge != nullptr) node->set_assigned_device(edge->src->assigned_device());
    } else if ((IsEnter(*node) && node->num_inputs() > 0 && !IsRefType(node->input_types()[0])) ||
               IsNextIteration(*node)) {
      for (const Edge* edge : node->out_edges()) {
        if (edge->IsControl()) continue;
        node->set_assigned_device(edge->dst->assigned_device());
        break;
      }
    }
  };
  std::vector<bool> visited(graph->num_node_ids());
  std::vector<Node*> stack = {graph->source()};
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (visited[node->id()]) continue;
    visited[node->id()] = true;
    if (node->IsOp()) visit(node);
    for (const Edge* edge : node->out_edges()) {
      if (!visited[edge->dst->id()]) stack.push_back(edge->dst);
    }
  }
}

// The loops of one graph, made one by one.
class LoopMaker {
 public:
  LoopMaker(DataflowGraph* graph, std::vector<FrameOfNode> frames,
            const std::function<std::string(std::string_view)>& new_name)
      : graph_(graph), frames_(std::move(frames)), new_name_(new_name) {}

  StatusOr<std::vector<LoopControl>> Run() {
    for (const Node* node : graph_->OpNodes()) {
      if (IsLoopCond(*node)) conds_[frames_[node->id()].name] = graph_->node(node->id());
    }
    // Loops add edges of their own, which also cross devices.
    for (int id = 0, end = graph_->num_edge_ids(); id < end; ++id) {
      const Edge* edge = graph_->edge(id);
      if (edge != nullptr && CrossesInFrame(*edge)) MR_RETURN_IF_ERROR(AddLoopsFor(*edge));
    }
    std::vector<LoopControl> controls(graph_->num_node_ids());
    for (int id = 0; id < graph_->num_edge_ids(); ++id) {
      const Edge* edge = graph_->edge(id);
      if (edge == nullptr || !CrossesInFrame(*edge)) continue;
      LoopControl& control = controls[edge->dst->id()];
      const Node* frame = InputFrame(*edge->dst, frames_);
      control.merge =
          loops_.find(Key(frames_[frame->id()].name, edge->dst->assigned_device()))->second.merge;
      ++control.edges;
    }
    return controls;
  }

 private:
  struct Loop {
    Node* enter = nullptr;
    Node* merge = nullptr;
  };

  static std::string Key(std::string_view frame, std::string_view device) {
    return StrCat(frame, "$$", device);
  }

  bool CrossesInFrame(const Edge& edge) const {
    if (!edge.src->IsOp() || !edge.dst->IsOp()) return false;
    if (edge.src->assigned_device() == edge.dst->assigned_device()) return false;
    const std::string_view src = frames_[OutputFrame(*edge.src, frames_)->id()].name;
    const std::string_view dst = frames_[InputFrame(*edge.dst, frames_)->id()].name;
    return !src.empty() && src == dst;
  }

  // The loop of the edge's frame on the device of its destination, and those of the frames
  // around it, each fed by the next outer one and the outermost by a constant.
  Status AddLoopsFor(const Edge& edge) {
    const Node* frame = OutputFrame(*edge.src, frames_);
    const std::string device = edge.dst->assigned_device();
    Loop inner;
    while (true) {
      const FrameOfNode& info = frames_[frame->id()];
      if (info.name.empty()) {
        if (inner.enter == nullptr) return OkStatus();
        AttrMap attrs;
        attrs.Set("dtype", kFloat);
        attrs.Set("value", Tensor(kFloat, Shape({0})));
        MR_ASSIGN_OR_RETURN(Node* const constant, AddNode(new_name_(edge.dst->name()), "Const",
                                                          std::move(attrs), device, *frame));
        return graph_->AddEdge(constant, 0, inner.enter, 0).status();
      }
      const auto found = loops_.find(Key(info.name, device));
      if (found != loops_.end()) {
        if (inner.enter == nullptr) return OkStatus();
        return graph_->AddEdge(found->second.merge, 0, inner.enter, 0).status();
      }
      MR_ASSIGN_OR_RETURN(const Loop loop, AddLoop(*frame, edge.dst->name(), device));
      if (inner.enter != nullptr) {
        MR_RETURN_IF_ERROR(graph_->AddEdge(loop.merge, 0, inner.enter, 0).status());
      }
      inner = loop;
      frame = frames_[frame->id()].parent;
    }
  }

  StatusOr<Loop> AddLoop(const Node& frame, const std::string& prefix, const std::string& device) {
    const FrameOfNode info = frames_[frame.id()];
    const auto cond = conds_.find(info.name);
    if (cond == conds_.end()) {
      return errors::InvalidArgument("A cross-device loop must have a pivot predicate: ",
                                     info.name);
    }
    const auto name = [&] { return StrCat(kControlLoopPrefix, new_name_(prefix)); };
    const std::string enter_name = name(), merge_name = name(), switch_name = name(),
                      next_name = name();
    AttrMap attrs;
    attrs.Set("T", kFloat);
    AttrMap enter_attrs = attrs;
    enter_attrs.Set("frame_name", info.name);
    enter_attrs.Set("parallel_iterations",
                    info.frame->attrs().GetOr<int64_t>("parallel_iterations", 10));
    AttrMap merge_attrs = attrs;
    merge_attrs.Set("N", 2);
    Loop loop;
    MR_ASSIGN_OR_RETURN(loop.enter, AddNode(enter_name, "Enter", enter_attrs, device, frame));
    MR_ASSIGN_OR_RETURN(loop.merge, AddNode(merge_name, "Merge", merge_attrs, device, frame));
    MR_ASSIGN_OR_RETURN(Node* const test, AddNode(switch_name, "Switch", attrs, device, frame));
    MR_ASSIGN_OR_RETURN(Node* const next,
                        AddNode(next_name, "NextIteration", attrs, device, frame));
    MR_RETURN_IF_ERROR(graph_->AddEdge(loop.enter, 0, loop.merge, 0).status());
    MR_RETURN_IF_ERROR(graph_->AddEdge(next, 0, loop.merge, 1).status());
    MR_RETURN_IF_ERROR(graph_->AddEdge(loop.merge, 0, test, 0).status());
    MR_RETURN_IF_ERROR(graph_->AddEdge(cond->second, 0, test, 1).status());
    MR_RETURN_IF_ERROR(graph_->AddEdge(test, 1, next, 0).status());
    loops_.emplace(Key(info.name, device), loop);
    return loop;
  }

  StatusOr<Node*> AddNode(std::string_view name, std::string_view op, AttrMap attrs,
                          const std::string& device, const Node& frame) {
    MR_ASSIGN_OR_RETURN(Node* const node, graph_->AddNode(name, op, std::move(attrs)));
    node->set_requested_device(device);
    node->set_assigned_device(device);
    const FrameOfNode info = frames_[frame.id()];
    frames_.resize(graph_->num_node_ids());
    frames_[node->id()] = info;
    return node;
  }

  DataflowGraph* const graph_;
  std::vector<FrameOfNode> frames_;
  const std::function<std::string(std::string_view)>& new_name_;
  absl::flat_hash_map<std::string_view, Node*> conds_;  // by frame name
  StringMap<Loop> loops_;
};

}  // namespace

bool IsSwitch(const Node& node) { return IsOneOf(node, "Switch", "RefSwitch"); }
bool IsMerge(const Node& node) { return IsOneOf(node, "Merge", "RefMerge"); }
bool IsEnter(const Node& node) { return IsOneOf(node, "Enter", "RefEnter"); }
bool IsExit(const Node& node) { return IsOneOf(node, "Exit", "RefExit"); }
bool IsNextIteration(const Node& node) {
  return IsOneOf(node, "NextIteration", "RefNextIteration");
}
bool IsLoopCond(const Node& node) { return node.type() == "LoopCond"; }

bool HasControlFlow(const DataflowGraph& graph) {
  for (int id = 2; id < graph.num_node_ids(); ++id) {
    const Node* node = graph.node(id);
    if (node == nullptr) continue;
    // Most types are told apart by their first letter.
    const char first = node->type()[0];
    if (first != 'S' && first != 'R' && first != 'E' && first != 'N' && first != 'L') continue;
    if (IsSwitch(*node) || IsEnter(*node) || IsExit(*node) || IsNextIteration(*node) ||
        IsLoopCond(*node)) {
      return true;
    }
  }
  return false;
}

bool IsControlLoopMerge(const Node& node) {
  return IsMerge(node) && std::string_view(node.name()).starts_with(kControlLoopPrefix);
}

StatusOr<std::vector<FrameOfNode>> FindFrames(const DataflowGraph& graph) {
  const Node* const root = graph.source();
  std::vector<FrameOfNode> frames(graph.num_node_ids(), FrameOfNode{root, root, {}});
  std::vector<const Node*> reached_by(graph.num_node_ids(), nullptr);
  std::deque<const Node*> ready = {root};
  for (const Node* node : graph.OpNodes()) {
    if (node->in_edges().empty()) ready.push_back(node);
  }
  while (!ready.empty()) {
    const Node* node = ready.front();
    ready.pop_front();
    FrameOfNode here = frames[node->id()];
    if (IsExit(*node)) here = frames[here.parent->id()];
    for (const Edge* edge : node->out_edges()) {
      const Node* out = edge->dst;
      if (!out->IsOp()) continue;
      FrameOfNode& info = frames[out->id()];
      const Node* const earlier = reached_by[out->id()];
      if (earlier != nullptr) {
        const std::string_view expected =
            IsEnter(*out) ? frames[info.parent->id()].name : info.name;
        if (expected != here.name) {
          return DifferentFrames(*out, *node, here.name, earlier, expected);
        }
        continue;
      }
      reached_by[out->id()] = node;
      ready.push_back(out);
      if (IsEnter(*out)) {
        MR_ASSIGN_OR_RETURN(const std::string_view name, FrameName(*out));
        info = FrameOfNode{out, here.frame, name};
      } else {
        info = here;
      }
    }
  }
  return frames;
}

StatusOr<std::vector<LoopControl>> AddControlLoops(
    DataflowGraph* graph, const std::function<std::string(std::string_view)>& new_name) {
  MR_ASSIGN_OR_RETURN(std::vector<FrameOfNode> frames, FindFrames(*graph));
  Recolocate(graph);
  return LoopMaker(graph, std::move(frames), new_name).Run();
}

}  // namespace millrace
