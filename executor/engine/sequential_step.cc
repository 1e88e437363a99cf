// SPDX-License-Identifier: Apache-2.0
// The hot path of steps that need one thread only: no counters, no queue, no atomic operation
// but those of the buffers' shares.
#include "executor/engine/sequential_step.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/engine_thread.h"
#include "executor/engine/sequential_program.h"
#include "executor/engine/step_state.h"
#include "executor/stats/running_nodes.h"
#include "kernels/common/isa.h"
#include "kernels/run_kernel.h"
#include "tensor/allocator.h"

#define MR_NOINLINE __attribute__((noinline))

namespace millrace {
namespace {

// With a pool, costs are measured in every so many steps, but for those of scalars: a node that
// became expensive shall be seen to be.
constexpr uint64_t kStepsPerMeasurement = 64;

// What a register keeps for the next scalar.
constexpr std::size_t kKeptBytes = 64;

// Invariant between steps: all registers but those of constants are empty (a buffer may be kept
// in them), nothing is dead.
class SequentialStep final : public StepState {
 public:
  static SequentialStep* Acquire(const CompiledGraph& graph) {
    if (StepBlock* idle = graph.TakeIdleBlock(true)) return static_cast<SequentialStep*>(idle);
    return new SequentialStep(graph);
  }

  explicit SequentialStep(const CompiledGraph& graph)
      : StepState(&graph, true),
        program_(*graph.sequential()),
        registers_(program_.num_registers),
        isolated_(program_.max_isolated) {
    // A merge looks there even where nothing can be dead: no switch need be in its graph.
    merge_dead_.resize(program_.num_merge_slots);
    if (!program_.may_be_dead) return;
    dead_.resize(graph.nodes().size() + 1);
    loops_.resize(program_.loops.size());
    live_exit_.resize(graph.nodes().size());
    dead_enter_.resize(graph.nodes().size());
  }

  void Start(const ExecutorArgs& args, DoneCallback done) {
    Begin(args, done);
    if (pool() != nullptr && !args.caller_runs) {
      pool()->Schedule({&SequentialStep::RunStart, this});
    } else {
      RunStart(this);
    }
  }

 private:
  struct LoopState {
    bool again = false;       // a NextIteration was live
    bool dead_enter = false;  // a constant Enter is dead
    uint64_t since = 0;       // when it began, by the processor's tick
    int64_t rounds = 0;
  };

  static void RunStart(void* arg) {
    auto* const step = static_cast<SequentialStep*>(arg);
    LoopScope scope(step->request());
    step->Run();
  }

  void Run() {
    if (!RunTurn()) {
      pool()->ScheduleLast({&SequentialStep::RunStart, this});  // another thread may have it now
      return;
    }
    if (measures_) graph().CostsChanged();
    if (failed()) [[unlikely]]
      CleanUp();
    End();
  }

  // False if the step is to go on later: others have waited for this thread.
  bool RunTurn() {
    RunningMark running(graph(), cancellation());
    running_ = &running;
    if (next_op_ == 0) {
      measures_ = pool() != nullptr && num_steps_++ % kStepsPerMeasurement == 0;
      keeps_ = memory() == nullptr;
      if (!has_constants_) LoadConstants();
    } else {
      running.InLoop(0, 0);  // until it has gone round on this thread
    }
    const bool observes = measures_ || memory() != nullptr || has_arena();
    turn_.Begin(!program_.loops.empty() && MayYield());
    bool ended;
    if (program_.may_be_dead) {
      ended = observes ? RunOps<true, true>() : RunOps<true, false>();
    } else {
      ended = observes ? RunOps<false, true>() : RunOps<false, false>();
    }
    running.Idle();
    return ended;
  }

  // Their values stay in their registers.
  void LoadConstants() {
    KernelContext ctx(graph().device(), env());
    for (const auto& [id, reg] : program_.constants) {
      const CompiledNode& node = graph().nodes()[id];
      ctx.Bind(node.kernel,
               {.out = &registers_[reg], .num_outputs = 1, .output_types = node.output_types()});
      Status status = RunKernel(node.kernel, ctx);
      if (status.ok()) status = CheckOutputs(node, &registers_[reg]);
      if (!status.ok()) return Fail(node, std::move(status));
    }
    has_constants_ = true;
  }

