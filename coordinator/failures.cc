// SPDX-License-Identifier: Apache-2.0
// What an error of a session means: whose fault it is, and what is done about it.
#include <algorithm>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"
#include "coordinator/core.h"

namespace millrace {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLook{2'000};
constexpr milliseconds kPause{50};
// A parameter server that refuses connections is asked again for so long: a connection may break
// although both ends live.
constexpr milliseconds kRefusedLimit{1'000};
// A function that failed so often with its session, though no task was lost, fails by itself.
constexpr int kMaxLostSessions = 3;

// The session is gone, whoever may live.
bool IsOfSession(const Status& error) {
  return errors::IsUnavailable(error) || errors::IsAborted(error) ||
         error.GetPayload(kWorkerRestartedPayload).has_value() ||
         (errors::IsCancelled(error) && IsDerived(error));
}

}  // namespace

CoordinatorCore::Verdict CoordinatorCore::Judge(Worker& worker, const CoordinatedSession& session,
                                                const Status& error, Status* why) {
  *why = error;
  if (!MayBeALostTask(error)) return Verdict::kFunction;
  const Status servers = CheckServers();
  if (!servers.ok()) {
    *why = servers;
    return Verdict::kPsLost;
  }
  const TaskProbe::Report report = worker.probe->Look(kLook);
  if (!report.alive.ok() || report.process != session.process()) return Verdict::kWorkerLost;
  return IsOfSession(error) ? Verdict::kSessionLost : Verdict::kFunction;
}

void CoordinatorCore::HandleFailure(Worker& worker,
                                    const std::shared_ptr<CoordinatedSession>& session,
                                    const CoordinatedCallPtr& call, const Status& error) {
  Status why;
  switch (Judge(worker, *session, error, &why)) {
    case Verdict::kFunction:
      return FailFunction(call, Annotate(error, StrCat("; the function '", call->function->name,
                                                       "' at ", worker.probe->task())));
    case Verdict::kPsLost:
      return FailFunction(call, why);
    case Verdict::kWorkerLost:
      Lose(worker, session, Message(error));
      if (++call->lost_with_worker >= options_.max_attempts) {
        return FailFunction(call, Annotate(error, StrCat("; the function '", call->function->name,
                                                         "' was lost with its worker ",
                                                         call->lost_with_worker, " times")));
      }
      return queue_.PutBack(call);
    case Verdict::kSessionLost:
      Lose(worker, session, Message(error));
      if (++call->lost_with_session >= kMaxLostSessions) {
        return FailFunction(call, Annotate(error, StrCat("; the function '", call->function->name,
                                                         "' failed so in ", call->lost_with_session,
                                                         " sessions, and no task was lost")));
      }
      return queue_.PutBack(call);
  }
}

Status CoordinatorCore::CheckServers() {
  MutexLock judge(&judge_mu_);
  for (const auto& server : servers_) {
    {
      MutexLock lock(&mu_);
      if (phase_ != Phase::kRunning) return ps_error_;
    }
    const Status lost = CheckServer(*server);
    if (!lost.ok()) return PsLost(*server, Message(lost));
  }
  return OkStatus();
}

// Asks until it answers, or is taken for lost; the error says why.
Status CoordinatorCore::CheckServer(ParameterServer& server) {
  const Deadline begin = SteadyClock::now();
  while (true) {
    const TaskProbe::Report report = server.probe->Look(std::min(kLook, options_.ps_timeout));
    {
      MutexLock lock(&mu_);
      if (report.process != server.process) return errors::Unavailable("it has restarted");
    }
    if (report.alive.ok()) return OkStatus();
    const milliseconds limit = errors::IsDeadlineExceeded(report.alive)
                                   ? options_.ps_timeout
                                   : std::min(options_.ps_timeout, kRefusedLimit);
    if (SteadyClock::now() - begin >= limit) return report.alive;
    if (!Sleep(kPause)) return OkStatus();
  }
}

Status CoordinatorCore::PsLost(const ParameterServer& server, std::string_view why) {
  Status error = errors::Unavailable(server.probe->task(), " at ", server.address,
                                     " is lost, and its variables with it: ", why,
                                     ". Everything scheduled is cancelled");
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kRunning) return ps_error_;
    phase_.store(Phase::kPsLost, std::memory_order_release);
    ps_error_ = error;
    ++ps_lost_;
  }
  MR_LOG(kWarning, Message(error));
  queue_.FailAll(error);
  LoseAll("a parameter server was lost");
  return error;
}

void CoordinatorCore::Lose(Worker& worker, const std::shared_ptr<CoordinatedSession>& session,
                           std::string_view why) {
  {
    MutexLock lock(&mu_);
    if (worker.session != session) return;
    worker.session = nullptr;
    worker.reason = why;
    worker.since = SteadyClock::now();
    ++sessions_lost_;
    changed_.SignalAll();
  }
  std::vector<CoordinatedCallPtr> calls = session->GiveUp();
  queue_.Wake();
  if (running()) {
    MR_LOG(kInfo, "Worker ", worker.index, " is lost, and ", calls.size(),
           " functions that it still runs are put back: ", why);
  }
  // The last one goes first, so that they stay in order at the head.
  std::reverse(calls.begin(), calls.end());
  for (CoordinatedCallPtr& call : calls) {
    if (++call->lost_with_worker >= options_.max_attempts) {
      FailFunction(call, errors::Unavailable("the function '", call->function->name,
                                             "' was lost with its worker ", call->lost_with_worker,
                                             " times, the last time with ", worker.probe->task(),
                                             ": ", why));
    } else {
      queue_.PutBack(std::move(call));
    }
  }
}

void CoordinatorCore::LoseAll(std::string_view why) {
  for (const auto& worker : workers_) {
    std::shared_ptr<CoordinatedSession> session;
    {
      MutexLock lock(&mu_);
      session = worker->session;
    }
    if (session != nullptr) Lose(*worker, session, why);
  }
}

void CoordinatorCore::FailFunction(const CoordinatedCallPtr& call, const Status& error) {
  queue_.Failed(call, error);
  CancelSoon();
}

// What still runs is given a moment to end by itself.
void CoordinatorCore::CancelSoon() {
  MutexLock lock(&mu_);
  cancel_at_ = DeadlineAfter(options_.cancel_grace);
  changed_.SignalAll();
}

}  // namespace millrace
