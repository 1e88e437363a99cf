// SPDX-License-Identifier: Apache-2.0
#include "worker/partial_steps.h"

#include <utility>
#include <vector>

#include "base/deadline_timer.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "session/inter_op_pools.h"
#include "worker/overdue.h"

namespace millrace {

struct PartialSteps::Entry {
  RefPtr<WorkerStep> step;

  Mutex mu;
  bool ended ABSL_GUARDED_BY(mu) = false;
  Status outcome ABSL_GUARDED_BY(mu);
  std::vector<WorkerInterface::Done> waiters ABSL_GUARDED_BY(mu);

  void End(Status status) {
    std::vector<WorkerInterface::Done> ready;
    {
      MutexLock lock(&mu);
      if (ended) return;  // it was given up
      ended = true;
      outcome = status;
      ready.swap(waiters);
    }
    for (const auto& done : ready) done(status);
  }

  // A call was cancelled because of its deadline: whoever waits for the end of the step waits no
  // longer than this. `request_id` is the call's.
  static void EndWithin(std::shared_ptr<Entry> entry, std::chrono::milliseconds grace,
                        int64_t request_id) {
    DeadlineTimer::Global().Schedule(DeadlineAfter(grace),
                                     [entry, request_id] { entry->GiveUp(request_id); });
  }

  void GiveUp(int64_t request_id) {
    {
      MutexLock lock(&mu);
      if (ended) return;
    }
    const std::string description = DescribeOverdue(step->cancellation());
    LogOverdue(step->step_id(), request_id, description);
    End(errors::DeadlineExceeded(description));
  }

  void WhenEnded(WorkerInterface::Done done) {
    Status status;
    {
      MutexLock lock(&mu);
      if (!ended) {
        waiters.push_back(std::move(done));
        return;
      }
      status = outcome;
    }
    done(std::move(status));
  }
};

std::shared_ptr<PartialSteps::Entry> PartialSteps::FindOrStart(
    const std::shared_ptr<WorkerSession>& session, const std::shared_ptr<WorkerGraph>& graph,
    const RunGraphArgs& args, Status* status) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(&mu_);
    const auto it = entries_.find(args.step_id);
    if (it != entries_.end()) return it->second;
    entry = std::make_shared<Entry>();
    entry->step = WorkerGraph::NewStep(graph);
    entry->step->Prepare(args.step_id, session->env().rendezvous->Find(args.step_id));
    entry->step->RunInRounds();
    if (!session->AddStep(session, entry->step.get())) {
      *status = errors::Aborted("Session handle is not found: ", args.session_handle);
      return nullptr;
    }
    entries_.emplace(args.step_id, entry);
  }
  const LogRequest named(args.request_id);
  entry->step->Start(InterOpPool(session->env(), args.inter_op_thread_pool), TraceOf(args),
                     [entry, session](Status outcome) {
                       WorkerStep* const step = entry->step.get();
                       entry->End(std::move(outcome));
                       session->RemoveStep(step);
                     });
  return entry;
}

void PartialSteps::Run(const CallOptions& options, const std::shared_ptr<WorkerSession>& session,
                       const std::shared_ptr<WorkerGraph>& graph, RunGraphArgs* args,
                       RunGraphResult* result, WorkerInterface::Done done) {
  Status status;
  const std::shared_ptr<Entry> entry = FindOrStart(session, graph, *args, &status);
  if (entry == nullptr) return done(std::move(status));
  const RefPtr<WorkerStep> step = entry->step;
  CancellationManager* const caller = options.cancellation;
  CancellationManager::Token token = -1;
  if (caller != nullptr) {
    token = caller->NextToken();
    const auto cancel = [entry, caller, request_id = args->request_id] {
      const bool is_late = errors::IsDeadlineExceeded(caller->reason());
      entry->step->Cancel(errors::Cancelled("RunGraph was cancelled"));
      if (is_late) Entry::EndWithin(entry, kOverdueGrace, request_id);
    };
    if (!caller->RegisterCallback(token, cancel)) cancel();
  }
  status = step->Feed(args->sends);
  if (!status.ok()) {
    if (caller != nullptr) (void)caller->TryDeregisterCallback(token);
    return done(step->FirstError(std::move(status)));
  }
  const bool is_last = args->is_last_partial;
  step->Receive(
      args->recv_keys, &result->recvs,
      [this, entry, step, caller, token, result, is_last, done = std::move(done)](Status received) {
        auto finish = [this, step, caller, token, result, is_last, done](Status outcome) {
          if (caller != nullptr) (void)caller->TryDeregisterCallback(token);
          if (is_last) {
            if (outcome.ok()) step->CollectStats(&result->step_stats);
            Forget(step->step_id());
          }
          done(std::move(outcome));
        };
        if (!is_last || !received.ok()) return finish(std::move(received));
        entry->WhenEnded(std::move(finish));
      });
}

void PartialSteps::Forget(int64_t step_id) {
  std::shared_ptr<Entry> forgotten;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto it = entries_.find(step_id);
  if (it == entries_.end()) return;
  forgotten = std::move(it->second);
  entries_.erase(it);
}

}  // namespace millrace