  void CleanUp() {
    for (EdgeValue& value : registers_) ClearValue(&value);
    for (EdgeValue& value : isolated_) ClearValue(&value);
    has_constants_ = false;
    std::fill(dead_.begin(), dead_.end(), 0);
    std::fill(merge_dead_.begin(), merge_dead_.end(), 0);
    std::fill(live_exit_.begin(), live_exit_.end(), 0);
    std::fill(dead_enter_.begin(), dead_enter_.end(), 0);
    std::fill(loops_.begin(), loops_.end(), LoopState());
  }

  // From next_op_ on; false if it is not at the end.
  template <bool kMayBeDead, bool kObserves>
  bool RunOps() {
    using Kind = SeqOp::Kind;
    KernelContext ctx(graph().device(), env());
    const SeqOp* const begin = program_.ops.data();
    const SeqOp* const end = begin + program_.ops.size();
    for (const SeqOp* op = begin + std::exchange(next_op_, 0); op != end; ++op) {
      if (ShouldStop()) [[unlikely]]
        return true;
      if constexpr (kMayBeDead) {
        if (dead_[op->node] && SkipDead(*op)) continue;
      }
      switch (op->kind) {
        case Kind::kCompute:
          if (!Compute<kObserves>(*op, ctx)) [[unlikely]]
            return true;
          break;
        case Kind::kLong:
          running_->Begin(op->node);
          if (!Compute<kObserves>(*op, ctx)) [[unlikely]]
            return true;
          break;
        case Kind::kScalar:
          if (!Scalar<kObserves>(*op) && !Compute<kObserves>(*op, ctx)) [[unlikely]]
            return true;
          break;
        case Kind::kIsolated:
          running_->Begin(op->node);
          if (!ComputeIsolated<kObserves>(*op, ctx)) [[unlikely]]
            return true;
          break;
        case Kind::kArg:
          if (!Arg(*op, ctx)) [[unlikely]]
            return true;
          break;
        case Kind::kRetval:
          if (!Retval(*op, ctx)) [[unlikely]]
            return true;
          break;
        case Kind::kMark:
          break;
        case Kind::kMove:
          Move(*op);
          break;
        case Kind::kSwitch:
          if (!Switch(*op, ctx)) [[unlikely]]
            return true;
          break;
        case Kind::kMerge:
          if (!Merge(*op)) [[unlikely]]
            return true;
          break;
        case Kind::kLoopMerge:
          MergeInLoop(*op);
          break;
        case Kind::kLoopBegin:
          BeginLoop(program_.loops[op->registers], &loops_[op->registers]);
          break;
        case Kind::kLoopEnd:
          if (NextIteration(program_.loops[op->registers], &loops_[op->registers])) {
            op = begin + program_.loops[op->registers].begin;
            if (turn_.IsOver()) [[unlikely]] {
              next_op_ = op + 1 - begin;
              return false;
            }
            continue;
          }
          break;
      }
      Clear(*op);
    }
    return true;
  }

  // Mostly there is nothing to clear, or one scalar: that much is in the loop.
  MR_ALWAYS_INLINE void Clear(const SeqOp& op) {
    if (op.num_clears == 0) return;
    const int32_t* reg = program_.clears.data() + op.clears;
    const int32_t* const end = reg + op.num_clears;
    for (const int32_t* const kept_end = reg + op.num_kept; reg != kept_end; ++reg) {
      KeepBuffer(&registers_[*reg]);
    }
    if (reg != end) ClearRange(reg, end);
  }

  // The value is gone, but the memory of a scalar stays for the next one in this register. What
  // is watched has to be given back.
  MR_ALWAYS_INLINE void KeepBuffer(EdgeValue* value) {
    const bool keep = IsScalar(*value) && value->value.OwnsBufferAlone() &&
                      value->value.buffer()->size() <= kKeptBytes && keeps_;
    if (keep) [[likely]] {
      value->kind = EdgeValue::Kind::kEmpty;
    } else {
      ClearSlowly(value);
    }
  }

  MR_NOINLINE static void ClearSlowly(EdgeValue* value) { ClearValue(value); }
  MR_NOINLINE void ClearRange(const int32_t* begin, const int32_t* end) {
    for (; begin != end; ++begin) ClearValue(&registers_[*begin]);
  }

  EdgeValue& Register(const SeqOp& op, int input) {
    return registers_[program_.registers[op.registers + input]];
  }
  EdgeValue& Output(const SeqOp& op, int output) { return Register(op, op.num_inputs + output); }
  static bool IsLast(const SeqOp& op, int input) {
    return input < 64 && (op.last_reader >> input & 1) != 0;
  }
  const CompiledNode& NodeOf(const SeqOp& op) const { return graph().nodes()[op.node]; }

