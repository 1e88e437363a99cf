// SPDX-License-Identifier: Apache-2.0
// Which node every thread is running: for whoever has to say why a step does not end.
#ifndef EXECUTOR_STATS_RUNNING_NODES_H_
#define EXECUTOR_STATS_RUNNING_NODES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

class CancellationManager;  // base/cancellation.h
class CompiledGraph;        // executor/compiled_graph.h

// What is known of one thread. Written by that thread alone, read by any.
struct ThreadRecord {
  // Odd while `step` and `graph` change.
  std::atomic<uint32_t> version{0};
  std::atomic<const CancellationManager*> step{nullptr};
  std::atomic<const CompiledGraph*> graph{nullptr};
  std::atomic<int32_t> node{-1};
  // The node, and the processor's tick, of the latest beginning that was timed.
  std::atomic<int32_t> timed_node{-1};
  std::atomic<uint64_t> since{0};
  // Of the loop of `graph` that the node is in: when it began, by the processor's tick, and how
  // many times it has gone round. 0 ticks: not known.
  std::atomic<uint64_t> loop_since{0};
  std::atomic<int64_t> rounds{0};
  // The outermost node of the step on this thread, where a kernel runs a function: `graph` is then
  // of the function's body.
  std::atomic<const CompiledGraph*> outer_graph{nullptr};
  std::atomic<int32_t> outer_node{-1};
  std::atomic<uint64_t> outer_since{0};
  // The thread's own: steps that it has begun to run, and the outer node that was told of last.
  uint64_t num_steps = 0, outer_step = 0;
  int32_t last_outer = -1;
  uint64_t last_outer_since = 0;
  int64_t id = 0;      // the kernel's
  char name[16] = "";  // when the thread first ran a node
};

// That of the calling thread, which keeps it until it ends.
ThreadRecord& ThisThreadRecord();

// One loop over nodes on this thread, while it is in scope; what the thread was running before is
// kept, and told again afterwards. Costs a store a node.
class RunningMark {
 public:
  // Steps are told apart by what cancels them: the functions that a step calls share it. Null:
  // nobody will ask.
  RunningMark(const CompiledGraph& graph, const CancellationManager* step);
  ~RunningMark();
  RunningMark(const RunningMark&) = delete;
  RunningMark& operator=(const RunningMark&) = delete;

  void Begin(int32_t node) { record_.node.store(node, std::memory_order_relaxed); }
  // The same, of a node whose beginning was timed anyhow (CycleCount in step_state.h).
  void BeginTimed(int32_t node, uint64_t ticks) {
    record_.since.store(ticks, std::memory_order_relaxed);
    record_.timed_node.store(node, std::memory_order_relaxed);
    Begin(node);
  }
  // The loop that the next nodes belong to has begun at `ticks` and gone round so many times. It
  // is for those nodes only: nobody looks at it while one that is in no loop runs.
  void InLoop(uint64_t ticks, int64_t rounds) {
    record_.loop_since.store(ticks, std::memory_order_relaxed);
    record_.rounds.store(rounds, std::memory_order_relaxed);
  }
  // Before the step may end: from here on nothing of it is touched on behalf of others.
  void Idle() { record_.node.store(-1, std::memory_order_release); }

 private:
  void Set(const CompiledGraph* graph, const CancellationManager* step, int32_t node);
  // What a nested mark tells of the node that it is within.
  void EnterOuter();
  void SetOuter(const CompiledGraph* graph, int32_t node, uint64_t since);

  ThreadRecord& record_;
  const CompiledGraph* const graph_before_;
  const CancellationManager* const step_before_;
  const int32_t node_before_;
  bool is_within_ = false;  // this one has told of the outermost node
};

struct RunningNode {
  std::string node, op, device, thread;
  std::string origin;  // the line that made it; "" if that is not known
  int64_t thread_id = 0;
  // How long it has run; negative: that was not recorded.
  std::chrono::nanoseconds elapsed{-1};
  // The innermost loop that it is in, "": none; how long that runs, and how often it has gone
  // round (negative: not known).
  std::string loop;
  std::chrono::nanoseconds loop_elapsed{-1};
  int64_t rounds = -1;
  // The kernel that has called the function which the node is of; "": none.
  std::string caller, caller_op, caller_origin;
  std::chrono::nanoseconds caller_elapsed{-1};
};

// What threads of this process run of the step that `step` cancels, function bodies included; at
// most one node a thread, the innermost. The step must not be freed meanwhile. In a step that runs
// on one thread only, nodes that never take long are not noted: it is then the node before them, or
// one of the loop that has gone round. Thread-safe.
std::vector<RunningNode> FindRunningNodes(const CancellationManager* step);

}  // namespace millrace

#endif  // EXECUTOR_STATS_RUNNING_NODES_H_
