// SPDX-License-Identifier: Apache-2.0
#include "millrace/session_manager.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"
#include "millrace/variables.h"
#include "training/initializers.h"
#include "training/lost_session.h"
#include "training/preemption_wait.h"
#include "training/ready_signal.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

// Before trying again what failed at once; each time in a row twice as long.
constexpr milliseconds kPause{20}, kLongestPause{500};
// For an announcement that has been made already, if it ever will be.
constexpr milliseconds kShortestWait{100};
// How long this task is in a wait of a session before it looks whether it is to end.
constexpr milliseconds kLongestRun{1'000};
// How long the first attempt to open a session lasts before this task is told for whom it waits;
// each further one lasts twice as long.
constexpr milliseconds kFirstAttempt{5'000};

milliseconds Left(Deadline deadline) {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline - SteadyClock::now()),
                  milliseconds(1));
}

}  // namespace

struct SessionManager::Impl {
  Graph& graph;
  const SessionManagerOptions options;
  ReadySignal signal{};
  std::string last_reason{};
  bool was_ready = false;  // everything had a value once

  void Log(const std::string& line) const {
    if (options.log) {
      options.log(line);
    } else {
      MR_LOG(kInfo, line);
    }
  }
  void Tell(const std::string& reason) {
    if (reason == last_reason) return;
    last_reason = reason;
    if (options.on_wait) options.on_wait(reason);
  }

