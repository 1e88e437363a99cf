// SPDX-License-Identifier: Apache-2.0
// The hot path of the engine. A finished node makes successors ready; cheap ones join a list
// of this thread, expensive ones go to the pool but for the last, which runs here. When the cheap
// ones of a list add up to more than an expensive one, half of them go to the pool as one task,
// which may be halved again there. Where only one thread can be at work the same code runs without
// atomic operations.
#include "executor/engine/flat_step.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/engine_thread.h"
#include "executor/engine/step_state.h"
#include "executor/stats/running_nodes.h"
#include "kernels/run_kernel.h"

namespace millrace {
namespace {

constexpr int kScratchOutputs = 4;
// A list of ready nodes that costs more, about 10 us, is shared.
constexpr uint64_t kSharedCycles = 36'000;
// In how many steps of several threads costs are looked at again.
constexpr uint32_t kStepsPerEstimate = 64;
constexpr std::align_val_t kBlockAlignment{64};

template <bool kThreaded>
class FlatLoop;

// Invariants between steps: all slots and held outputs are empty.
class FlatStep final : public StepState {
 public:
  static FlatStep* Acquire(const CompiledGraph& graph) {
    if (StepBlock* idle = graph.TakeIdleBlock(false)) return static_cast<FlatStep*>(idle);
    return new FlatStep(graph);
  }

  explicit FlatStep(const CompiledGraph& graph)
      : StepState(&graph, false), num_values_(graph.num_slots() + graph.num_held_outputs()) {
    const std::size_t n = graph.nodes().size();
    std::size_t size = 0;
    auto reserve = [&size](std::size_t bytes) {
      const std::size_t offset = size;
      size += (bytes + 63) / 64 * 64;
      return offset;
    };
    const std::size_t values = reserve(num_values_ * sizeof(EdgeValue));
    const std::size_t async = reserve(graph.num_async() * sizeof(AsyncCall));
    const std::size_t tasks = reserve(n * sizeof(FlatStep*));
    const std::size_t pending = reserve(n * sizeof(int32_t));
    const std::size_t next = reserve(n * sizeof(int32_t));
    const std::size_t dead = reserve(n);
    block_ = static_cast<std::byte*>(::operator new(size, kBlockAlignment));
    slots_ = reinterpret_cast<EdgeValue*>(block_ + values);
    std::uninitialized_default_construct_n(slots_, num_values_);
    held_ = slots_ + graph.num_slots();
    async_ = reinterpret_cast<AsyncCall*>(block_ + async);
    std::uninitialized_default_construct_n(async_, graph.num_async());
    tasks_ = reinterpret_cast<FlatStep**>(block_ + tasks);
    std::uninitialized_fill_n(tasks_, n, this);
    pending_ = reinterpret_cast<int32_t*>(block_ + pending);
    next_ready_ = reinterpret_cast<int32_t*>(block_ + next);
    dead_ = reinterpret_cast<uint8_t*>(block_ + dead);
    for (std::size_t i = 0; i < n; ++i) {
      const CompiledNode& node = graph.nodes()[i];
      if (node.async_index >= 0) async_[node.async_index].node = static_cast<int32_t>(i);
    }
  }

  ~FlatStep() override {
    std::destroy_n(slots_, num_values_);
    std::destroy_n(async_, graph().num_async());
    ::operator delete(block_, kBlockAlignment);
  }

  void Start(const ExecutorArgs& args, DoneCallback done);

 private:
  template <bool>
  friend class FlatLoop;  // the loop is the step's code, split by how many threads there are

  void Finish() {
    if (failed()) ClearValues(slots_, num_values_);
    scheduled_.reset();
    if (++num_steps_ % kStepsPerEstimate == 0) graph().CostsChanged();
    End();
  }

