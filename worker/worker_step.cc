// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_step.h"

#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "rendezvous/device_rendezvous.h"
#include "session/wait_report.h"
#include "worker/step_waits.h"
#include "worker/worker_session.h"

namespace millrace {
namespace {

// One Receive: counts its keys.
struct Receipt {
  RefPtr<WorkerStep> step;
  const std::vector<std::string>* keys = nullptr;
  std::vector<Tensor>* values = nullptr;
  WorkerStep::Done done;
  std::atomic<int> pending{0};
  Mutex mu;
  Status error ABSL_GUARDED_BY(mu);

  void Fail(Status status) {
    MutexLock lock(&mu);
    if (error.ok()) error = std::move(status);
  }
};

// The tensor that a client's key stands for.
std::string FetchName(const std::string& key) {
  const StatusOr<RendezvousKey> parsed = RendezvousKey::Parse(key);
  return parsed.ok() ? parsed->edge_name : key;
}

}  // namespace

WorkerStep::WorkerStep(const WorkerGraph& graph) : runs_(graph.parts().size()) {
  cancellation_.emplace();
  for (PartRun& run : runs_) run.step = this;
}

void WorkerStep::Prepare(int64_t step_id, RefPtr<Rendezvous> rendezvous,
                         RefPtr<CollectiveExecutor> collective) {
  step_id_ = step_id;
  rendezvous_ = std::move(rendezvous);
  collective_ = std::move(collective);
}

Status WorkerStep::Feed(std::span<const std::pair<std::string, Tensor>> values) {
  for (const auto& [key, value] : values) {
    MR_RETURN_IF_ERROR(rendezvous_->Send(key, value, /*is_dead=*/false));
  }
  return OkStatus();
}

void WorkerStep::Start(ThreadPool* pool, Trace trace, Done done) {
  if (runs_.empty()) return done(OkStatus());
  done_ = std::move(done);
  pending_.store(static_cast<int>(runs_.size()), std::memory_order_relaxed);
  Ref();  // dropped by Ended
  begun_nanos_.store(SteadyNanos(), std::memory_order_relaxed);
  if (graph_->updates() != nullptr) graph_->updates()->Begin(step_id_);
  if (graph_->uses_accelerators()) {
    MutexLock lock(&mu_);
    device_work_ = MakeRef<DeviceWork>();
    device_work_->SetOnError(
        [self = RefPtr<WorkerStep>::Share(this)](const Status& status) { self->Fail(status); });
    device_rendezvous_ = MakeRef<DeviceRendezvous>(rendezvous_, device_work_);
    if (trace == Trace::kAll) {
      activities_ = StepActivities::Start(graph_->resources().devices, device_work_);
    }
  }
  const bool has_threads = pool != nullptr && pool->num_threads() > 0;
  // Nothing of the step is touched after the last part was started: it may have ended.
  const size_t num_parts = runs_.size();
  for (size_t i = 0; i < num_parts; ++i) {
    const WorkerGraph::Part& part = graph_->parts()[i];
    PartRun& run = runs_[i];
    run.env.step_id = step_id_;
    run.env.rendezvous = device_rendezvous_ ? device_rendezvous_.get() : rendezvous_.get();
    run.env.cancellation = &*cancellation_;
    run.env.collective = collective_.get();
    run.env.session_state = graph_->session_state();
    run.env.functions = graph_->functions();
    run.env.inter_op_pool = pool;
    run.env.step_container.clear();
    StrAppend(&run.env.step_container, "__per_step_", step_id_);
    if (trace != Trace::kNone) run.stats.emplace(part.device->name());
    ExecutorArgs args;
    args.env = &run.env;
    args.pool = pool;
    args.stats = run.env.stats = run.stats ? &*run.stats : nullptr;
    if (graph_->memory_limit() > 0 || graph_->memory_quota() || trace != Trace::kNone) {
      run.memory = MakeRef<MemoryTracker>(graph_->memory_limit(), graph_->memory_quota());
      args.memory = run.memory.get();
    }
    // This thread works on the last part; it must not keep the others from starting.
    args.caller_runs = i + 1 == num_parts || !has_threads;
    args.may_yield = true;
    const DoneCallback part_done{&WorkerStep::PartDone, &run};
    if (part.captured != nullptr && !in_rounds_) {
      part.captured->RunAsync(args, part_done);
    } else {
      Executor(part.program.get()).RunAsync(args, part_done);
    }
  }
}

void WorkerStep::PartDone(void* arg, Status status) {
  auto* const run = static_cast<PartRun*>(arg);
  WorkerStep* const step = run->step;
  const WorkerGraph::Part& part = step->graph_->parts()[run - step->runs_.data()];
  part.device->resource_manager()->Cleanup(run->env.step_container);
  if (!status.ok()) step->Fail(status);
  if (step->pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (!step->device_work_) return step->Ended();
  const RefPtr<DeviceWork> work = step->device_work_;  // the step may go with its end
  work->WhenIdle([step](const Status& left) {
    if (!left.ok()) step->Fail(left);
    step->WorkEnded();
  });
}

void WorkerStep::WorkEnded() {
  // A step that has failed, or that was given up, has no trace to wait for.
  if (activities_ == nullptr || !FirstError(OkStatus()).ok()) return Ended();
  activities_->Finish([this] { Ended(); });
}

void WorkerStep::Ended() {
  const Done done = std::exchange(done_, nullptr);
  Status status = FirstError(OkStatus());
  if (graph_->updates() != nullptr) graph_->updates()->End(step_id_, !status.ok());
  done(std::move(status));
  Unref();
}

// The values of other tasks that have not come.
std::vector<Wait> WorkerStep::ListReceives() const {
  constexpr std::size_t kMostKeys = 8 * kMostWaits;
  std::vector<std::string> keys;
  rendezvous_->ListWaits(kMostKeys, &keys);
  std::vector<Wait> waits;
  for (const std::string& key : keys) {
    // What another node of this task has not made yet waits for something itself.
    const StatusOr<RendezvousKey> parsed = RendezvousKey::Parse(key);
    if (!parsed.ok() || parsed->src_device == parsed->dst_device) continue;
    const StatusOr<DeviceName> from = DeviceName::Parse(parsed->src_device);
    const StatusOr<DeviceName> to = DeviceName::Parse(parsed->dst_device);
    if (!from.ok() || !to.ok() || TaskName(*from) == TaskName(*to)) continue;
    Wait& wait = waits.emplace_back();
    wait.kind = Wait::Kind::kReceive;
    wait.name = key;
    wait.device = parsed->dst_device;
    wait.peer = TaskName(*from);
    wait.text =
        StrCat("a value of another task: '", parsed->edge_name, "' from ", parsed->src_device);
    wait.since_nanos = begun_nanos_.load(std::memory_order_relaxed);
  }
  return waits;
}

void WorkerStep::ListWaits(pb::TaskWaits* waits) const {
  std::vector<Wait> others = ListReceives();
  if (const auto* lister = dynamic_cast<const WaitLister*>(collective_.get())) {
    lister->ListWaits(&others);
  }
  AddStepWaits(step_id_, begun_nanos_.load(std::memory_order_relaxed), *graph_, *cancellation_,
               std::move(others), waits);
}

void WorkerStep::Fail(const Status& status) {
  {
    MutexLock lock(&mu_);
    if (!error_.ok()) return;
    error_ = status;
  }
  // Members in other tasks hear the reason from here.
  if (collective_.get() != nullptr) collective_->Abort(status);
  cancellation_->StartCancel(status);
  rendezvous_->StartAbort(MarkDerived(status));
}

void WorkerStep::Cancel(const Status& reason) {
  RefPtr<DeviceWork> work;
  {
    MutexLock lock(&mu_);
    if (!cancel_reason_.ok()) return;
    cancel_reason_ = reason;
    work = device_work_;
    if (work) left_over_ = work->Pending();
  }
  if (collective_.get() != nullptr) collective_->Abort(reason);
  cancellation_->StartCancel(reason);
  rendezvous_->StartAbort(MarkDerived(reason));
  if (work) work->GiveUp();
}

Status WorkerStep::FirstError(Status status) {
  MutexLock lock(&mu_);
  if (!error_.ok()) status = error_;
  if (status.ok() || cancel_reason_.ok()) return status;
  if (!left_over_.empty()) {
    status =
        WithMessage(status, StrCat("the device has not run ", left_over_, "; ", Message(status)));
  }
  if (errors::IsDeadlineExceeded(cancel_reason_)) {
    return Annotate(cancel_reason_, StrCat("; it was waiting for: ", Message(status)));
  }
  // A caller that gave the step up knows why; whoever lost its session does not.
  const bool follows = errors::IsCancelled(status) || IsDerived(status);
  if (!errors::IsCancelled(cancel_reason_)) return follows ? cancel_reason_ : status;
  return MarkDerived(std::move(status));
}

void WorkerStep::Receive(const std::vector<std::string>& keys, std::vector<Tensor>* values,
                         Done done) {
  values->assign(keys.size(), Tensor());
  if (keys.empty()) return done(OkStatus());
  auto* const receipt = new Receipt;
  receipt->step = RefPtr<WorkerStep>::Share(this);
  receipt->keys = &keys;
  receipt->values = values;
  receipt->done = std::move(done);
  receipt->pending.store(static_cast<int>(keys.size()), std::memory_order_relaxed);
  // Neither the step nor the arguments are touched after the last receive: it may end the step.
  const RefPtr<Rendezvous> rendezvous = rendezvous_;
  CancellationManager* const cancellation = &*cancellation_;
  const size_t num_keys = keys.size();
  for (size_t i = 0; i < num_keys; ++i) {
    rendezvous->RecvAsync(keys[i], cancellation,
                          [receipt, i](const Status& status, const Tensor& received, bool is_dead) {
                            if (!status.ok()) {
                              receipt->Fail(status);
                            } else if (is_dead) {
                              receipt->Fail(errors::InvalidArgument(
                                  "The tensor returned for ", FetchName((*receipt->keys)[i]),
                                  " was not valid: it lies on a branch that was "
                                  "not taken."));
                            } else {
                              (*receipt->values)[i] = received;
                            }
                            if (receipt->pending.fetch_sub(1, std::memory_order_acq_rel) != 1)
                              return;
                            Status first;
                            {
                              MutexLock lock(&receipt->mu);
                              first = receipt->error;
                            }
                            if (!first.ok()) first = receipt->step->FirstError(std::move(first));
                            const std::unique_ptr<Receipt> owned(receipt);
                            owned->done(std::move(first));
                          });
  }
}

void WorkerStep::CollectStats(pb::StepStats* stats) {
  for (PartRun& run : runs_) {
    if (run.stats) run.stats->MoveTo(stats);
  }
  if (activities_ != nullptr) activities_->MoveTo(stats);
}

void WorkerStep::Destroy() {
  in_rounds_ = false;
  begun_nanos_.store(0, std::memory_order_relaxed);
  activities_ = nullptr;
  rendezvous_.reset();
  collective_.reset();
  cancellation_.emplace();
  for (PartRun& run : runs_) {
    run.env.rendezvous = nullptr;
    run.env.cancellation = nullptr;
    run.env.collective = nullptr;
    run.stats.reset();
    run.memory.reset();
  }
  {
    MutexLock lock(&mu_);
    error_ = OkStatus();
    cancel_reason_ = OkStatus();
    left_over_.clear();
    device_work_.reset();
    device_rendezvous_.reset();
  }
  std::shared_ptr<WorkerSession> session = std::move(session_);
  std::shared_ptr<WorkerGraph> graph = std::move(graph_);
  ResetRefCount();
  graph->Recycle(this);
  graph.reset();  // the graph may go with this reference, and its idle steps with it
  if (session != nullptr) WorkerSession::Forget(std::move(session));
}

}  // namespace millrace