  template <bool kObserves>
  Status Call(const SeqOp& op, KernelContext& ctx) {
    if constexpr (kObserves) {
      if (Provides(op.node)) return CallProvided(op, ctx);
      return CallMeasured(op, ctx);
    }
    return RunKernel(op.kernel, ctx);
  }

  Status CallMeasured(const SeqOp& op, KernelContext& ctx) {
    const bool measured = measures_ && (NodeOf(op).flags & kNodeMaybeExpensive);
    const uint64_t start = measured ? CycleCount() : 0;
    Status status = RunKernel(op.kernel, ctx);
    if (measured) graph().RecordCost(op.node, CycleCount() - start);
    return status;
  }

  Status CallProvided(const SeqOp& op, KernelContext& ctx) {
    NodeMemory provided(*this, op.node, op.kernel, &ctx);
    Status status = CallMeasured(op, ctx);
    if (provided.tracked() == nullptr) return status;
    const EdgeValue* const isolated = isolated_.data() + op.num_inputs;
    for (int i = 0; i < op.num_outputs; ++i) {
      provided.tracked()->Describe(op.kind == SeqOp::Kind::kIsolated ? isolated[i] : Output(op, i));
    }
    return status;
  }

  static bool IsScalar(const EdgeValue& value) {
    return value.kind == EdgeValue::Kind::kValue && value.value.rank() == 0;
  }

  // False if it is not for the scalar function of the kernel.
  template <bool kObserves>
  MR_ALWAYS_INLINE bool Scalar(const SeqOp& op) {
    if (kObserves && !keeps_) return false;
    const int32_t* const registers = program_.registers.data() + op.registers;
    const EdgeValue& a = registers_[registers[0]];
    const EdgeValue& b = registers_[registers[op.num_inputs - 1]];
    if (!IsScalar(a) || !IsScalar(b)) return false;
    EdgeValue& out = registers_[registers[op.num_inputs]];
    Tensor& to = out.value;
    const bool has_place =
        to.dtype() == op.output_types[0] && to.rank() == 0 && to.OwnsBufferAlone();
    if (!has_place && !MakePlace(op.output_types[0], &to)) [[unlikely]]
      return false;
    if (!program_.scalars[op.moves](a.value.raw_data(), b.value.raw_data(), to.raw_data())) {
      return false;
    }
    out.kind = EdgeValue::Kind::kValue;
    return true;
  }

  // False without memory: then Compute says so.
  MR_NOINLINE bool MakePlace(DataType dtype, Tensor* to) {
    StatusOr<Tensor> made = Tensor::Allocate(graph().device()->allocator(), dtype, Shape());
    if (!made.ok()) return false;
    *to = *std::move(made);
    return true;
  }

  // These return false when the step has failed.
  template <bool kObserves>
  MR_ALWAYS_INLINE bool Compute(const SeqOp& op, KernelContext& ctx) {
    const int32_t* const registers = program_.registers.data() + op.registers;
    ctx.Bind(op.kernel, {.in = registers_.data(),
                         .out = registers_.data(),
                         .in_index = registers,
                         .out_index = registers + op.num_inputs,
                         .num_inputs = op.num_inputs,
                         .num_outputs = op.num_outputs,
                         .output_types = op.output_types,
                         .last_reader = op.last_reader});
    Status status = Call<kObserves>(op, ctx);
    if (!status.ok()) [[unlikely]]
      return Failed(op, std::move(status));
    for (int i = 0; i < op.num_outputs; ++i) {
      const EdgeValue& out = Output(op, i);
      if (out.kind != EdgeValue::Kind::kValue || out.value.dtype() != op.output_types[i])
          [[unlikely]] {
        return Failed(op, WrongOutputs(op));
      }
    }
    return true;
  }

  MR_NOINLINE bool Failed(const SeqOp& op, Status status) {
    Fail(NodeOf(op), std::move(status));
    return false;
  }

  MR_NOINLINE Status WrongOutputs(const SeqOp& op) {
    std::vector<EdgeValue> outputs(op.num_outputs);
    for (int i = 0; i < op.num_outputs; ++i) outputs[i] = Output(op, i);
    return CheckOutputsSlowly(NodeOf(op), outputs.data());
  }