  const int num_values_;
  std::byte* block_ = nullptr;
  EdgeValue* slots_ = nullptr;
  EdgeValue* held_ = nullptr;
  AsyncCall* async_ = nullptr;
  FlatStep** tasks_ = nullptr;  // all point here: a task's argument is its node's entry
  int32_t* pending_ = nullptr;
  int32_t* next_ready_ = nullptr;                      // links of ready lists; -1 ends a task's
  uint8_t* dead_ = nullptr;                            // by node: an input was dead
  uint32_t num_steps_ = 0;                             // of this block
  std::unique_ptr<std::atomic<int64_t>[]> scheduled_;  // by node; only with statistics
};

template <bool kThreaded>
class FlatLoop {
 public:
  explicit FlatLoop(FlatStep* step)
      : s_(*step),
        graph_(step->graph()),
        nodes_(graph_.nodes().data()),
        may_be_dead_(graph_.may_be_dead()),
        running_(graph_, s_.cancellation()) {}

  // Each runs until this thread has nothing more to do; the step may be gone afterwards.
  void RunRoots() {
    for (int32_t id : graph_.roots()) AddReady(id);
    Run();
  }
  // Nodes that were linked from `first` on.
  void RunFrom(int32_t first) {
    head_ = first;
    for (int32_t id = first; id >= 0; id = s_.next_ready_[id]) {
      tail_ = id;
      if (IsMeasured(id) && !graph_.IsExpensive(id)) ready_cycles_ += graph_.CostOf(id);
    }
    Run();
  }
  void RunAfter(AsyncCall* call) {
    FinishAsync(call);
    Run();
  }

  static void RunTask(void* arg) {
    auto** entry = static_cast<FlatStep**>(arg);
    FlatStep* step = *entry;
    LoopScope scope(step->request());
    FlatLoop(step).RunFrom(static_cast<int32_t>(entry - step->tasks_));
  }
  static void RunStart(void* arg) {
    auto* const step = static_cast<FlatStep*>(arg);
    LoopScope scope(step->request());
    FlatLoop(step).RunRoots();
  }

