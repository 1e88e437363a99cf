// SPDX-License-Identifier: Apache-2.0
#include "executor/engine/frames.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace millrace {

void Frames::Begin(std::vector<ReadyNode>* ready) {
  idle_.resize(graph_.frames().size());
  root_ = std::make_unique<Frame>();
  root_->info = &graph_.frames()[0];
  root_->live.push_back(NewIteration(root_.get(), 0));
  Iteration* iteration = root_->live.front().get();
  for (int32_t node : graph_.roots()) {
    ++iteration->outstanding;
    ready->push_back({node, false, iteration});
  }
}

void Frames::Clear() {
  if (root_ == nullptr) return;
  // Depth first, so that every iteration's memory is kept for the next step.
  std::vector<std::unique_ptr<Frame>> frames;
  frames.push_back(std::move(root_));
  while (!frames.empty()) {
    std::unique_ptr<Frame> frame = std::move(frames.back());
    frames.pop_back();
    for (auto& iteration : frame->live) {
      for (auto& child : iteration->children) frames.push_back(std::move(child));
      iteration->children.clear();
      KeepIteration(std::move(iteration));
    }
  }
}

void Frames::NodeDone(const ReadyNode& done, EdgeValue* outputs, std::vector<ReadyNode>* ready) {
  Frame* frame = done.iteration->frame;
  Propagate(done, outputs, ready);
  --done.iteration->outstanding;
  Retire(frame, ready);
}

void Frames::Propagate(const ReadyNode& done, EdgeValue* outputs, Ready* ready) {
  const CompiledNode& node = graph_.nodes()[done.node];
  Frame* frame = done.iteration->frame;
  const bool dead = done.dead && !(node.flags & kNodeNeverDead);
  if (node.flags & kNodeEnter) {
    Enter(done, dead ? nullptr : outputs, ready);
  } else if (node.flags & kNodeExit) {
    if (!dead) {
      Deliver(node, outputs, false, frame->parent, ready);
    } else if (done.iteration->number == frame->newest) {
      frame->dead_exits.push_back(done.node);
    }
  } else if (node.flags & kNodeNextIteration) {
    NextIteration(done, dead ? nullptr : outputs, ready);
  } else {
    Deliver(node, outputs, dead, done.iteration, ready);
  }
}

void Frames::Deliver(const CompiledNode& node, EdgeValue* outputs, bool dead, Iteration* to,
                     Ready* ready) {
  const OutEdge* edge = graph_.edges() + node.edges_begin;
  // An Enter's value is all that a Merge gets in the first iteration, a NextIteration's in others.
  const bool is_only = (node.flags & (kNodeEnter | kNodeNextIteration)) != 0;
  for (const OutEdge* end = edge + node.num_edges; edge != end; ++edge) {
    const bool has_value = !dead && !(edge->flags & kEdgeControl);
    EdgeValue* value = has_value ? &outputs[edge->output] : nullptr;
    const bool edge_dead = dead || (value != nullptr && value->kind == EdgeValue::Kind::kDead);
    DeliverEdge(*edge, value, edge_dead, is_only, to, ready);
  }
}

void Frames::DeliverEdge(const OutEdge& edge, EdgeValue* value, bool dead, bool is_only,
                         Iteration* to, Ready* ready) {
  const int32_t index = graph_.nodes()[edge.dst].index_in_frame;
  int32_t& pending = to->pending[index];
  const bool control = (edge.flags & kEdgeControl) != 0;
  bool is_ready;
  if (edge.flags & kEdgeToMerge) {
    const bool before = MergeIsReady(pending);
    if (control) {
      pending -= kMergeControlUnit;
    } else if (dead) {
      pending = is_only ? pending & 0xffff : pending - kMergeDataUnit;
    } else {
      if (!(pending & kMergeUnclaimed)) return;  // a second live value: dropped
      pending &= ~(kMergeUnclaimed | kMergeNoLive);
      HandOver(value, &to->slots[edge.slot], (edge.flags & kEdgeLast) != 0);
    }
    is_ready = !before && MergeIsReady(pending);
    if (is_ready) to->dead[index] = (pending & kMergeNoLive) != 0;
  } else {
    if (dead) {
      to->dead[index] = 1;
    } else if (!control) {
      HandOver(value, &to->slots[edge.slot], (edge.flags & kEdgeLast) != 0);
    }
    is_ready = --pending == 0;
  }
  if (!is_ready) return;
  ++to->outstanding;
  ready->push_back({edge.dst, to->dead[index] != 0, to});
}

void Frames::DeliverCopy(int32_t node, EdgeValue value, Iteration* to, Ready* ready) {
  Deliver(graph_.nodes()[node], &value, value.kind == EdgeValue::Kind::kDead, to, ready);
}