  template <bool kObserves>
  bool ComputeIsolated(const SeqOp& op, KernelContext& ctx) {
    const CompiledNode& node = NodeOf(op);
    EdgeValue* const inputs = isolated_.data();
    EdgeValue* const outputs = inputs + op.num_inputs;
    for (int i = 0; i < op.num_inputs; ++i) {
      EdgeValue& from = Register(op, i);
      if (from.kind != EdgeValue::Kind::kEmpty) HandOver(&from, &inputs[i], IsLast(op, i));
    }
    Status status;
    if (node.flags & kNodeHasRefs) status = PrepareRefInputs(graph(), op.node, inputs);
    if (status.ok()) {
      ctx.Bind(op.kernel, {.in = inputs,
                           .out = outputs,
                           .num_inputs = op.num_inputs,
                           .num_outputs = op.num_outputs,
                           .output_types = op.output_types});
      ctx.set_input_dead(runs_dead_);
      status = Call<kObserves>(op, ctx);
      ctx.set_input_dead(false);
      runs_dead_ = false;
    }
    ClearValues(inputs, op.num_inputs);
    if (status.ok()) status = CheckOutputs(node, outputs);
    if (!status.ok()) [[unlikely]]
      return Failed(op, std::move(status));
    for (int i = 0; i < op.num_outputs; ++i) {
      if (outputs[i].kind == EdgeValue::Kind::kDead) {
        PushDead(node, i);
        ClearValue(&outputs[i]);
      } else {
        HandOver(&outputs[i], &Output(op, i), true);
      }
    }
    return true;
  }

  bool Arg(const SeqOp& op, KernelContext& ctx) {
    const std::span<const Tensor> args = env()->call_args;
    const auto index = static_cast<std::size_t>(op.moves);
    if (index >= args.size() || args[index].dtype() != op.output_types[0]) [[unlikely]] {
      return Compute<false>(op, ctx);  // which says what is wrong
    }
    EdgeValue& out = Output(op, 0);
    out.value = args[index];
    out.kind = EdgeValue::Kind::kValue;
    return true;
  }

  bool Retval(const SeqOp& op, KernelContext& ctx) {
    const std::span<Tensor> results = env()->call_results;
    const auto index = static_cast<std::size_t>(op.moves);
    if (index >= results.size()) [[unlikely]]
      return Compute<false>(op, ctx);  // which says what is wrong
    EdgeValue& from = Register(op, 0);
    if (IsLast(op, 0)) {
      results[index] = std::move(from.value);
      from.kind = EdgeValue::Kind::kEmpty;
    } else {
      results[index] = from.value;
    }
    return true;
  }

  // Like HandOver; what the one register kept, the other one keeps from now on.
  static void HandOn(EdgeValue* from, EdgeValue* to, bool last) {
    if (!last || from->kind != EdgeValue::Kind::kValue) return HandOver(from, to, last);
    std::swap(from->value, to->value);
    to->kind = EdgeValue::Kind::kValue;
    from->kind = EdgeValue::Kind::kEmpty;
  }

  void Move(const SeqOp& op) {
    EdgeValue& from = Register(op, 0);
    for (int i = 0; i < op.num_moves; ++i) {
      const bool last = i + 1 == op.num_moves && IsLast(op, 0);
      HandOn(&from, &registers_[program_.moves[op.moves + i]], last);
    }
    const uint32_t flags = NodeOf(op).flags;
    if (flags & kNodeNextIteration) {
      loops_[LoopOf(op)].again = true;
    } else if (flags & kNodeExit) {
      live_exit_[op.node] = 1;
    }
  }

  bool Switch(const SeqOp& op, KernelContext& ctx) {
    const Tensor& predicate = Register(op, 1).value;
    if (predicate.dtype() != kBool || predicate.num_elements() != 1) [[unlikely]] {
      return Compute<false>(op, ctx);  // which says what is wrong
    }
    const int taken = predicate.scalar<bool>() ? 1 : 0;
    HandOn(&Register(op, 0), &Output(op, taken), IsLast(op, 0));
    PushDead(NodeOf(op), 1 - taken);
    return true;
  }

  // Where its inputs are dead is known, not where they are live: a register may hold what only
  // passed by.
  bool Merge(const SeqOp& op) {
    uint8_t* const dead = merge_dead_.data() + program_.merge_slots[op.node];
    int live = -1;
    for (int i = 0; i < op.num_inputs; ++i) {
      if (!dead[i] && live < 0) live = i;
      dead[i] = 0;
    }
    if (live < 0) {
      PushDead(NodeOf(op), -1);
      return true;
    }
    HandOver(&Register(op, live), &Output(op, 0), IsLast(op, live));
    EdgeValue& index = Output(op, 1);
    StatusOr<Tensor> which = Tensor::Allocate(HostAllocator(), kInt32, Shape());
    if (!which.ok()) return Failed(op, which.status());
    index.value = *std::move(which);
    index.value.data<int32_t>()[0] = live;
    index.kind = EdgeValue::Kind::kValue;
    return true;
  }

