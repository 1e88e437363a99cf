// SPDX-License-Identifier: Apache-2.0
// What every running step has, whatever its graph looks like: its arguments, its first
// error, its asynchronous calls; and the checks around a kernel.
#ifndef EXECUTOR_ENGINE_STEP_STATE_H_
#define EXECUTOR_ENGINE_STEP_STATE_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/engine_thread.h"
#include "base/mutex.h"
#include "executor/compiled_graph.h"
#include "executor/engine/cycle_count.h"
#include "executor/executor.h"
#include "executor/memory/memory_tracker.h"
#include "executor/memory/step_arena.h"
#include "executor/stats/step_stats.h"
#include "kernels/kernel_context.h"

namespace millrace {

// Work that became possible while a thread was busy in a loop of some step. Run from there
// it would nest without bound (a send completes a receive, whose successors send...), so it
// is handed to the pool or kept until the outermost loop of the thread is idle.
struct Completion {
  Completion* next = nullptr;
  void (*resume)(Completion* self) = nullptr;
};

// Marks that this thread is in a loop, which is one burst of work. Nests; only the outermost
// one runs what was kept.
class LoopScope {
 public:
  // What the loop's kernels log is of that request; 0: of none.
  explicit LoopScope(int64_t request);
  ~LoopScope();
  LoopScope(const LoopScope&) = delete;
  LoopScope& operator=(const LoopScope&) = delete;

 private:
  DeferScope burst_;
  const LogRequest request_;
};

// Runs what was kept so far: before this thread waits for a step from within a loop.
void RunKeptCompletions();
// `pool` may be null.
void PostCompletion(Completion* completion, ThreadPool* pool);

// How long a thread has been in a loop of a step that may give it to others.
class Turn {
 public:
  // A step of a client must not keep others from theirs for longer.
  static constexpr int64_t kTurnNanos = 5'000'000;

  // At the beginning of a turn.
  void Begin(bool may_yield) { ends_ = may_yield ? SteadyNanos() + kTurnNanos : kNever; }
  bool IsOver() const { return ends_ != kNever && SteadyNanos() >= ends_; }

 private:
  static constexpr int64_t kNever = -1;
  int64_t ends_ = kNever;
};

class StepState;

// One asynchronous node under way.
struct AsyncCall : Completion {
  enum State : int { kStarting, kReturned, kCompleted };
  StepState* step = nullptr;
  int32_t node = -1;
  bool dead = false;
  EdgeValue* inputs = nullptr;
  EdgeValue* outputs = nullptr;
  std::optional<KernelContext> ctx;
  std::optional<NodeAllocator> memory;
  Status status;
  NodeTimes times;
  // Who comes second, the return of ComputeAsync or its callback, finishes the node.
  std::atomic<int> state{kStarting};

  // Starts the kernel; true if it completed at once: then the caller finishes the node.
  bool Start(Kernel* kernel);
};

class StepState : public StepBlock {
 public:
  StepState(const CompiledGraph* graph, bool sequential)
      : graph_(*graph), sequential_(sequential) {}

  const CompiledGraph& graph() const { return graph_; }
  StepEnv* env() const { return args_.env; }
  const CancellationManager* cancellation() const { return cancellation_; }
  ThreadPool* pool() const { return args_.pool; }  // null if it has no threads
  StepStatsCollector* stats() const { return args_.stats; }
  MemoryTracker* memory() const { return args_.memory; }
  // The block with the places of the node's outputs; null if it has none there.
  StepArena* ArenaOf(int32_t node) const {
    return arena_ && arena_->plan().first[node] >= 0 ? arena_.get() : nullptr;
  }
  bool has_arena() const { return static_cast<bool>(arena_); }
  // Whether a kernel's memory is more than what the device's allocator gives.
  bool Provides(int32_t node) const {
    return args_.memory != nullptr || (arena_ && arena_->plan().first[node] >= 0);
  }

  // Whether this thread may be given to others before the step has ended.
  bool MayYield() const {
    return args_.may_yield && args_.pool != nullptr &&
           (args_.pool->IsCurrentThread() || OnEngineThread());
  }

