// SPDX-License-Identifier: Apache-2.0
#include "executor/engine/framed_step.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "executor/engine/frames.h"
#include "executor/engine/step_state.h"
#include "executor/stats/running_nodes.h"
#include "kernels/run_kernel.h"

namespace millrace {
namespace {

class FramedLoop;

// Kernels run without the lock; what their ends change, changes under it.
class FramedStep final : public StepState {
 public:
  static FramedStep* Acquire(const CompiledGraph& graph) {
    if (StepBlock* idle = graph.TakeIdleBlock(false)) return static_cast<FramedStep*>(idle);
    return new FramedStep(graph);
  }
  explicit FramedStep(const CompiledGraph& graph) : StepState(&graph, false), frames_(&graph) {}

  void Start(const ExecutorArgs& args, DoneCallback done);

  // The ends of nodes.
  void NodeDone(const ReadyNode& node, EdgeValue* outputs, std::vector<ReadyNode>* ready) {
    MutexLock lock(&mu_);
    frames_.NodeDone(node, outputs, ready);
  }
  void BeginFrames(std::vector<ReadyNode>* ready) {
    MutexLock lock(&mu_);
    frames_.Begin(ready);
  }
  void AddWork() { outstanding_.fetch_add(1, std::memory_order_relaxed); }
  void DropWork() {
    if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    {
      MutexLock lock(&mu_);
      frames_.Clear();
    }
    End();
  }

 private:
  Mutex mu_;
  Frames frames_ ABSL_GUARDED_BY(mu_);
};

struct FramedTask {
  FramedStep* step;
  ReadyNode ready;
};

// What a thread had to do when its turn was over.
struct FramedRest {
  FramedStep* step;
  std::vector<ReadyNode> ready;
};

struct FramedCall : AsyncCall {
  ReadyNode ready;
  std::vector<EdgeValue> values;  // outputs
};

// Runs ready nodes on one thread until it has none left.
class FramedLoop {
 public:
  explicit FramedLoop(FramedStep* step)
      : s_(*step),
        graph_(step->graph()),
        running_(graph_, s_.cancellation()),
        scratch_(graph_.max_outputs()) {}

  void RunRoots() {
    s_.BeginFrames(&found_);
    Run();
  }
  void RunFrom(const ReadyNode& ready) {
    queue_.push_back(ready);
    Run();
  }
  void RunRest(std::vector<ReadyNode> ready) {
    queue_ = std::move(ready);
    Run();
  }
  void RunAfter(FramedCall* call) {
    FinishAsync(call);
    Run();
  }

  static void RunTask(void* arg) {
    std::unique_ptr<FramedTask> task(static_cast<FramedTask*>(arg));
    LoopScope scope(task->step->request());
    FramedLoop(task->step).RunFrom(task->ready);
  }
  static void GoOn(void* arg) {
    const std::unique_ptr<FramedRest> rest(static_cast<FramedRest*>(arg));
    LoopScope scope(rest->step->request());
    FramedLoop(rest->step).RunRest(std::move(rest->ready));
  }
  static void RunStart(void* arg) {
    auto* const step = static_cast<FramedStep*>(arg);
    LoopScope scope(step->request());
    FramedLoop(step).RunRoots();
  }

 private:
  void Run() {
    Turn turn;
    turn.Begin(s_.MayYield());
    Sort();
    while (next_ < queue_.size()) {
      if (turn.IsOver()) [[unlikely]]
        return Yield();
      const ReadyNode ready = queue_[next_++];
      if (next_ == queue_.size()) {
        queue_.clear();
        next_ = 0;
      }
      RunNode(ready);
      Sort();
    }
    running_.Idle();
    s_.DropWork();
  }

  // The step goes on behind what others wait for; the count of this loop goes with the rest.
  // Another thread may end the step when this returns.
  void Yield() {
    auto* const rest =
        new FramedRest{&s_, {queue_.begin() + static_cast<std::ptrdiff_t>(next_), queue_.end()}};
    running_.Idle();
    s_.pool()->ScheduleLast({&FramedLoop::GoOn, rest});
  }

  // Cheap nodes stay on this thread, expensive ones go to the pool but for the last.
  void Sort() {
    int last_expensive = -1;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (s_.stats() != nullptr) found_[i].scheduled = WallNanos();
      const int32_t node = found_[i].node;
      const bool expensive = s_.pool() != nullptr && !found_[i].dead &&
                             (graph_.nodes()[node].flags & kNodeMaybeExpensive) &&
                             graph_.IsExpensive(node);
      if (!expensive) {
        queue_.push_back(found_[i]);
        continue;
      }
      if (last_expensive >= 0) Schedule(found_[last_expensive]);
      last_expensive = static_cast<int>(i);
    }
    if (last_expensive >= 0) {
      if (next_ < queue_.size() || HurryScope::InHurry()) {
        Schedule(found_[last_expensive]);
      } else {
        DeferScope::RunDeferred();  // what others wait for must not wait for this node
        queue_.push_back(found_[last_expensive]);
      }
    }
    found_.clear();
  }

  void Schedule(const ReadyNode& ready) {
    s_.AddWork();
    s_.pool()->Schedule({&FramedLoop::RunTask, new FramedTask{&s_, ready}});
  }

