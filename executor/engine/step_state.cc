// SPDX-License-Identifier: Apache-2.0
#include "executor/engine/step_state.h"

#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "device/memory_report.h"
#include "kernels/run_kernel.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

// Of one thread: how many loops it is in, and what they shall resume, first come first.
struct ThreadLoops {
  int depth = 0;
  Completion* head = nullptr;
  Completion* tail = nullptr;
};
thread_local ThreadLoops t_loops;

void ResumeTask(void* arg) {
  auto* completion = static_cast<Completion*>(arg);
  completion->resume(completion);
}

void OnAsyncDone(void* arg, Status status) {
  auto* call = static_cast<AsyncCall*>(arg);
  call->status = std::move(status);
  ThreadPool* pool = call->step->pool();
  if (call->state.exchange(AsyncCall::kCompleted, std::memory_order_acq_rel) ==
      AsyncCall::kStarting) {
    return;  // the thread that started it is still there, and goes on with it
  }
  PostCompletion(call, pool);
}

constexpr std::string_view kPlace = "\n\t (op ";

bool FollowsCancellation(StatusCode code) {
  return code == StatusCode::kCancelled || code == StatusCode::kAborted;
}

// "OOM when allocating tensor with shape... on DEVICE by allocator..."
Status AtDevice(const Status& status, std::string_view device) {
  std::string text(Message(status));
  const std::size_t place = text.find(" by allocator ");
  const bool known = text.substr(0, place).find(" on /") != std::string::npos;
  if (!text.starts_with("OOM when ") || place == std::string::npos || known) return status;
  text.insert(place, StrCat(" on ", device));
  return errors::ResourceExhausted(text);
}

// The line that clients look for, "[[{{node n}}]]", and one that says which op it was, where, and
// what made it. An error that comes out of a function has both of the node within it: of the call
// it gets the first line, and of the second what is new.
std::string WhereItFailed(const CompiledGraph& graph, const CompiledNode& node,
                          std::string_view text) {
  const std::string_view origin = graph.origin(graph.IndexOf(node));
  const std::string tag = StrCat("[[{{node ", node.kernel->name(), "}}]]");
  const bool is_known = text.find(tag) != std::string_view::npos;
  const bool has_place = text.find(kPlace) != std::string_view::npos;
  const bool has_origin = origin.empty() || text.find(origin) != std::string_view::npos;
  std::string where = is_known ? "" : StrCat("\n\t ", tag);
  if (!has_place) {
    StrAppend(&where, kPlace, node.kernel->def().name(), " on ", graph.device()->name());
    if (!has_origin) StrAppend(&where, ", made at ", origin);
    where += ')';
  } else if (!has_origin) {
    StrAppend(&where, "\n\t (made at ", origin, ")");
  }
  return where;
}

}  // namespace

LoopScope::LoopScope(int64_t request) : request_(request) { ++t_loops.depth; }

LoopScope::~LoopScope() {
  if (t_loops.depth == 1) RunKeptCompletions();
  --t_loops.depth;
}

void RunKeptCompletions() {
  while (Completion* completion = t_loops.head) {
    t_loops.head = completion->next;
    if (t_loops.head == nullptr) t_loops.tail = nullptr;
    completion->resume(completion);
  }
}

void PostCompletion(Completion* completion, ThreadPool* pool) {
  const bool may_go_on =
      t_loops.depth == 0 && pool != nullptr && (OnEngineThread() || pool->IsCurrentThread());
  if (pool != nullptr && !may_go_on) {
    pool->Schedule({&ResumeTask, completion});
  } else if (t_loops.depth == 0) {
    completion->resume(completion);
  } else {
    completion->next = nullptr;
    (t_loops.tail != nullptr ? t_loops.tail->next : t_loops.head) = completion;
    t_loops.tail = completion;
  }
}

bool AsyncCall::Start(Kernel* kernel) {
  state.store(kStarting, std::memory_order_relaxed);
  if (memory) [[unlikely]] {
    const MemoryTracker::Scope scope(step->memory());
    RunKernelAsync(kernel, *ctx, {&OnAsyncDone, this});
  } else {
    RunKernelAsync(kernel, *ctx, {&OnAsyncDone, this});
  }
  return state.exchange(kReturned, std::memory_order_acq_rel) == kCompleted;
}

void StepState::Begin(const ExecutorArgs& args, DoneCallback done) {
  args_ = args;
  request_ = LogRequest::Current();
  if (args_.pool != nullptr && args_.pool->num_threads() == 0) args_.pool = nullptr;
  cancellation_ = args.env->cancellation;
  done_ = done;
  if (ProgramMemory* plans = graph_.memory(sequential_); plans != nullptr && plans->active()) {
    plans->BeginStep(&arena_, &watch_, args_.memory);
    if (watch_) args_.memory = watch_.get();
  }
  stop_.store(false, std::memory_order_relaxed);
  outstanding_.store(1, std::memory_order_relaxed);
}