  // Brings a session up with `prepare`, again for as long as tasks are missing or come and go.
  StatusOr<Session> Open(const std::function<Status(Session&, Deadline)>& prepare) {
    const Deadline deadline = DeadlineAfter(options.max_wait);
    milliseconds pause = kPause;
    for (milliseconds attempt = kFirstAttempt;;) {
      SessionOptions session_options = options.session;
      session_options.start_timeout =
          std::clamp(std::min(Left(deadline), attempt), milliseconds(1),
                     std::max(session_options.start_timeout, milliseconds(1)));
      StatusOr<Session> session = Session::Create(graph, session_options);
      Status status = session.status();
      // No answer yet is no reason to give up before the deadline.
      const bool no_answer = errors::IsDeadlineExceeded(status);
      if (no_answer) attempt *= 2;
      if (status.ok()) status = Guarded([&] { return prepare(*session, deadline); });
      if (status.ok()) return session;
      if (!(no_answer || SessionIsLost(status)) || SteadyClock::now() >= deadline) return status;
      Tell(StrCat("waiting for the cluster: ", Message(status)));
      MR_RETURN_IF_ERROR(SleepUnlessPreempted(std::min(pause, Left(deadline))));
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  // What an op of names reports. What cannot be asked is not ready; what does not answer is waited
  // for as long as any step of the session, and no longer than all may take.
  StatusOr<std::vector<std::string>> Missing(Session& session, const Output& ready_op,
                                             Deadline deadline) const {
    std::vector<std::string> names;
    if (!ready_op.valid()) return names;
    RunOptions run{.timeout = Left(deadline)};
    const milliseconds limit = options.session.step_timeout;
    const bool is_last = limit.count() == 0 || run.timeout <= limit;
    if (!is_last) run.timeout = limit;
    const StatusOr<std::vector<Tensor>> report = session.Run({}, std::span(&ready_op, 1), {}, run);
    if (errors::IsFailedPrecondition(report.status())) {
      names.emplace_back(Message(report.status()));
      return names;
    }
    if (errors::IsDeadlineExceeded(report.status()) && is_last) {
      return errors::DeadlineExceeded("Session was not ready after waiting ",
                                      options.max_wait.count(), " ms: {{node ",
                                      ready_op.op().name(),
                                      "}}, which says what has no value, has "
                                      "not ended: ",
                                      Message(report.status()));
    }
    MR_RETURN_IF_ERROR(report.status());
    MR_ASSIGN_OR_RETURN(const auto texts, (*report)[0].TryFlat<std::string>());
    names.assign(texts.begin(), texts.end());
    return names;
  }

  // True if there was a checkpoint.
  StatusOr<bool> Restore(Session& session, const InitialValues& values, Deadline deadline) {
    if (!values.saver) return false;
    std::string prefix = values.checkpoint_path;
    while (prefix.empty() && !values.checkpoint_dir.empty()) {
      prefix = LatestCheckpoint(values.checkpoint_dir);
      if (!prefix.empty() || !values.wait_for_checkpoint || SteadyClock::now() >= deadline) break;
      Tell(StrCat("waiting for a checkpoint in ", values.checkpoint_dir));
      MR_RETURN_IF_ERROR(SleepUnlessPreempted(std::min(options.recovery_wait, Left(deadline))));
    }
    if (prefix.empty()) return false;
    Log(StrCat("Restoring parameters from ", prefix));
    MR_RETURN_IF_ERROR(values.saver->Restore(session, prefix));
    if (values.checkpoint_path.empty()) RememberCheckpoints(values);
    return true;
  }

  // What was kept before the restart is deleted in its turn.
  void RememberCheckpoints(const InitialValues& values) {
    if (!values.saver || values.checkpoint_dir.empty()) return;
    if (!values.saver->last_checkpoints().empty()) return;
    const auto state = RecoverCheckpointState(values.checkpoint_dir);
    if (state) values.saver->RecoverLastCheckpoints(state->all_model_checkpoint_paths);
  }

  // Gives everything a value. `missing`: what had none.
  Status Initialise(Session& session, const InitialValues& values,
                    const std::vector<std::string>& missing) {
    if (!values.init_op.valid() && !values.init_fn && !options.local_init_op.valid()) {
      return errors::FailedPrecondition(
          "Model is not initialized and no init_op or init_fn or local_init_op was given");
    }
    if (values.init_op.valid()) {
      std::vector<Operation> initializers = {values.init_op};
      if (values.keep_values && !missing.empty()) {
        initializers = InitializersOf(graph, values.init_op, missing);
      }
      if (was_ready || initializers != std::vector<Operation>{values.init_op}) {
        MR_LOG(kWarning, missing.size(), " variable(s) have lost their values and are initialised ",
               "anew: ", StrJoin(missing, ", "));
      }
      MR_RETURN_IF_ERROR(session.Run(values.init_feeds, {}, initializers).status());
    }
    return values.init_fn ? values.init_fn(session) : OkStatus();
  }

  Status PrepareChief(Session& session, const InitialValues& values, Deadline deadline) {
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> missing,
                        Missing(session, options.ready_for_local_init_op, deadline));
    const bool has_values =
        options.ready_for_local_init_op.valid() && missing.empty() && !Variables(graph).empty();
    if (!values.keep_values || !has_values) {
      MR_ASSIGN_OR_RETURN(const bool restored, Restore(session, values, deadline));
      if (!restored) MR_RETURN_IF_ERROR(Initialise(session, values, missing));
    } else if (values.checkpoint_path.empty()) {
      RememberCheckpoints(values);
    }
    MR_RETURN_IF_ERROR(PrepareLocally(session, deadline));
    was_ready = true;
    return Announce(session);
  }

  // The part that every task has: what is local, and the check that nothing is missing.
  Status PrepareLocally(Session& session, Deadline deadline) {
    if (options.local_init_op.valid()) {
      MR_ASSIGN_OR_RETURN(const std::vector<std::string> missing,
                          Missing(session, options.ready_for_local_init_op, deadline));
      if (!missing.empty()) {
        return errors::FailedPrecondition(
            "Init operations did not make model ready for local_init: these have no value: ",
            StrJoin(missing, ", "));
      }
      Log("Running local_init_op.");
      MR_RETURN_IF_ERROR(session
                             .Run(options.local_init_feeds, {},
                                  std::span(&options.local_init_op, 1), options.local_init_run)
                             .status());
      Log("Done running local_init_op.");
    }
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> missing,
                        Missing(session, options.ready_op, deadline));
    if (missing.empty()) return OkStatus();
    return errors::FailedPrecondition(
        "Init operations did not make model ready: these have no value: ", StrJoin(missing, ", "));
  }

  // Ends the waits of the others.
  Status Announce(Session& session) {
    for (const Operation& op : signal.announce) {
      const Status status = session.RunTargets({op});
      if (!status.ok() && !errors::IsCancelled(status)) return status;  // Cancelled: it was before
    }
    return OkStatus();
  }

