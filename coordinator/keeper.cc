// SPDX-License-Identifier: Apache-2.0
// The threads of a coordinator: keepers of workers' sessions, runners of functions, and the one
// that watches the parameter servers.
#include <algorithm>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "coordinator/core.h"

namespace millrace {

using std::chrono::milliseconds;

namespace {

// A look at a task that may not answer.
constexpr milliseconds kLook{2'000};
// Before trying again what failed at once; each time in a row twice as long.
constexpr milliseconds kPause{50}, kLongestPause{2'000};
// How long the first attempt to make a session lasts; each further one twice as long, up to what
// the session's options say.
constexpr milliseconds kFirstAttempt{5'000};

}  // namespace

void CoordinatorCore::Spawn(std::function<void(CoordinatorCore&)> body) {
  {
    MutexLock lock(&mu_);
    ++threads_;
  }
  // Not joined: it may be in a call that does not end, and shares what it uses.
  std::thread([self = shared_from_this(), body = std::move(body)] {
    body(*self);
    MutexLock lock(&self->mu_);
    --self->threads_;
    self->changed_.SignalAll();
  }).detach();
}

bool CoordinatorCore::Sleep(milliseconds time) {
  const Deadline deadline = DeadlineAfter(time);
  MutexLock lock(&mu_);
  while (phase_ != Phase::kStopped && SteadyClock::now() < deadline) {
    changed_.WaitUntil(&mu_, deadline);
  }
  return phase_ != Phase::kStopped;
}

void CoordinatorCore::KeepWorker(Worker& worker) {
  for (milliseconds pause = kPause;;) {
    const std::shared_ptr<CoordinatedSession> session = Connect(worker);
    if (session == nullptr) return;
    Watch(worker, session);
    const Status closed = session->session().Close();
    if (!closed.ok()) MR_LOG(kDebug, worker.probe->task(), " was not told: ", Message(closed));
    // A session in which nothing ever ends well is not made again and again without a pause.
    pause = session->has_finished() ? kPause : std::min(pause * 2, kLongestPause);
    if (!Sleep(pause)) return;
  }
}

std::shared_ptr<CoordinatedSession> CoordinatorCore::Connect(Worker& worker) {
  milliseconds pause = kPause;
  for (milliseconds attempt = kFirstAttempt;;) {
    {
      MutexLock lock(&mu_);
      while (phase_ == Phase::kIdle || phase_ == Phase::kPsLost) changed_.Wait(&mu_);
      if (phase_ == Phase::kStopped) return nullptr;
    }
    StatusOr<std::shared_ptr<CoordinatedSession>> session = TryConnect(worker, attempt);
    if (session.ok()) {
      if (Publish(worker, *session)) return *std::move(session);
      (*session)->session().Close().IgnoreError();
      continue;
    }
    const Status& status = session.status();
    if (errors::IsDeadlineExceeded(status)) attempt = attempt * 2;
    {
      MutexLock lock(&mu_);
      worker.reason = Message(status);
    }
    if (!MayBeALostTask(status)) {
      // What is wrong with the graph stays wrong.
      queue_.FailAll(Annotate(status, StrCat("; no session could be made at ", worker.probe->task(),
                                             " at ", worker.address)));
      CancelSoon();
    }
    if (!Sleep(pause)) return nullptr;
    pause = std::min(pause * 2, kLongestPause);
  }
}

StatusOr<std::shared_ptr<CoordinatedSession>> CoordinatorCore::TryConnect(Worker& worker,
                                                                          milliseconds attempt) {
  const TaskProbe::Report report = worker.probe->Look(kLook);
  MR_RETURN_IF_ERROR(report.alive);
  SessionOptions options = options_.session;
  options.target = worker.probe->target();
  options.device_filters = {"/job:ps", worker.probe->task()};
  options.start_timeout = std::min(options.start_timeout, attempt);
  options.step_timeout = options_.function_timeout;
  StatusOr<Session> session = [&] {
    GraphGate::Sending sending(&gate_);
    return Session::Create(*graph_, options);
  }();
  MR_RETURN_IF_ERROR(session.status());
  return std::make_shared<CoordinatedSession>(worker.index, report.process, *std::move(session),
                                              &gate_, &worker.progress);
}

// False if it is not wanted any more.
bool CoordinatorCore::Publish(Worker& worker, const std::shared_ptr<CoordinatedSession>& session) {
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kRunning && phase_ != Phase::kRecovering) return false;
    worker.session = session;
    changed_.SignalAll();
  }
  if (session->process() > 1) MR_LOG(kInfo, "Worker ", worker.index, " has been recovered.");
  for (int i = 0; i < options_.max_in_flight; ++i) {
    Spawn([&worker, session](CoordinatorCore& core) { core.RunFunctions(worker, session); });
  }
  return true;
}

// Returns when the session has been given up.
void CoordinatorCore::Watch(Worker& worker, const std::shared_ptr<CoordinatedSession>& session) {
  Deadline last_sign = SteadyClock::now(), next_beat = DeadlineAfter(options_.heartbeat);
  Deadline cancelled = kNoDeadline;  // the last one that was seen to
  while (true) {
    bool cancel = false;
    {
      MutexLock lock(&mu_);
      while (true) {
        if (worker.session != session) return;
        const Deadline now = SteadyClock::now();
        cancel = cancel_at_ != cancelled && cancel_at_ <= now;
        if (cancel) cancelled = cancel_at_;
        if (cancel || now >= next_beat) break;
        changed_.WaitUntil(&mu_,
                           cancel_at_ == cancelled ? next_beat : std::min(next_beat, cancel_at_));
      }
    }
    if (cancel) {
      if (!session->busy() || !queue_.cancelling()) continue;
      Lose(worker, session, "what it ran was cancelled, because an error came before");
      return;
    }
    if (!Beat(worker, session, &last_sign)) return;
    next_beat = DeadlineAfter(options_.heartbeat);
  }
}

// False if the worker is lost.
bool CoordinatorCore::Beat(Worker& worker, const std::shared_ptr<CoordinatedSession>& session,
                           Deadline* last_sign) {
  const TaskProbe::Report report = worker.probe->Look(kLook);
  if (report.process != session->process()) {
    Lose(worker, session, "it has restarted");
    return false;
  }
  if (report.alive.ok()) {
    *last_sign = SteadyClock::now();
    return true;
  }
  const auto silent = std::chrono::duration_cast<milliseconds>(SteadyClock::now() - *last_sign);
  if (errors::IsDeadlineExceeded(report.alive) && silent < options_.worker_timeout) return true;
  Lose(worker, session,
       errors::IsDeadlineExceeded(report.alive)
           ? StrCat("it has shown no sign of life for ", silent.count() / 1000, " s")
           : std::string(Message(report.alive)));
  return false;
}

void CoordinatorCore::RunFunctions(Worker& worker,
                                   const std::shared_ptr<CoordinatedSession>& session) {
  while (CoordinatedCallPtr call = queue_.Take(session->given_up())) {
    if (!session->Begin(call)) {
      queue_.PutBack(std::move(call));
      return;
    }
    std::vector<Tensor> outputs;
    const Status status = RunOne(*session, *call, &outputs);
    if (!session->End(call)) return;  // somebody else has it by now
    if (status.ok()) {
      session->SetFinished();
      call->result->Finish(worker.index, std::move(outputs));
      queue_.Finished(call);
    } else {
      HandleFailure(worker, session, call, status);
    }
  }
}

Status CoordinatorCore::RunOne(CoordinatedSession& session, const CoordinatedCall& call,
                               std::vector<Tensor>* outputs) {
  std::shared_ptr<const Callable> callable = session.Find(call.function->id);
  if (callable == nullptr) {
    std::vector<std::shared_ptr<const PerWorkerInit>> inits;
    {
      MutexLock lock(&mu_);
      inits = inits_;
    }
    MR_ASSIGN_OR_RETURN(callable, session.Prepare(*call.function, inits));
  }
  return callable->Run(call.inputs, outputs);
}

void CoordinatorCore::WatchServers() {
  while (Sleep(options_.heartbeat)) {
    if (running()) CheckServers().IgnoreError();
  }
}

}  // namespace millrace