  void MergeInLoop(const SeqOp& op) {
    uint8_t* const dead = merge_dead_.data() + program_.merge_slots[op.node];
    bool live = false;
    for (int i = 0; i < op.num_inputs; ++i) {
      live = live || !dead[i];
      dead[i] = 0;
    }
    if (!live) PushDead(NodeOf(op), -1);
  }

  // ---- deadness ----

  // Tells whoever reads `output` (all that follows for -1) that it will not come.
  void PushDead(const CompiledNode& node, int output) {
    const OutEdge* edge = graph().edges() + node.edges_begin;
    for (const OutEdge* const end = edge + node.num_edges; edge != end; ++edge) {
      const bool control = (edge->flags & kEdgeControl) != 0;
      if (output >= 0 && (control || edge->output != output)) continue;
      if (!(edge->flags & kEdgeToMerge)) {
        dead_[edge->dst] = 1;
      } else if (!control) {
        const int32_t input = edge->slot - graph().nodes()[edge->dst].input_begin;
        merge_dead_[program_.merge_slots[edge->dst] + input] = 1;
      }
    }
  }

  // False if the node is to run all the same.
  bool SkipDead(const SeqOp& op) {
    dead_[op.node] = 0;
    const CompiledNode& node = NodeOf(op);
    if (node.flags & kNodeNeverDead) return false;
    if (node.flags & kNodeTransfer) {
      runs_dead_ = true;
      return false;
    }
    if (node.flags & kNodeConstantEnter) {
      dead_enter_[op.node] = 1;
    } else if (!(node.flags & kNodeExit)) {
      PushDead(node, -1);
    }
    Clear(op);
    return true;
  }

  // ---- loops ----

  int32_t LoopOf(const SeqOp& op) const { return program_.loop_of_frame[NodeOf(op).frame]; }

  void BeginLoop(const SeqLoop& loop, LoopState* state) {
    state->since = CycleCount();
    running_->InLoop(state->since, 0);
    for (const int32_t slot : loop.next_slots) merge_dead_[slot] = 1;
    for (const int32_t enter : loop.constant_enters) {
      state->dead_enter = state->dead_enter || dead_enter_[enter] != 0;
    }
    if (state->dead_enter) PushDeadEnters(loop);
  }

  void PushDeadEnters(const SeqLoop& loop) {
    for (const int32_t enter : loop.constant_enters) {
      if (dead_enter_[enter]) PushDead(graph().nodes()[enter], -1);
    }
  }

  // False when the loop is over.
  bool NextIteration(const SeqLoop& loop, LoopState* state) {
    if (state->again) {
      state->again = false;
      // Its nodes may all be too cheap to be noted.
      running_->InLoop(state->since, ++state->rounds);
      running_->Begin(loop.node);
      for (const int32_t slot : loop.enter_slots) merge_dead_[slot] = 1;
      if (state->dead_enter) PushDeadEnters(loop);
      return true;
    }
    *state = LoopState();
    for (const int32_t slot : loop.next_slots) merge_dead_[slot] = 0;
    for (const int32_t enter : loop.constant_enters) dead_enter_[enter] = 0;
    for (const int32_t exit : loop.exits) {
      if (!live_exit_[exit]) PushDead(graph().nodes()[exit], -1);
      live_exit_[exit] = 0;
    }
    return false;
  }

  const SequentialProgram& program_;
  RunningMark* running_ = nullptr;  // of the thread in this step
  std::vector<EdgeValue> registers_;
  std::vector<EdgeValue> isolated_;  // inputs and outputs of one kernel
  uint64_t num_steps_ = 0;
  Turn turn_;
  std::ptrdiff_t next_op_ = 0;  // not the first: where the step goes on
  bool measures_ = false;       // in this step
  bool keeps_ = true;           // in this step: nobody watches its memory
  bool has_constants_ = false;
  bool runs_dead_ = false;                       // the next isolated kernel: a transfer
  std::vector<uint8_t> dead_, merge_dead_;       // by node, by merge slot
  std::vector<uint8_t> live_exit_, dead_enter_;  // by node
  std::vector<LoopState> loops_;
};

}  // namespace

void RunSequentialStep(const CompiledGraph& graph, const ExecutorArgs& args, DoneCallback done) {
  SequentialStep::Acquire(graph)->Start(args, done);
}

}  // namespace millrace