  void RunNode(const ReadyNode& ready) {
    const CompiledNode& node = graph_.nodes()[ready.node];
    EdgeValue* inputs = ready.iteration->slots.data() + node.input_begin;
    if (s_.ShouldStop()) return;  // what is left is cleared with the frames
    if (ready.dead && !(node.flags & (kNodeTransfer | kNodeNeverDead))) {
      ClearValues(inputs, node.num_inputs);
      s_.NodeDone(ready, nullptr, &found_);
      return;
    }
    NodeTimes times;
    if (s_.stats() != nullptr) {
      times.scheduled = ready.scheduled;
      times.all_start = times.op_start = times.op_end = WallNanos();
    }
    if (node.flags & kNodeHasRefs) {
      if (Status status = PrepareRefInputs(graph_, ready.node, inputs); !status.ok()) {
        s_.Fail(node, std::move(status));
        return;
      }
    }
    if (node.flags & kNodeAsync) {
      StartAsync(ready, node, inputs, times);
      return;
    }
    KernelContext ctx = Context(ready, node, inputs, scratch_.data());
    std::optional<NodeMemory> memory;
    if (s_.memory() != nullptr) memory.emplace(s_, ready.node, node.kernel, &ctx);
    const uint64_t start = CycleCount();
    running_.InLoop(ready.iteration->frame->since, ready.iteration->number);
    running_.BeginTimed(ready.node, start);
    Status status = RunKernel(node.kernel, ctx);
    if (node.flags & kNodeMaybeExpensive) graph_.RecordCost(ready.node, CycleCount() - start);
    FinishNode(ready, inputs, scratch_.data(), std::move(status), times,
               memory ? memory->tracked() : nullptr);
  }

  KernelContext Context(const ReadyNode& ready, const CompiledNode& node, EdgeValue* inputs,
                        EdgeValue* outputs) {
    KernelContext ctx(node.kernel, graph_.device(), s_.env(),
                      {inputs, static_cast<std::size_t>(node.num_inputs)},
                      {outputs, static_cast<std::size_t>(node.num_outputs)},
                      {node.output_types(), static_cast<std::size_t>(node.num_outputs)});
    ctx.set_frame(ready.iteration->frame->id, ready.iteration->number);
    ctx.set_input_dead(ready.dead);
    return ctx;
  }

  void StartAsync(const ReadyNode& ready, const CompiledNode& node, EdgeValue* inputs,
                  const NodeTimes& times) {
    auto* call = new FramedCall;
    call->ready = ready;
    call->values.resize(node.num_outputs);
    call->step = &s_;
    call->node = ready.node;
    call->inputs = inputs;
    call->outputs = call->values.data();
    call->times = times;
    call->resume = [](Completion* self) {
      auto* done = static_cast<FramedCall*>(self);
      LoopScope scope(done->step->request());
      FramedLoop(static_cast<FramedStep*>(done->step)).RunAfter(done);
    };
    call->ctx.emplace(Context(ready, node, inputs, call->outputs));
    if (s_.memory() != nullptr) {
      call->ctx->set_allocator(
          &call->memory.emplace(call->ctx->allocator(), s_.memory(), node.kernel));
    }
    s_.AddWork();
    running_.Begin(ready.node);
    if (call->Start(node.kernel)) {
      FinishAsync(call);
      s_.DropWork();  // this loop's own count keeps the step alive
    }
  }

  void FinishAsync(FramedCall* call) {
    std::unique_ptr<FramedCall> owned(call);
    FinishNode(call->ready, call->inputs, call->outputs, std::move(call->status), call->times,
               call->memory ? &*call->memory : nullptr);
  }

  void FinishNode(const ReadyNode& ready, EdgeValue* inputs, EdgeValue* outputs, Status status,
                  NodeTimes& times, NodeAllocator* memory) {
    const CompiledNode& node = graph_.nodes()[ready.node];
    const std::span<const EdgeValue> values(outputs, static_cast<std::size_t>(node.num_outputs));
    if (memory != nullptr) memory->Finish(values);
    if (s_.stats() != nullptr) {
      times.op_end = WallNanos();
      s_.stats()->Record(*node.kernel, times, values, memory);
    }
    ClearValues(inputs, node.num_inputs);
    if (status.ok()) status = CheckOutputs(node, outputs);
    if (status.ok()) {
      s_.NodeDone(ready, outputs, &found_);
    } else {
      s_.Fail(node, std::move(status));
    }
    ClearValues(outputs, node.num_outputs);
  }

  FramedStep& s_;
  const CompiledGraph& graph_;
  RunningMark running_;
  std::vector<EdgeValue> scratch_;
  std::vector<ReadyNode> queue_;  // from next_ on
  std::size_t next_ = 0;
  std::vector<ReadyNode> found_;  // became ready, not yet sorted
};

void FramedStep::Start(const ExecutorArgs& args, DoneCallback done) {
  Begin(args, done);
  if (pool() != nullptr && !args.caller_runs) {
    pool()->Schedule({&FramedLoop::RunStart, this});
  } else {
    FramedLoop::RunStart(this);
  }
}

}  // namespace

void RunFramedStep(const CompiledGraph& graph, const ExecutorArgs& args, DoneCallback done) {
  FramedStep::Acquire(graph)->Start(args, done);
}

}  // namespace millrace
