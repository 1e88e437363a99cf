// SPDX-License-Identifier: Apache-2.0
#include "executor/compiled_graph.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "executor/engine/sequential_program.h"
#include "executor/engine/work_span.h"
#include "executor/memory/step_arena.h"

namespace millrace {
namespace {

// Outputs of a node with more than these live in the step, not on the thread's stack.
constexpr int kMaxScratchOutputs = 4;

// The few ops whose scheduling differs; everything else asks the kernel or the op's flags.
uint32_t SchedulingFlags(std::string_view op) {
  struct Entry {
    std::string_view op;
    uint32_t flags;
  };
  static constexpr Entry kEntries[] = {
      {"NoOp", kNodeNoCompute},
      {"ControlTrigger", kNodeNoCompute | kNodeNeverDead},
      {"_Send", kNodeTransfer | kNodeCommunicates},
      {"_HostSend", kNodeTransfer | kNodeCommunicates},
      {"_Recv", kNodeTransfer | kNodeCommunicates},
      {"_HostRecv", kNodeTransfer | kNodeCommunicates},
      {"Switch", kNodeOmitsOutputs | kNodeSwitch},
      {"RefSwitch", kNodeOmitsOutputs},
      {"_SwitchN", kNodeOmitsOutputs},
      {"Merge", kNodeMerge},
      {"RefMerge", kNodeMerge},
      {"Enter", kNodeEnter},
      {"RefEnter", kNodeEnter},
      {"Exit", kNodeExit},
      {"RefExit", kNodeExit},
      {"NextIteration", kNodeNextIteration},
      {"RefNextIteration", kNodeNextIteration},
      {"Const", kNodeConst},
      {"Identity", kNodeIdentity},
      {"LoopCond", kNodeIdentity},
      {"_Arg", kNodeArg},
      {"_Retval", kNodeRetval},
  };
  for (const Entry& e : kEntries) {
    if (e.op == op) return e.flags;
  }
  return 0;
}

bool IsBookkeeping(const Edge& edge) { return edge.src->IsSource() || edge.dst->IsSink(); }

Status AtNode(const Status& status, const Node& node) {
  return Annotate(status, StrCat("\n\t [[{{node ", node.name(), "}}]]"));
}

}  // namespace

class GraphCompiler {
 public:
  GraphCompiler(const DataflowGraph& graph, Device* device,
                const CompiledGraph::KernelSource& kernels)
      : graph_(graph), kernels_(kernels), out_(new CompiledGraph) {
    out_->device_ = device;
  }

  StatusOr<std::unique_ptr<CompiledGraph>> Run() {
    sources_ = graph_.OpNodes();
    index_.assign(graph_.num_node_ids(), -1);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      index_[sources_[i]->id()] = static_cast<int32_t>(i);
    }
    out_->nodes_.resize(sources_.size());
    MR_RETURN_IF_ERROR(AssignFrames());
    MR_RETURN_IF_ERROR(AddNodes());
    for (std::size_t i = 0; i < sources_.size(); ++i) AddEdges(static_cast<int32_t>(i));
    out_->cost_ = std::make_unique<std::atomic<uint64_t>[]>(sources_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      out_->cost_[i].store(CompiledGraph::kUnknownCycles, std::memory_order_relaxed);
    }
    out_->sequential_ = SequentialProgram::Make(*out_);
    PlanMemory();
    return std::move(out_);
  }

 private:
  void PlanMemory() {
    const CompiledGraph* const graph = out_.get();
    // An accelerator's memory is freed in the order of its stream, not when the host lets go.
    if (graph->device_->memory_space() != MemorySpace::kHost) return;
    const auto node_of = [graph](const Kernel* kernel) -> int32_t {
      for (const int32_t node : graph->frames_[0].nodes) {
        const CompiledNode& n = graph->nodes_[node];
        if (n.kernel == kernel) return (n.flags & kNodeAsync) != 0 ? -1 : node;
      }
      return -1;
    };
    for (const bool sequential : {false, true}) {
      if (sequential ? out_->sequential_ == nullptr : out_->has_frames()) continue;
      const bool may_change = !sequential && out_->sequential_ != nullptr;
      out_->memory_[sequential ? 1 : 0] = std::make_unique<ProgramMemory>(
          static_cast<int>(graph->nodes_.size()), graph->device_->allocator(), node_of,
          may_change ? CompiledGraph::kLearningSteps + 1 : 1);
    }
  }

