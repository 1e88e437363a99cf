// SPDX-License-Identifier: Apache-2.0
// After a parameter server was lost: until functions may be scheduled again.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "coordinator/core.h"
#include "millrace/preemption.h"

namespace millrace {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLook{2'000};
constexpr milliseconds kPause{100};
// For the session of a worker whose function was cancelled for a notice: what is to be saved by
// then goes through it.
constexpr milliseconds kAfterNotice{2'000};

}  // namespace

bool CoordinatorCore::SetPhase(Phase from, Phase to) {
  MutexLock lock(&mu_);
  if (phase_ != from) return false;
  phase_.store(to, std::memory_order_release);
  changed_.SignalAll();
  return true;
}

Status CoordinatorCore::Recover() {
  MutexLock one(&recover_mu_);
  if (phase_ != Phase::kPsLost) return OkStatus();
  MR_LOG(kInfo, "Cluster now being recovered.");
  const Deadline deadline = DeadlineAfter(options_.connect_timeout);
  Status why, told;
  while (true) {
    const Status status = TryRecover(deadline, &why);
    if (status.ok() && why.ok()) {
      MR_LOG(kInfo, "Cluster successfully recovered.");
      return status;
    }
    if (SetPhase(Phase::kRecovering, Phase::kPsLost)) LoseAll("the recovery has failed");
    MR_RETURN_IF_ERROR(status);
    if (why.code() != told.code()) {
      told = why;
      MR_LOG(kInfo, "Cluster update failed with error: ", Message(why), ". Retrying...");
    }
    if (const Status notice = CheckPreemption(); !notice.ok()) {
      return Annotate(notice, StrCat("; the cluster has not recovered: ", Message(why)));
    }
    if (SteadyClock::now() >= deadline) {
      return errors::DeadlineExceeded("the cluster has not recovered within ",
                                      options_.connect_timeout.count(), " ms: ", Message(why));
    }
    if (!Sleep(kPause)) return errors::FailedPrecondition("the coordinator is being destroyed");
  }
}

// In `why` what may pass; returned is what will not.
Status CoordinatorCore::TryRecover(Deadline deadline, Status* why) {
  std::vector<int64_t> processes, processes_after;
  const StatusOr<std::vector<std::string>> lost = LookAtServers(&processes);
  *why = lost.status();
  if (!why->ok()) return OkStatus();
  if (!SetPhase(Phase::kPsLost, Phase::kRecovering)) {
    return errors::FailedPrecondition("the coordinator is being destroyed");
  }
  const StatusOr<std::shared_ptr<CoordinatedSession>> session = AwaitWorker(deadline);
  *why = session.status();
  if (!why->ok()) return OkStatus();
  if (options_.restore && !lost->empty()) {
    GraphGate::Sending sending(&gate_);
    const Status restored = options_.restore((*session)->session(), *lost);
    const bool may_pass = errors::IsUnavailable(restored) || errors::IsAborted(restored) ||
                          errors::IsCancelled(restored);
    if (!restored.ok() && !may_pass) return restored;
    *why = restored;
    if (!why->ok()) return OkStatus();
  }
  *why = LookAtServers(&processes_after).status();
  if (why->ok() && processes != processes_after) {
    *why = errors::Unavailable("a parameter server has restarted meanwhile");
  }
  if (!why->ok()) return OkStatus();
  {
    MutexLock lock(&mu_);
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_[i]->process = processes[i];
    ps_error_ = OkStatus();
  }
  SetPhase(Phase::kRecovering, Phase::kRunning);
  return OkStatus();
}

// Which processes are there, and the names of those that are not the ones that had the variables.
StatusOr<std::vector<std::string>> CoordinatorCore::LookAtServers(std::vector<int64_t>* processes) {
  processes->clear();
  std::vector<std::string> lost, silent;
  for (const auto& server : servers_) {
    const TaskProbe::Report report = server->probe->Look(kLook);
    if (!report.alive.ok()) {
      silent.push_back(
          StrCat(server->probe->task(), " at ", server->address, ": ", Message(report.alive)));
    }
    processes->push_back(report.process);
    MutexLock lock(&mu_);
    if (report.process != server->process) lost.push_back(server->probe->task());
  }
  if (!silent.empty()) return errors::Unavailable(StrJoin(silent, "; "));
  return lost;
}

StatusOr<std::shared_ptr<CoordinatedSession>> CoordinatorCore::AwaitWorker(Deadline deadline) {
  Status notice;
  {
    MutexLock lock(&mu_);
    while (phase_ == Phase::kRunning || phase_ == Phase::kRecovering) {
      for (const auto& worker : workers_) {
        if (worker->session != nullptr) return worker->session;
      }
      if (notice.ok() && PreemptionSignal() != 0) {
        notice = CheckPreemption();
        deadline = std::min(deadline, DeadlineAfter(kAfterNotice));
      }
      if (!changed_.WaitUntil(&mu_, deadline) && SteadyClock::now() >= deadline) break;
    }
    if (phase_ == Phase::kPsLost && !ps_error_.ok()) return ps_error_;
    if (phase_ == Phase::kStopped) {
      return errors::FailedPrecondition("the coordinator is being destroyed");
    }
  }
  if (!notice.ok()) return Annotate(notice, StrCat("; no worker is there; ", Describe()));
  return errors::DeadlineExceeded("no worker is there; ", Describe());
}

}  // namespace millrace
