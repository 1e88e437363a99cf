// SPDX-License-Identifier: Apache-2.0
// Frames and iterations of one step: where values wait, and which nodes become ready, when a
// graph has while loops. The rules are those of TensorFlow's Enter, Exit and NextIteration.
#ifndef EXECUTOR_ENGINE_FRAMES_H_
#define EXECUTOR_ENGINE_FRAMES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "executor/compiled_graph.h"
#include "executor/engine/step_state.h"

namespace millrace {

struct Frame;

struct Iteration {
  Frame* frame = nullptr;
  int64_t number = 0;
  int32_t outstanding = 0;  // nodes of this iteration that are ready or running
  std::vector<EdgeValue> slots;
  std::vector<int32_t> pending;  // by index in the frame
  std::vector<uint8_t> dead;
  std::vector<std::unique_ptr<Frame>> children;  // loops entered from here
};

// A live execution of one loop (or of the root).
struct Frame {
  uint64_t id = 0;     // both ends of a transfer in a loop compute the same
  uint64_t since = 0;  // when it began, by the processor's tick; 0 for the root
  const FrameInfo* info = nullptr;
  int32_t static_frame = 0;
  Iteration* parent = nullptr;  // null for the root
  int32_t pending_enters = 0;
  int64_t newest = 0;                                     // number of the newest iteration
  std::deque<std::unique_ptr<Iteration>> live;            // oldest first, numbers without gaps
  std::vector<std::pair<int32_t, EdgeValue>> invariants;  // of constant Enters, by node
  std::vector<std::pair<int32_t, EdgeValue>> waiting;     // NextIterations beyond the bound
  std::vector<int32_t> dead_exits;                        // of the newest iteration
  std::vector<int32_t> dead_nexts;                        // its NextIterations that were dead
};

// A node that may run, in its iteration.
struct ReadyNode {
  int32_t node = -1;
  bool dead = false;
  Iteration* iteration = nullptr;
  int64_t scheduled = 0;
};

// Not synchronised: its step holds a lock.
class Frames {
 public:
  explicit Frames(const CompiledGraph* graph) : graph_(*graph) {}

  // The root frame with the nodes that nothing precedes.
  void Begin(std::vector<ReadyNode>* ready);
  // A node has run, or was dead and did not (`outputs` is null). Takes the outputs, adds what
  // became ready, and drops iterations and frames that are over.
  void NodeDone(const ReadyNode& done, EdgeValue* outputs, std::vector<ReadyNode>* ready);
  // Forgets everything.
  void Clear();

 private:
  using Ready = std::vector<ReadyNode>;
  void Propagate(const ReadyNode& done, EdgeValue* outputs, Ready* ready);
  // Delivers all outputs of `node` to its successors in `to`.
  void Deliver(const CompiledNode& node, EdgeValue* outputs, bool dead, Iteration* to,
               Ready* ready);
  void DeliverEdge(const OutEdge& edge, EdgeValue* value, bool dead, bool is_only, Iteration* to,
                   Ready* ready);
  void Enter(const ReadyNode& done, EdgeValue* outputs, Ready* ready);
  // `outputs` is null for a dead one: it starts no iteration, but is dead in the one that
  // another variable of the loop starts.
  void NextIteration(const ReadyNode& done, EdgeValue* outputs, Ready* ready);
  void DeliverCopy(int32_t node, EdgeValue value, Iteration* to, Ready* ready);
  // Also brings the invariants and what waited for it.
  Iteration* AddIteration(Frame* frame, Ready* ready);
  Frame* FindOrAddChild(Iteration* parent, int32_t static_frame);
  // Drops finished iterations from the oldest on, then the frame itself and so on outwards.
  void Retire(Frame* frame, Ready* ready);
  std::unique_ptr<Iteration> NewIteration(Frame* frame, int64_t number);
  void KeepIteration(std::unique_ptr<Iteration> iteration);

  const CompiledGraph& graph_;
  std::unique_ptr<Frame> root_;
  std::vector<std::vector<std::unique_ptr<Iteration>>> idle_;  // by static frame
};

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_FRAMES_H_