  // Every node belongs to the frame of its inputs; Enter opens a child, Exit returns from it.
  Status AssignFrames() {
    out_->frames_.emplace_back();
    std::vector<int32_t> frame_of(sources_.size(), -1);
    std::vector<int32_t> stack;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (NumInEdges(*sources_[i]) == 0) Visit(static_cast<int32_t>(i), 0, &frame_of, &stack);
    }
    while (!stack.empty()) {
      const int32_t i = stack.back();
      stack.pop_back();
      const uint32_t flags = SchedulingFlags(sources_[i]->type());
      int32_t frame = frame_of[i];
      if (flags & kNodeEnter) {
        MR_ASSIGN_OR_RETURN(frame, EnterFrame(*sources_[i], frame));
        out_->nodes_[i].operand = frame;
      } else if (flags & kNodeExit) {
        frame = out_->frames_[frame].parent;
        if (frame < 0) {
          return AtNode(errors::InvalidArgument("an Exit outside of every loop"), *sources_[i]);
        }
      }
      for (const Edge* edge : sources_[i]->out_edges()) {
        if (IsBookkeeping(*edge)) continue;
        const int32_t dst = index_[edge->dst->id()];
        if (frame_of[dst] >= 0 && frame_of[dst] != frame) {
          return AtNode(errors::InvalidArgument("the node has inputs from the loops '",
                                                out_->frames_[frame_of[dst]].name, "' and '",
                                                out_->frames_[frame].name, "'"),
                        *edge->dst);
        }
        Visit(dst, frame, &frame_of, &stack);
      }
    }
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (frame_of[i] < 0) {
        return AtNode(errors::InvalidArgument("the node is on a cycle that nothing enters"),
                      *sources_[i]);
      }
      out_->nodes_[i].frame = frame_of[i];
      std::vector<int32_t>& members = out_->frames_[frame_of[i]].nodes;
      out_->nodes_[i].index_in_frame = static_cast<int32_t>(members.size());
      members.push_back(static_cast<int32_t>(i));
    }
    return OkStatus();
  }

  static int NumInEdges(const Node& node) {
    int count = 0;
    for (const Edge* edge : node.in_edges()) count += IsBookkeeping(*edge) ? 0 : 1;
    return count;
  }

  static void Visit(int32_t node, int32_t frame, std::vector<int32_t>* frame_of,
                    std::vector<int32_t>* stack) {
    if ((*frame_of)[node] >= 0) return;
    (*frame_of)[node] = frame;
    stack->push_back(node);
  }

  StatusOr<int32_t> EnterFrame(const Node& enter, int32_t parent) {
    StatusOr<std::string> name = enter.attrs().Get<std::string>("frame_name");
    if (!name.ok()) return AtNode(name.status(), enter);
    auto it = std::find_if(out_->frames_.begin() + 1, out_->frames_.end(),
                           [&](const FrameInfo& f) { return f.name == *name; });
    if (it == out_->frames_.end()) {
      FrameInfo frame;
      frame.name = *name;
      frame.parent = parent;
      frame.parallel_iterations = std::max<int32_t>(
          1, static_cast<int32_t>(enter.attrs().GetOr<int64_t>("parallel_iterations", 10)));
      it = out_->frames_.insert(out_->frames_.end(), std::move(frame));
    } else if (it->parent != parent) {
      return AtNode(errors::InvalidArgument("the loop '", *name, "' is entered from two frames"),
                    enter);
    }
    ++it->num_enters;
    return static_cast<int32_t>(it - out_->frames_.begin());
  }

  Status AddNodes() {
    std::size_t num_types = 0, num_edges = 0;
    for (const Node* node : sources_) {
      num_types += node->num_inputs() + node->num_outputs();
      for (const Edge* edge : node->out_edges()) num_edges += IsBookkeeping(*edge) ? 0 : 1;
    }
    out_->types_.reserve(num_types);  // nodes point into it
    out_->edges_.reserve(num_edges);
    out_->initial_pending_.resize(sources_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      MR_RETURN_IF_ERROR(AddNode(*sources_[i], static_cast<int32_t>(i)));
    }
    return OkStatus();
  }

  Status AddNode(const Node& source, int32_t id) {
    CompiledNode& node = out_->nodes_[id];
    MR_ASSIGN_OR_RETURN(node.kernel, kernels_(source));
    node.types = out_->types_.data() + out_->types_.size();
    for (DataType dtype : source.input_types()) out_->types_.push_back(dtype);
    for (DataType dtype : source.output_types()) out_->types_.push_back(dtype);
    node.num_inputs = source.num_inputs();
    node.num_outputs = source.num_outputs();
    if (!source.origin().empty()) out_->origins_.emplace_back(id, source.origin());
    FrameInfo& frame = out_->frames_[node.frame];
    node.input_begin = frame.num_slots;
    frame.num_slots += node.num_inputs;
    out_->max_outputs_ = std::max(out_->max_outputs_, node.num_outputs);

    node.flags = SchedulingFlags(source.type());
    if (node.flags & (kNodeArg | kNodeRetval)) {
      node.operand = static_cast<int32_t>(source.attrs().GetOr<int64_t>("index", -1));
    }
    if (node.kernel->IsAsync()) node.flags |= kNodeAsync;
    if (node.kernel->IsExpensive() && node.flags == 0) node.flags |= kNodeMaybeExpensive;
    if (source.is_stateful()) node.flags |= kNodeStateful;
    if (source.op().def.allows_uninitialized_input()) node.flags |= kNodeUninitialisedOk;
    if (source.op().def.is_distributed_communication()) node.flags |= kNodeCommunicates;
    if ((node.flags & kNodeEnter) && source.attrs().GetOr<bool>("is_constant", false)) {
      node.flags |= kNodeConstantEnter;
    }
    const bool receives = (node.flags & kNodeTransfer) && (node.flags & kNodeAsync);
    if (receives || (node.flags & kNodeOmitsOutputs)) out_->may_be_dead_ = true;
    if (node.flags & (kNodeAsync | kNodeMaybeExpensive)) out_->may_be_concurrent_ = true;
    if (node.flags & kNodeAsync) node.async_index = out_->num_async_++;
    if ((node.flags & kNodeAsync) || node.num_outputs > kMaxScratchOutputs) {
      node.held_outputs = out_->num_held_outputs_;
      out_->num_held_outputs_ += node.num_outputs;
    }
    return AddInputs(source, id);
  }

  Status AddInputs(const Node& source, int32_t id) {
    CompiledNode& node = out_->nodes_[id];
    for (int i = 0; i < node.num_inputs; ++i) {
      const Edge* edge = source.input_edge(i);
      if (edge == nullptr) {
        return AtNode(errors::InvalidArgument("input ", i, " is not connected"), source);
      }
      if (!IsRefType(node.types[i]) && !IsRefType(edge->src->output_types()[edge->src_output])) {
        continue;
      }
      node.flags |= kNodeHasRefs;
      std::string name = edge->src->name();
      if (edge->src_output > 0) StrAppend(&name, ":", edge->src_output);
      out_->ref_names_.emplace_back((int64_t{id} << 32) | i, std::move(name));
    }
    const int num_edges = NumInEdges(source);
    node.pending = num_edges;
    if (node.flags & kNodeMerge) {
      const int controls = num_edges - node.num_inputs;
      if (node.num_inputs > kMergeMaxEdges || controls > kMergeMaxEdges) {
        return AtNode(errors::InvalidArgument("a merge may have ", kMergeMaxEdges, " inputs"),
                      source);
      }
      node.pending = kMergeNoLive | kMergeUnclaimed | controls * kMergeControlUnit |
                     node.num_inputs * kMergeDataUnit;
    }
    out_->initial_pending_[id] = node.pending;
    out_->frames_[node.frame].initial_pending.push_back(node.pending);
    if (num_edges == 0) out_->roots_.push_back(id);
    return OkStatus();
  }

  void AddEdges(int32_t id) {
    CompiledNode& node = out_->nodes_[id];
    const Node& source = *sources_[id];
    node.edges_begin = static_cast<int32_t>(out_->edges_.size());
    std::vector<std::pair<std::size_t, const Edge*>> order;
    for (const Edge* edge : source.out_edges()) {
      if (IsBookkeeping(*edge)) continue;
      const std::size_t rank = edge->IsControl() ? SIZE_MAX : edge->src_output;
      order.emplace_back(rank, edge);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Edge& edge = *order[i].second;
      OutEdge out;
      out.dst = index_[edge.dst->id()];
      const CompiledNode& dst = out_->nodes_[out.dst];
      if (edge.IsControl()) {
        out.flags |= kEdgeControl;
      } else {
        out.slot = dst.input_begin + edge.dst_input;
        out.output = edge.src_output;
        if (i + 1 == order.size() || order[i + 1].first != order[i].first) out.flags |= kEdgeLast;
      }
      if (dst.flags & kNodeMerge) {
        out.flags |= kEdgeToMerge;
      } else if (dst.pending == 1) {
        out.flags |= kEdgeSole;
      }
      out_->edges_.push_back(out);
    }
    node.num_edges = static_cast<int32_t>(out_->edges_.size()) - node.edges_begin;
  }

  const DataflowGraph& graph_;
  const CompiledGraph::KernelSource& kernels_;
  std::unique_ptr<CompiledGraph> out_;
  std::vector<Node*> sources_;
  std::vector<int32_t> index_;  // by node id
};