 private:
  void Run() {
    Settle();
    if (kThreaded && ready_cycles_ > kSharedCycles) Share();
    while (head_ >= 0) {
      const int32_t id = head_;
      head_ = id == tail_ ? -1 : s_.next_ready_[id];
      RunNode(id, nodes_[id]);
      if constexpr (kThreaded) {
        Settle();
        if (ready_cycles_ > kSharedCycles) [[unlikely]]
          Share();
      }
    }
    running_.Idle();
    if constexpr (kThreaded) {
      if (s_.outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    }
    s_.Finish();
  }

  void Push(int32_t id) {
    if (head_ < 0) {
      head_ = id;
    } else {
      s_.next_ready_[tail_] = id;
    }
    tail_ = id;
  }

  void AddReady(int32_t id) {
    if (s_.scheduled_ != nullptr) [[unlikely]] {
      s_.scheduled_[id].store(WallNanos(), std::memory_order_relaxed);
    }
    if constexpr (kThreaded) {
      if (IsMeasured(id)) {
        const uint64_t cost = graph_.CostOf(id);
        if (CompiledGraph::IsExpensive(cost)) {
          if (expensive_ >= 0) Schedule(expensive_);
          expensive_ = id;
          return;
        }
        ready_cycles_ += cost;
      }
    }
    Push(id);
  }

  // Whether the node counts among those that another thread could run.
  bool IsMeasured(int32_t id) const {
    return (nodes_[id].flags & kNodeMaybeExpensive) && s_.pool() != nullptr;
  }

  // Gives the second half of the list, by cost, to the pool.
  void Share() {
    if (head_ < 0) {
      ready_cycles_ = 0;  // what was skipped was not subtracted
      return;
    }
    uint64_t kept = 0;
    int32_t last = head_;
    for (; last != tail_; last = s_.next_ready_[last]) {
      if (IsMeasured(last)) kept += std::min(graph_.CostOf(last), CompiledGraph::kExpensiveCycles);
      if (kept >= ready_cycles_ / 2) break;
    }
    ready_cycles_ = kept;
    if (last == tail_) return;  // there was less than was thought
    const int32_t first = s_.next_ready_[last];
    s_.next_ready_[tail_] = -1;
    tail_ = last;
    ScheduleFrom(first);
  }

  // The last expensive node runs here if there is nothing that it would hold up.
  void Settle() {
    if (expensive_ < 0) return;
    const int32_t id = std::exchange(expensive_, -1);
    if (head_ < 0 && !HurryScope::InHurry()) {
      DeferScope::RunDeferred();  // what others wait for must not wait for this node
      Push(id);
    } else {
      Schedule(id);
    }
  }

  void Schedule(int32_t id) {
    s_.next_ready_[id] = -1;
    ScheduleFrom(id);
  }

  void ScheduleFrom(int32_t first) {
    s_.outstanding_.fetch_add(1, std::memory_order_relaxed);
    s_.pool()->Schedule({&FlatLoop::RunTask, &s_.tasks_[first]});
  }

  bool IsDead(int32_t id) const {
    return may_be_dead_ && std::atomic_ref(s_.dead_[id]).load(std::memory_order_relaxed) != 0;
  }

  void RunNode(int32_t id, const CompiledNode& node) {
    EdgeValue* inputs = s_.slots_ + node.input_begin;
    if (s_.ShouldStop()) [[unlikely]] {
      ClearValues(inputs, node.num_inputs);
      return;
    }
    const bool dead = IsDead(id);
    if (dead && !(node.flags & (kNodeTransfer | kNodeNeverDead))) [[unlikely]] {
      ClearValues(inputs, node.num_inputs);
      Propagate(node, nullptr, true);
      return;
    }
    NodeTimes times;
    if (s_.stats() != nullptr) [[unlikely]] {
      times.scheduled = s_.scheduled_[id].load(std::memory_order_relaxed);
      times.all_start = WallNanos();
      times.op_start = times.op_end = times.all_start;
    }
    if (node.flags & kNodeNoCompute) {
      if (s_.stats() != nullptr) [[unlikely]] {
        s_.stats()->Record(*node.kernel, times, {});
      }
      Propagate(node, nullptr, false);
      return;
    }
    if (node.flags & kNodeHasRefs) {
      if (Status status = PrepareRefInputs(graph_, id, inputs); !status.ok()) [[unlikely]] {
        ClearValues(inputs, node.num_inputs);
        s_.Fail(node, std::move(status));
        return;
      }
    }
    if (node.flags & kNodeAsync) {
      StartAsync(node, inputs, dead, times);
      return;
    }
    RunSync(id, node, inputs, dead, times);
  }

  void RunSync(int32_t id, const CompiledNode& node, EdgeValue* inputs, bool dead,
               NodeTimes& times) {
    EdgeValue* outputs = node.held_outputs < 0 ? scratch_ : s_.held_ + node.held_outputs;
    KernelContext ctx(node.kernel, graph_.device(), s_.env(),
                      {inputs, static_cast<std::size_t>(node.num_inputs)},
                      {outputs, static_cast<std::size_t>(node.num_outputs)},
                      {node.output_types(), static_cast<std::size_t>(node.num_outputs)});
    if (dead) ctx.set_input_dead(true);
    if (s_.Provides(id)) [[unlikely]] {
      return RunProvided(id, node, inputs, outputs, dead, times, ctx);
    }
    Status status;
    if (kThreaded && (node.flags & kNodeMaybeExpensive)) {
      const uint64_t start = CycleCount();
      running_.BeginTimed(id, start);
      status = RunKernel(node.kernel, ctx);
      Measured(id, CycleCount() - start);
    } else {
      running_.Begin(id);
      status = RunKernel(node.kernel, ctx);
    }
    FinishNode(node, inputs, outputs, std::move(status), dead, times, nullptr);
  }

  void RunProvided(int32_t id, const CompiledNode& node, EdgeValue* inputs, EdgeValue* outputs,
                   bool dead, NodeTimes& times, KernelContext& ctx) {
    NodeMemory memory(s_, id, node.kernel, &ctx);
    const uint64_t start = CycleCount();
    running_.BeginTimed(id, start);
    Status status = RunKernel(node.kernel, ctx);
    if (kThreaded && (node.flags & kNodeMaybeExpensive)) Measured(id, CycleCount() - start);
    FinishNode(node, inputs, outputs, std::move(status), dead, times, memory.tracked());
  }

  void Measured(int32_t id, uint64_t cycles) {
    graph_.RecordCost(id, cycles);
    ready_cycles_ -= std::min(ready_cycles_, cycles);
  }

  void StartAsync(const CompiledNode& node, EdgeValue* inputs, bool dead, const NodeTimes& times) {
    AsyncCall& call = s_.async_[node.async_index];
    call.step = &s_;
    call.resume = [](Completion* self) {
      auto* done = static_cast<AsyncCall*>(self);
      LoopScope scope(done->step->request());
      FlatLoop<true>(static_cast<FlatStep*>(done->step)).RunAfter(done);
    };
    call.inputs = inputs;
    call.outputs = s_.held_ + node.held_outputs;
    call.times = times;
    call.ctx.emplace(node.kernel, graph_.device(), s_.env(),
                     std::span(inputs, static_cast<std::size_t>(node.num_inputs)),
                     std::span(call.outputs, static_cast<std::size_t>(node.num_outputs)),
                     std::span(node.output_types(), static_cast<std::size_t>(node.num_outputs)));
    call.dead = dead;
    if (dead) call.ctx->set_input_dead(true);
    if (s_.memory() != nullptr) [[unlikely]] {
      call.memory.emplace(call.ctx->allocator(), s_.memory(), node.kernel);
      call.ctx->set_allocator(&*call.memory);
    }
    // Before the start: the callback may come, and finish the step, at any time after it.
    s_.outstanding_.fetch_add(1, std::memory_order_relaxed);
    running_.Begin(call.node);
    if (call.Start(node.kernel)) {
      s_.outstanding_.fetch_sub(1, std::memory_order_relaxed);
      FinishAsync(&call);
    }
  }

  void FinishAsync(AsyncCall* call) {
    Status status = std::exchange(call->status, OkStatus());
    FinishNode(nodes_[call->node], call->inputs, call->outputs, std::move(status), call->dead,
               call->times, call->memory ? &*call->memory : nullptr);
    call->memory.reset();
  }

  void FinishNode(const CompiledNode& node, EdgeValue* inputs, EdgeValue* outputs, Status status,
                  bool dead, NodeTimes& times, NodeAllocator* memory) {
    if (memory != nullptr) [[unlikely]] {
      memory->Finish({outputs, static_cast<std::size_t>(node.num_outputs)});
    }
    if (s_.stats() != nullptr) [[unlikely]] {
      times.op_end = WallNanos();
      s_.stats()->Record(*node.kernel, times, {outputs, static_cast<std::size_t>(node.num_outputs)},
                         memory);
    }
    ClearValues(inputs, node.num_inputs);
    if (status.ok()) [[likely]]
      status = CheckOutputs(node, outputs);
    if (status.ok()) [[likely]] {
      Propagate(node, outputs, dead);
    } else {
      s_.Fail(node, std::move(status));
    }
    ClearValues(outputs, node.num_outputs);
  }

  // Hands the outputs to the successors; `outputs` may be null if the node is dead or has none.
  void Propagate(const CompiledNode& node, EdgeValue* outputs, bool dead) {
    const OutEdge* edge = graph_.edges() + node.edges_begin;
    for (const OutEdge* end = edge + node.num_edges; edge != end; ++edge) {
      bool edge_dead = dead;
      if (edge->flags & kEdgeToMerge) [[unlikely]] {
        ArriveAtMerge(*edge, outputs, dead);
        continue;
      }
      if (!dead && !(edge->flags & kEdgeControl)) {
        EdgeValue& out = outputs[edge->output];
        if (out.kind == EdgeValue::Kind::kDead) [[unlikely]] {
          edge_dead = true;
        } else {
          HandOver(&out, &s_.slots_[edge->slot], (edge->flags & kEdgeLast) != 0);
        }
      }
      if (edge_dead) [[unlikely]] {
        std::atomic_ref(s_.dead_[edge->dst]).store(1, std::memory_order_relaxed);
      }
      if ((edge->flags & kEdgeSole) || Arrive(edge->dst)) AddReady(edge->dst);
    }
  }

  // True for the last arrival. The release half orders the value and the deadness that this
  // thread left before what the thread that runs the node reads.
  bool Arrive(int32_t dst) {
    if constexpr (kThreaded) {
      std::atomic_ref pending(s_.pending_[dst]);
      return pending.load(std::memory_order_acquire) == 1 ||
             pending.fetch_sub(1, std::memory_order_acq_rel) == 1;
    } else {
      return --s_.pending_[dst] == 0;
    }
  }

  // Returns the state before; one total order of all changes decides which of them made the
  // merge ready.
  int32_t ChangeMerge(int32_t dst, int32_t subtract, int32_t keep) {
    if constexpr (kThreaded) {
      std::atomic_ref state(s_.pending_[dst]);
      return subtract != 0 ? state.fetch_sub(subtract, std::memory_order_acq_rel)
                           : state.fetch_and(keep, std::memory_order_acq_rel);
    } else {
      const int32_t old = s_.pending_[dst];
      s_.pending_[dst] = (old - subtract) & keep;
      return old;
    }
  }

  void ArriveAtMerge(const OutEdge& edge, EdgeValue* outputs, bool dead) {
    int32_t before, after;
    if (edge.flags & kEdgeControl) {
      before = ChangeMerge(edge.dst, kMergeControlUnit, -1);
      after = before - kMergeControlUnit;
    } else if (dead || outputs[edge.output].kind == EdgeValue::Kind::kDead) {
      before = ChangeMerge(edge.dst, kMergeDataUnit, -1);
      after = before - kMergeDataUnit;
    } else {
      // A second live value is an error of the graph; it is dropped.
      if (!(ChangeMerge(edge.dst, 0, ~kMergeUnclaimed) & kMergeUnclaimed)) return;
      HandOver(&outputs[edge.output], &s_.slots_[edge.slot], (edge.flags & kEdgeLast) != 0);
      before = ChangeMerge(edge.dst, 0, ~kMergeNoLive);
      after = before & ~kMergeNoLive;
    }
    if (MergeIsReady(before) || !MergeIsReady(after)) return;
    if (after & kMergeNoLive) {
      std::atomic_ref(s_.dead_[edge.dst]).store(1, std::memory_order_relaxed);
    }
    AddReady(edge.dst);
  }

  FlatStep& s_;
  const CompiledGraph& graph_;
  const CompiledNode* const nodes_;
  const bool may_be_dead_;
  int32_t head_ = -1, tail_ = -1;  // ready nodes of this thread
  int32_t expensive_ = -1;         // the latest expensive one, not yet given away
  uint64_t ready_cycles_ = 0;      // about what the list costs, without expensive ones
  EdgeValue scratch_[kScratchOutputs];
  RunningMark running_;
};

void FlatStep::Start(const ExecutorArgs& args, DoneCallback done) {
  Begin(args, done);
  const std::size_t n = graph().nodes().size();
  std::memcpy(pending_, graph().initial_pending().data(), n * sizeof(int32_t));
  if (graph().may_be_dead()) std::memset(dead_, 0, n);
  if (stats() != nullptr) scheduled_ = std::make_unique<std::atomic<int64_t>[]>(n);
  const bool threaded =
      graph().may_be_concurrent() && (pool() != nullptr || graph().num_async() > 0);
  void (*start)(void*) = threaded ? &FlatLoop<true>::RunStart : &FlatLoop<false>::RunStart;
  if (pool() != nullptr && !args.caller_runs) {
    pool()->Schedule({start, this});
  } else {
    start(this);
  }
}

}  // namespace

void RunFlatStep(const CompiledGraph& graph, const ExecutorArgs& args, DoneCallback done) {
  FlatStep::Acquire(graph)->Start(args, done);
}

}  // namespace millrace
