// SPDX-License-Identifier: Apache-2.0
// One device's part of a graph as a flat program: what the executor walks instead of nodes
// and edges. Made once per signature, shared by all steps.
#ifndef EXECUTOR_COMPILED_GRAPH_H_
#define EXECUTOR_COMPILED_GRAPH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/idle_list.h"
#include "base/interned_string.h"
#include "device/device.h"
#include "graph/dataflow_graph.h"
#include "kernels/kernel.h"
#include "millrace/status.h"

namespace millrace {

// What is special about a node; most have none of these.
enum NodeFlag : uint32_t {
  kNodeNoCompute = 1u << 0,        // NoOp, ControlTrigger: there is nothing to call
  kNodeAsync = 1u << 1,            // completes through a callback
  kNodeMaybeExpensive = 1u << 2,   // its cost is measured
  kNodeHasRefs = 1u << 3,          // an input is a reference, or is fed by one
  kNodeTransfer = 1u << 4,         // send or receive: runs, and carries deadness, even if dead
  kNodeNeverDead = 1u << 5,        // ControlTrigger
  kNodeMerge = 1u << 6,            // one live input is enough
  kNodeOmitsOutputs = 1u << 7,     // Switch: an output that was not set is dead
  kNodeUninitialisedOk = 1u << 8,  // may read a variable before its first value
  kNodeCommunicates = 1u << 9,     // Unavailable is its own to report
  kNodeEnter = 1u << 10,
  kNodeConstantEnter = 1u << 11,
  kNodeExit = 1u << 12,
  kNodeNextIteration = 1u << 13,
  kNodeSwitch = 1u << 14,
  kNodeConst = 1u << 15,
  kNodeIdentity = 1u << 16,
  kNodeStateful = 1u << 17,
  kNodeArg = 1u << 18,
  kNodeRetval = 1u << 19,
};

enum EdgeFlag : uint8_t {
  kEdgeControl = 1 << 0,
  kEdgeLast = 1 << 1,  // the last consumer of the output: the value is moved to it
  kEdgeSole = 1 << 2,  // the only edge into dst: its arrival makes dst ready
  kEdgeToMerge = 1 << 3,
};

struct OutEdge {
  int32_t dst = -1;
  int32_t slot = -1;  // input slot of the step; -1 on a control edge
  int32_t output = -1;
  uint8_t flags = 0;
};

// One line of memory: the hot loop reads nothing else of a node without special flags.
struct CompiledNode {
  Kernel* kernel = nullptr;
  const DataType* types = nullptr;  // of the inputs, then of the outputs
  int32_t input_begin = 0;          // in the slots of its frame
  int32_t num_inputs = 0;
  int32_t num_outputs = 0;
  int32_t edges_begin = 0;
  int32_t num_edges = 0;  // data edges in order of output, then control edges
  int32_t pending = 0;    // arrivals before it may run; of a merge see kMerge... below
  uint32_t flags = 0;
  int32_t held_outputs = -1;  // first output slot of the step; -1: the thread's own
  int32_t async_index = -1;
  int32_t frame = 0;  // static frame; 0 is the root
  int32_t index_in_frame = 0;
  int32_t operand = -1;  // of an Enter: the frame it enters; of an _Arg or _Retval: its index

  const DataType* output_types() const { return types + num_inputs; }
};

// `pending` of a merge: bit 0 says that no live value arrived, bit 1 that none was claimed,
// then 15 bits count control edges and 15 bits data edges that did not arrive dead.
inline constexpr int32_t kMergeNoLive = 1;
inline constexpr int32_t kMergeUnclaimed = 2;
inline constexpr int32_t kMergeControlUnit = 1 << 2;
inline constexpr int32_t kMergeDataUnit = 1 << 16;
inline constexpr int32_t kMergeMaxEdges = (1 << 14) - 1;
constexpr bool MergeIsReady(int32_t state) {
  const bool controls_arrived = (state & 0xfffc) == 0;
  return controls_arrived && ((state & kMergeNoLive) == 0 || (state >> 16) == 0);
}

// A static while-loop frame. Frame 0 is the root.
struct FrameInfo {
  std::string name;
  int32_t parent = -1;
  int32_t num_enters = 0;
  int32_t parallel_iterations = 1;
  int32_t num_slots = 0;                 // input slots of one iteration
  std::vector<int32_t> nodes;            // in this frame
  std::vector<int32_t> initial_pending;  // by index in this frame
};

// What a finished step leaves for the next one.
struct StepBlock {
  virtual ~StepBlock() = default;
  StepBlock* next_idle = nullptr;
};

struct SequentialProgram;  // executor/engine/sequential_program.h
class ProgramMemory;       // executor/memory/step_arena.h

// Thread-safe; immutable but for the measured costs, what follows from them, and the idle step
// blocks.
class CompiledGraph {
 public:
  static constexpr uint64_t kExpensiveCycles = 15'000;  // about 4 us
  static constexpr uint64_t kUnknownCycles = UINT64_MAX;

  // The kernel of a node; owned by the caller, who may give the same kernel to many graphs
  // (stateful ops: one per session). Must outlive the compiled graph.
  using KernelSource = std::function<StatusOr<Kernel*>(const Node& node)>;