void StepState::End() {
  Status status;
  if (failed()) [[unlikely]] {
    MutexLock lock(&mu_);
    status = std::exchange(status_, OkStatus());
  }
  if (arena_ || watch_) {
    graph_.memory(sequential_)->EndStep(failed(), std::move(arena_), std::move(watch_));
  }
  const DoneCallback done = done_;
  graph_.KeepIdleBlock(this, sequential_);
  done(std::move(status));
}

bool StepState::SetStatus(Status status) {
  MutexLock lock(&mu_);
  if (!status_.ok()) return false;
  status_ = std::move(status);
  return true;
}

void StepState::Fail(const CompiledNode& node, Status status) {
  if (cancellation_ != nullptr && cancellation_->IsCancelled() &&
      FollowsCancellation(status.code())) {
    status = MarkDerived(std::move(status));
  }
  // Outside of communication "unavailable" would make the session look for a dead task.
  if (errors::IsUnavailable(status) && !(node.flags & kNodeCommunicates)) {
    status = errors::Internal(Message(status));
  }
  const bool out_of_memory = errors::IsResourceExhausted(status);
  if (out_of_memory) status = AtDevice(status, graph_.device()->name());
  status = Annotate(status, WhereItFailed(graph_, node, Message(status)));
  if (out_of_memory && memory() != nullptr) {
    const std::string refusal = memory()->TakeRefusal();
    if (!refusal.empty()) status = Annotate(status, StrCat("\n", refusal));
  }
  if (out_of_memory) {
    const std::string report = MemoryReport(graph_.device()->allocator());
    if (!report.empty()) status = Annotate(status, StrCat("\n", report));
  }
  const bool first = SetStatus(status);
  stop_.store(true, std::memory_order_relaxed);
  if (!first) return;
  // Whoever receives here, perhaps in another task, only repeats what this step tells itself.
  if (args_.env->rendezvous != nullptr) args_.env->rendezvous->StartAbort(MarkDerived(status));
  if (cancellation_ != nullptr) cancellation_->StartCancel(status);
}

void StepState::StopBecauseCancelled() {
  Status reason = cancellation_->reason();
  if (reason.ok()) reason = errors::Cancelled("the step was cancelled");
  reason = MarkDerived(std::move(reason));
  const bool first = SetStatus(reason);
  stop_.store(true, std::memory_order_relaxed);
  if (first && args_.env->rendezvous != nullptr) args_.env->rendezvous->StartAbort(reason);
}

Status PrepareRefInputs(const CompiledGraph& graph, int32_t id, EdgeValue* inputs) {
  const CompiledNode& node = graph.nodes()[id];
  for (int i = 0; i < node.num_inputs; ++i) {
    EdgeValue& in = inputs[i];
    const bool wants_ref = IsRefType(node.types[i]);
    if (in.kind == EdgeValue::Kind::kValue && wants_ref) {
      return errors::InvalidArgument(i, "-th input expects a ref type");
    }
    if (in.kind != EdgeValue::Kind::kRef) continue;
    MutexLock lock(in.ref_mu);
    if (!in.ref->IsInitialized()) {
      if (!(node.flags & kNodeUninitialisedOk)) {
        return errors::FailedPrecondition("Attempting to use uninitialized value ",
                                          graph.input_name(id, i));
      }
      if (wants_ref) continue;
    }
    if (wants_ref) continue;
    if (in.ref->IsInitialized() && in.ref->dtype() != BaseType(node.types[i])) {
      return errors::InvalidArgument(i, "-th input expects type ", DataTypeName(node.types[i]),
                                     " but automatically dereferenced input tensor has type ",
                                     DataTypeName(in.ref->dtype()));
    }
    in.value = *in.ref;
    in.kind = EdgeValue::Kind::kValue;
  }
  return OkStatus();
}

Status CheckOutputsSlowly(const CompiledNode& node, EdgeValue* outputs) {
  const DataType* types = node.output_types();
  for (int i = 0; i < node.num_outputs; ++i) {
    EdgeValue& out = outputs[i];
    switch (out.kind) {
      case EdgeValue::Kind::kDead:
        break;
      case EdgeValue::Kind::kEmpty:
        if (!(node.flags & kNodeOmitsOutputs)) {
          return errors::Internal("Missing ", i, "-th output from {{node ", node.kernel->name(),
                                  "}}");
        }
        out.kind = EdgeValue::Kind::kDead;
        break;
      case EdgeValue::Kind::kValue:
      case EdgeValue::Kind::kRef: {
        DataType actual = out.value.dtype();
        if (out.kind == EdgeValue::Kind::kRef) {
          MutexLock lock(out.ref_mu);
          // A variable without a value yet has any type.
          actual = out.ref->IsInitialized() ? MakeRefType(out.ref->dtype()) : MakeRefType(types[i]);
        }
        if (actual != types[i]) {
          return errors::Internal("Output ", i, " of type ", DataTypeName(actual),
                                  " does not match declared output type ", DataTypeName(types[i]),
                                  " for node {{node ", node.kernel->name(), "}}");
        }
        break;
      }
    }
  }
  return OkStatus();
}

}  // namespace millrace