void Frames::Enter(const ReadyNode& done, EdgeValue* outputs, Ready* ready) {
  const CompiledNode& node = graph_.nodes()[done.node];
  Frame* child = FindOrAddChild(done.iteration, node.operand);
  if (node.flags & kNodeConstantEnter) {
    EdgeValue value;
    value.kind = EdgeValue::Kind::kDead;
    if (outputs != nullptr) HandOver(&outputs[0], &value, true);
    child->invariants.emplace_back(done.node, value);
    for (auto& iteration : child->live) DeliverCopy(done.node, value, iteration.get(), ready);
  } else {
    Deliver(node, outputs, outputs == nullptr, child->live.front().get(), ready);
  }
  --child->pending_enters;
  Retire(child, ready);
}

void Frames::NextIteration(const ReadyNode& done, EdgeValue* outputs, Ready* ready) {
  Frame* frame = done.iteration->frame;
  const CompiledNode& node = graph_.nodes()[done.node];
  Iteration* next = nullptr;
  if (done.iteration->number < frame->newest) {
    const int64_t oldest = frame->live.front()->number;
    next = frame->live[done.iteration->number + 1 - oldest].get();
  } else if (outputs == nullptr) {
    frame->dead_nexts.push_back(done.node);
    return;
  } else if (static_cast<int32_t>(frame->live.size()) < frame->info->parallel_iterations) {
    next = AddIteration(frame, ready);
  } else {
    EdgeValue value;
    HandOver(&outputs[0], &value, true);
    frame->waiting.emplace_back(done.node, std::move(value));
    return;
  }
  Deliver(node, outputs, outputs == nullptr, next, ready);
}

Iteration* Frames::AddIteration(Frame* frame, Ready* ready) {
  frame->dead_exits.clear();
  frame->live.push_back(NewIteration(frame, ++frame->newest));
  Iteration* iteration = frame->live.back().get();
  for (const auto& [node, value] : frame->invariants) DeliverCopy(node, value, iteration, ready);
  const std::vector<int32_t> dead_nexts = std::exchange(frame->dead_nexts, {});
  for (const int32_t node : dead_nexts) {
    Deliver(graph_.nodes()[node], nullptr, true, iteration, ready);
  }
  auto waiting = std::move(frame->waiting);
  frame->waiting.clear();
  for (auto& [node, value] : waiting) DeliverCopy(node, std::move(value), iteration, ready);
  return iteration;
}

Frame* Frames::FindOrAddChild(Iteration* parent, int32_t static_frame) {
  for (auto& child : parent->children) {
    if (child->static_frame == static_frame) return child.get();
  }
  const FrameInfo& info = graph_.frames()[static_frame];
  auto frame = std::make_unique<Frame>();
  frame->info = &info;
  frame->static_frame = static_frame;
  frame->parent = parent;
  frame->pending_enters = info.num_enters;
  frame->since = CycleCount();
  frame->id = Hash64Combine(
      parent->frame->id, Hash64Combine(static_cast<uint64_t>(parent->number), Hash64(info.name)));
  frame->live.push_back(NewIteration(frame.get(), 0));
  parent->children.push_back(std::move(frame));
  return parent->children.back().get();
}

void Frames::Retire(Frame* frame, Ready* ready) {
  while (frame->parent != nullptr) {
    // More may still enter the first iteration.
    if (frame->pending_enters > 0) return;
    while (!frame->live.empty()) {
      Iteration& oldest = *frame->live.front();
      if (oldest.outstanding > 0 || !oldest.children.empty()) return;
      KeepIteration(std::move(frame->live.front()));
      frame->live.pop_front();
      if (!frame->waiting.empty()) AddIteration(frame, ready);
    }
    Iteration* parent = frame->parent;
    const std::vector<int32_t> dead_exits = std::move(frame->dead_exits);
    std::erase_if(parent->children, [frame](const auto& child) { return child.get() == frame; });
    for (int32_t exit : dead_exits) {
      Deliver(graph_.nodes()[exit], nullptr, true, parent, ready);
    }
    frame = parent->frame;
  }
}

std::unique_ptr<Iteration> Frames::NewIteration(Frame* frame, int64_t number) {
  auto& idle = idle_[frame->static_frame];
  std::unique_ptr<Iteration> iteration;
  if (!idle.empty()) {
    iteration = std::move(idle.back());
    idle.pop_back();
  } else {
    iteration = std::make_unique<Iteration>();
    iteration->slots.resize(frame->info->num_slots);
  }
  iteration->frame = frame;
  iteration->number = number;
  iteration->outstanding = 0;
  iteration->pending = frame->info->initial_pending;
  iteration->dead.assign(frame->info->nodes.size(), 0);
  return iteration;
}

void Frames::KeepIteration(std::unique_ptr<Iteration> iteration) {
  const int32_t static_frame = iteration->frame->static_frame;
  ClearValues(iteration->slots.data(), static_cast<int>(iteration->slots.size()));
  idle_[static_frame].push_back(std::move(iteration));
}

}  // namespace millrace