  // True if no further node shall begin.
  bool ShouldStop() {
    if (stop_.load(std::memory_order_relaxed)) [[unlikely]]
      return true;
    if (cancellation_ != nullptr && cancellation_->IsCancelled()) [[unlikely]] {
      StopBecauseCancelled();
      return true;
    }
    return false;
  }
  // That the thread worked for which began the step.
  int64_t request() const { return request_; }

  // Takes the error of a node; the first one ends the step.
  void Fail(const CompiledNode& node, Status status);

 protected:
  void Begin(const ExecutorArgs& args, DoneCallback done);
  // The last thing that happens to a step; the caller has cleaned the rest.
  void End();
  bool failed() const { return stop_.load(std::memory_order_relaxed); }

  // Loops and asynchronous calls under way, where there can be more than one.
  std::atomic<int32_t> outstanding_{0};

 private:
  void StopBecauseCancelled();
  // False if there was an error before.
  bool SetStatus(Status status);

  const CompiledGraph& graph_;
  const bool sequential_;
  ExecutorArgs args_;
  int64_t request_ = 0;
  CancellationManager* cancellation_ = nullptr;
  DoneCallback done_;
  RefPtr<StepArena> arena_;
  RefPtr<MemoryTracker> watch_;
  std::atomic<bool> stop_{false};
  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

// The memory of one run of a synchronous kernel, while it is in scope.
class NodeMemory {
 public:
  NodeMemory(const StepState& step, int32_t node, Kernel* kernel, KernelContext* ctx)
      : ctx_(ctx), before_(ctx->allocator()), scope_(step.memory()) {
    Allocator* allocator = before_;
    if (StepArena* arena = step.ArenaOf(node)) {
      allocator = &planned_.emplace(allocator, arena, node);
    }
    if (step.memory() != nullptr) {
      allocator = &tracked_.emplace(allocator, step.memory(), kernel);
    }
    ctx_->set_allocator(allocator);
  }
  ~NodeMemory() { ctx_->set_allocator(before_); }
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  // Null if nothing is counted.
  NodeAllocator* tracked() { return tracked_ ? &*tracked_ : nullptr; }

 private:
  KernelContext* const ctx_;
  Allocator* const before_;
  std::optional<ArenaAllocator> planned_;
  std::optional<NodeAllocator> tracked_;
  const MemoryTracker::Scope scope_;
};

inline void ClearValue(EdgeValue* value) {
  if (value->kind == EdgeValue::Kind::kEmpty) return;
  if (value->kind == EdgeValue::Kind::kValue) value->value = Tensor();
  value->kind = EdgeValue::Kind::kEmpty;
}
inline void ClearValues(EdgeValue* values, int count) {
  for (int i = 0; i < count; ++i) ClearValue(&values[i]);
}
// Into an empty slot.
inline void HandOver(EdgeValue* from, EdgeValue* to, bool last) {
  if (from->kind == EdgeValue::Kind::kRef) {
    to->ref = from->ref;
    to->ref_mu = from->ref_mu;
  } else if (last) {
    to->value = std::move(from->value);
  } else {
    to->value = from->value;
  }
  to->kind = from->kind;
  if (last) from->kind = EdgeValue::Kind::kEmpty;
}

// For nodes with kNodeHasRefs: turns references into values where values are expected.
// FailedPrecondition on an uninitialised variable, InvalidArgument where a reference is
// missing or the type is wrong.
Status PrepareRefInputs(const CompiledGraph& graph, int32_t node, EdgeValue* inputs);

// Internal if an output is missing or of another type than declared.
Status CheckOutputsSlowly(const CompiledNode& node, EdgeValue* outputs);
inline Status CheckOutputs(const CompiledNode& node, EdgeValue* outputs) {
  const DataType* types = node.output_types();
  for (int i = 0; i < node.num_outputs; ++i) {
    if (outputs[i].kind != EdgeValue::Kind::kValue || outputs[i].value.dtype() != types[i])
        [[unlikely]] {
      return CheckOutputsSlowly(node, outputs);
    }
  }
  return OkStatus();
}

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_STEP_STATE_H_