  // `graph` (one device's part) is not needed afterwards; `device` must outlive the result.
  // InvalidArgument if an input is not connected or a loop is malformed; what the kernel
  // source says otherwise.
  static StatusOr<std::unique_ptr<CompiledGraph>> Compile(const DataflowGraph& graph,
                                                          Device* device,
                                                          const KernelSource& kernels);
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  Device* device() const { return device_; }
  const std::vector<CompiledNode>& nodes() const { return nodes_; }
  const OutEdge* edges() const { return edges_.data(); }
  // Nodes that nothing must precede.
  const std::vector<int32_t>& roots() const { return roots_; }
  int32_t num_slots() const { return frames_[0].num_slots; }
  int32_t num_held_outputs() const { return num_held_outputs_; }
  int32_t num_async() const { return num_async_; }
  int32_t max_outputs() const { return max_outputs_; }
  const std::vector<int32_t>& initial_pending() const { return initial_pending_; }
  const std::vector<FrameInfo>& frames() const { return frames_; }
  bool has_frames() const { return frames_.size() > 1; }
  // False if no value can ever be dead: no asynchronous receive, no Switch.
  bool may_be_dead() const { return may_be_dead_; }
  // True if a step can make use of more than one thread.
  bool may_be_concurrent() const { return may_be_concurrent_; }
  int32_t IndexOf(const CompiledNode& node) const {
    return static_cast<int32_t>(&node - nodes_.data());
  }
  // Where the program that built the graph made the node, "model.cc:12"; "" if that is not known.
  std::string_view origin(int32_t node) const;
  // "w" or "w:1": what feeds an input that is or comes from a reference; "" otherwise.
  std::string_view input_name(int32_t node, int input) const;

  // The same graph for a single thread; null if it cannot be run so.
  const SequentialProgram* sequential() const { return sequential_.get(); }

  // Where the memory of steps is planned; one for each way to run. Null where there is no plan.
  ProgramMemory* memory(bool sequential) const { return memory_[sequential ? 1 : 0].get(); }

  // Measured cost in processor cycles; kUnknownCycles before the first measurement.
  uint64_t CostOf(int32_t node) const { return cost_[node].load(std::memory_order_relaxed); }
  // Worth a thread of its own. What is unknown counts as that.
  static bool IsExpensive(uint64_t cycles) { return cycles > kExpensiveCycles; }
  bool IsExpensive(int32_t node) const { return IsExpensive(CostOf(node)); }
  // Whether a step may find use for another thread: as long as a node is known to be expensive,
  // while costs are being learnt (loops learn within one step), and where cheap nodes add up:
  // see executor/engine/work_span.h. To be asked once a step.
  bool MayUseThreads() const {
    if (num_expensive_.load(std::memory_order_relaxed) > 0) return true;
    if (!may_be_concurrent_ || has_frames()) return false;
    const int32_t steps = num_steps_.load(std::memory_order_relaxed);
    if (steps < kLearningSteps) {
      num_steps_.store(steps + 1, std::memory_order_relaxed);
      return true;
    }
    const auto known = adds_up_.load(std::memory_order_relaxed);
    return known == AddsUp::kUnknown ? FindWhetherCostsAddUp() : known == AddsUp::kYes;
  }
  // Many costs were measured anew: whether they add up is found out again.
  void CostsChanged() const { adds_up_.store(AddsUp::kUnknown, std::memory_order_relaxed); }
  void RecordCost(int32_t node, uint64_t cycles) const;

  // Blocks of finished steps, most recent first; null if there is none. One list for each way
  // to run.
  StepBlock* TakeIdleBlock(bool sequential) const { return idle_[sequential ? 1 : 0].Take(); }
  void KeepIdleBlock(StepBlock* block, bool sequential) const {
    idle_[sequential ? 1 : 0].Keep(block);
  }

 private:
  enum class AddsUp : uint8_t { kUnknown, kNo, kYes };
  // A node that did not run in so many steps is not waited for: it may never do.
  static constexpr int32_t kLearningSteps = 16;
  friend class GraphCompiler;
  CompiledGraph() = default;
  bool FindWhetherCostsAddUp() const;

  Device* device_ = nullptr;
  std::vector<CompiledNode> nodes_;
  std::vector<OutEdge> edges_;
  std::vector<DataType> types_;
  std::vector<int32_t> roots_, initial_pending_;
  std::vector<FrameInfo> frames_;
  std::vector<std::pair<int64_t, std::string>> ref_names_;   // by node << 32 | input, sorted
  std::vector<std::pair<int32_t, InternedString>> origins_;  // of nodes that have one, sorted
  int32_t num_held_outputs_ = 0, num_async_ = 0, max_outputs_ = 0;
  bool may_be_dead_ = false, may_be_concurrent_ = false;
  std::unique_ptr<const SequentialProgram> sequential_;
  std::unique_ptr<ProgramMemory> memory_[2];
  mutable std::unique_ptr<std::atomic<uint64_t>[]> cost_;
  mutable std::atomic<int32_t> num_expensive_{0};  // known to be
  mutable std::atomic<int32_t> num_steps_{0};      // up to kLearningSteps
  mutable std::atomic<AddsUp> adds_up_{AddsUp::kUnknown};
  mutable IdleList<StepBlock, &StepBlock::next_idle> idle_[2];  // the second: sequential
};

}  // namespace millrace

#endif  // EXECUTOR_COMPILED_GRAPH_H_