StatusOr<std::unique_ptr<CompiledGraph>> CompiledGraph::Compile(const DataflowGraph& graph,
                                                                Device* device,
                                                                const KernelSource& kernels) {
  return GraphCompiler(graph, device, kernels).Run();
}

CompiledGraph::~CompiledGraph() = default;

// A first run is slow for reasons of its own, so costs fall fast; they rise slowly, so that a
// thread that lost its processor for a while makes nothing expensive for long.
void CompiledGraph::RecordCost(int32_t node, uint64_t cycles) const {
  const uint64_t old = cost_[node].load(std::memory_order_relaxed);
  uint64_t cost = cycles;
  if (old != kUnknownCycles) {
    cost = cycles < old ? (old + cycles) / 2 : old + std::min((cycles - old) / 10, old + 1000);
  }
  const uint64_t before = cost_[node].exchange(cost, std::memory_order_relaxed);
  const bool was = before != kUnknownCycles && before > kExpensiveCycles;
  const bool is = cost > kExpensiveCycles;
  if (was != is) num_expensive_.fetch_add(is ? 1 : -1, std::memory_order_relaxed);
}

bool CompiledGraph::FindWhetherCostsAddUp() const {
  const bool yes = sequential_ != nullptr && GainsFromThreads(EstimateWorkSpan(*this));
  adds_up_.store(yes ? AddsUp::kYes : AddsUp::kNo, std::memory_order_relaxed);
  return yes;
}

std::string_view CompiledGraph::origin(int32_t node) const {
  const auto it = std::lower_bound(origins_.begin(), origins_.end(), node,
                                   [](const auto& entry, int32_t n) { return entry.first < n; });
  return it != origins_.end() && it->first == node ? std::string_view(it->second.str()) : "";
}

std::string_view CompiledGraph::input_name(int32_t node, int input) const {
  const int64_t key = (int64_t{node} << 32) | input;
  auto it = std::lower_bound(ref_names_.begin(), ref_names_.end(), key,
                             [](const auto& entry, int64_t k) { return entry.first < k; });
  return it != ref_names_.end() && it->first == key ? std::string_view(it->second) : "";
}

}  // namespace millrace