  // Until the chief has announced that it is ready, or for at most `limit`. True if it has.
  StatusOr<bool> AwaitChief(Session& session, milliseconds limit) {
    const Deadline end = DeadlineAfter(limit);
    for (const Operation& op : signal.await) {
      Status status;
      do {
        MR_RETURN_IF_ERROR(CheckPreemption());
        const RunOptions run{.timeout = std::min(Left(end), kLongestRun)};
        status = session.Run({}, {}, std::span(&op, 1), run).status();
      } while (errors::IsDeadlineExceeded(status) && SteadyClock::now() < end);
      if (errors::IsDeadlineExceeded(status)) return false;
      if (!status.ok() && !errors::IsOutOfRange(status)) return status;
    }
    return !signal.await.empty();
  }

  Status WaitForChief(Session& session, Deadline deadline) {
    const Output& ready = options.ready_for_local_init_op.valid() ? options.ready_for_local_init_op
                                                                  : options.ready_op;
    std::string reason;
    const auto gave_up = [&] {
      return errors::DeadlineExceeded("Session was not ready after waiting ",
                                      options.max_wait.count(), " ms: gave up ", reason);
    };
    for (bool announced = false;;) {
      const StatusOr<std::vector<std::string>> report = Missing(session, ready, deadline);
      // The last look may have had no time left: what the one before saw is why.
      if (errors::IsDeadlineExceeded(report.status()) && !reason.empty() &&
          SteadyClock::now() >= deadline) {
        return gave_up();
      }
      MR_RETURN_IF_ERROR(report.status());
      const std::vector<std::string>& missing = *report;
      if (missing.empty()) {
        // What a session runs, and dumps, shall not depend on who came first.
        MR_RETURN_IF_ERROR(AwaitChief(session, kShortestWait).status());
        return PrepareLocally(session, deadline);
      }
      reason = StrCat("waiting for the chief to initialise ", missing.size(),
                      " variable(s): ", StrJoin(missing, ", "));
      if (SteadyClock::now() >= deadline) return gave_up();
      Tell(reason);
      const milliseconds wait = std::min(options.recovery_wait, Left(deadline));
      // An announcement from before the variables were lost says nothing.
      if (announced || signal.await.empty()) MR_RETURN_IF_ERROR(SleepUnlessPreempted(wait));
      MR_ASSIGN_OR_RETURN(announced, AwaitChief(session, wait));
    }
  }
};

SessionManager::SessionManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SessionManager::~SessionManager() = default;

StatusOr<std::unique_ptr<SessionManager>> SessionManager::Create(
    Graph& graph, const SessionManagerOptions& options) {
  MR_RETURN_IF_ERROR(graph.status());
  if (options.ready_for_local_init_op.valid() && !options.local_init_op.valid()) {
    return errors::InvalidArgument(
        "If you pass a ready_for_local_init_op you must also pass a local_init_op");
  }
  std::unique_ptr<Impl> impl(new Impl{graph, options});
  if (!options.session.target.empty()) {
    MR_ASSIGN_OR_RETURN(impl->signal, MakeReadySignal(graph));
  }
  return std::unique_ptr<SessionManager>(new SessionManager(std::move(impl)));
}

StatusOr<Session> SessionManager::PrepareSession(const InitialValues& values) {
  return impl_->Open([&](Session& session, Deadline deadline) {
    return impl_->PrepareChief(session, values, deadline);
  });
}

StatusOr<Session> SessionManager::RecoverSession(const InitialValues& values, bool* recovered) {
  *recovered = false;
  return impl_->Open([&](Session& session, Deadline deadline) -> Status {
    MR_ASSIGN_OR_RETURN(const bool restored, impl_->Restore(session, values, deadline));
    if (!restored) return OkStatus();
    const Status status = impl_->PrepareLocally(session, deadline);
    *recovered = status.ok();
    return errors::IsFailedPrecondition(status) ? OkStatus() : status;
  });
}

StatusOr<Session> SessionManager::WaitForSession() {
  return impl_->Open(
      [&](Session& session, Deadline deadline) { return impl_->WaitForChief(session, deadline); });
}

}  // namespace millrace
