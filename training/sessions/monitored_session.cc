// SPDX-License-Identifier: Apache-2.0
#include "millrace/monitored_session.h"

#include <chrono>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "training/lost_session.h"
#include "training/preemption_wait.h"
#include "training/sessions/hooked_run.h"
#include "training/sessions/manager_options.h"

namespace millrace {
namespace {

// How long a session may take to say whether it is still there.
constexpr std::chrono::seconds kLongestQuestion{10};

bool IsCleanEnd(const Status& cause) { return cause.ok() || errors::IsOutOfRange(cause); }

}  // namespace

struct MonitoredSession::Impl {
  Graph& graph;
  const MonitoredSessionOptions options;
  InitialValues values{};
  std::unique_ptr<SessionManager> manager{};
  std::optional<Session> session{};
  std::unique_ptr<Coordinator> coordinator{};  // of the session
  bool stop_requested = false;
  bool closed = false;
  int recoveries = 0;
  int in_a_row = 0;  // recoveries since a step ended well
  Status failure{};  // of a thread, found by ShouldStop

  Status Begin();
  Status Open();
  Status TryOpen();
  Status EndSession();
  Status Recover(const Status& why);
  Status Check() const;
  Status CauseOf(const Status& error);
  StatusOr<std::vector<Tensor>> Repeat(const std::function<StatusOr<std::vector<Tensor>>()>& step);
  StatusOr<std::vector<Tensor>> RunWithHooks(const SessionRunArgs& args, RunMetadata* metadata);
};

Status MonitoredSession::Impl::Begin() {
  for (const HookPtr& hook : options.hooks) {
    if (hook == nullptr) return errors::InvalidArgument("a hook of the monitored session is null");
    MR_RETURN_IF_ERROR(Guarded([&] { return hook->Begin(graph); }));
  }
  Scaffold& scaffold = *options.scaffold;
  if (!options.checkpoint_dir.empty() || !options.checkpoint_path.empty()) {
    scaffold.needs_saver = true;
  }
  MR_RETURN_IF_ERROR(scaffold.Finalize(graph));
  const std::string line = "Graph was finalized.";
  if (options.log) {
    options.log(line);
  } else {
    MR_LOG(kInfo, line);
  }
  values = {.saver = scaffold.saver,
            .checkpoint_path = options.checkpoint_path,
            .checkpoint_dir = options.checkpoint_dir,
            .init_op = scaffold.init_op,
            .init_feeds = scaffold.init_feeds,
            .init_fn = scaffold.init_fn,
            .keep_values = options.keep_values};
  MR_ASSIGN_OR_RETURN(
      manager, SessionManager::Create(graph, ManagerOptions(options, scaffold, options.log)));
  return OkStatus();
}

Status MonitoredSession::Impl::TryOpen() {
  MR_ASSIGN_OR_RETURN(
      session, options.is_chief ? manager->PrepareSession(values) : manager->WaitForSession());
  coordinator = std::make_unique<Coordinator>();
  for (const HookPtr& hook : options.hooks) {
    MR_RETURN_IF_ERROR(Guarded([&] { return hook->AfterCreateSession(*session, *coordinator); }));
  }
  return OkStatus();
}

// Opens a session, and another one if that is lost before the hooks have all seen it.
Status MonitoredSession::Impl::Open() {
  while (true) {
    const Status status = TryOpen();
    if (status.ok()) return status;
    EndSession().IgnoreError();
    if (!SessionIsLost(status) || in_a_row >= options.max_recoveries) return status;
    ++in_a_row;
    MR_LOG(kWarning, "the session was lost while hooks were told of it (", Message(status),
           "); it is made anew");
    MR_RETURN_IF_ERROR(SleepUnlessPreempted(RecoveryBackOff(in_a_row)));
  }
}

// Closes the session, which cancels what its threads wait for, and waits for these. The error for
// which they stopped.
Status MonitoredSession::Impl::EndSession() {
  Status status;
  if (coordinator) coordinator->RequestStop();
  if (session) {
    const Status closed_status = session->Close();
    if (!SessionIsLost(closed_status)) status = closed_status;
  }
  if (coordinator) {
    const Status joined = coordinator->Join(options.stop_grace_period);
    if (errors::IsDeadlineExceeded(joined) && coordinator->status().ok()) {
      MR_LOG(kWarning, Message(joined));
    } else if (!joined.ok()) {
      status = joined;
    }
  }
  coordinator.reset();
  session.reset();
  return status;
}

Status MonitoredSession::Impl::Recover(const Status& why) {
  MR_RETURN_IF_ERROR(CheckPreemption());
  ++recoveries;
  ++in_a_row;
  MR_LOG(kWarning, "the session was lost (", Message(why), "); recovery ", in_a_row, " of ",
         options.max_recoveries, " without a step in between");
  EndSession().IgnoreError();
  if (in_a_row > 1) MR_RETURN_IF_ERROR(SleepUnlessPreempted(RecoveryBackOff(in_a_row - 1)));
  return Open();
}

// Whether a step may be run.
Status MonitoredSession::Impl::Check() const {
  if (closed)
    return errors::FailedPrecondition("Run called after the monitored session was closed");
  if (stop_requested || (coordinator && coordinator->ShouldStop() && coordinator->status().ok())) {
    return errors::FailedPrecondition("Run called even after should_stop requested.");
  }
  return OkStatus();
}

// A thread saw the root cause if it failed first. A server that ends cancels its steps before it is
// gone: what the session says next tells that from a step that somebody else has cancelled. One
// that says nothing is as good as gone.
Status MonitoredSession::Impl::CauseOf(const Status& error) {
  if (!coordinator || !session || SessionIsLost(error)) return error;
  const Status of_thread = coordinator->status();
  if (SessionIsLost(of_thread)) return of_thread;
  if (!errors::IsCancelled(error) && !errors::IsCancelled(of_thread)) return error;
  const RunOptions shortly{.timeout = kLongestQuestion};
  const Status next =
      session->Run({}, std::span(&options.scaffold->ready_op, 1), {}, shortly).status();
  if (!SessionIsLost(next) && !errors::IsCancelled(next) && !errors::IsDeadlineExceeded(next)) {
    return error;
  }
  return errors::Unavailable("a task that is ending has cancelled the step: ", Message(error));
}

StatusOr<std::vector<Tensor>> MonitoredSession::Impl::Repeat(
    const std::function<StatusOr<std::vector<Tensor>>()>& step) {
  MR_RETURN_IF_ERROR(Check());
  while (true) {
    if (!session) MR_RETURN_IF_ERROR(Open());
    StatusOr<std::vector<Tensor>> result = Guarded(step);
    if (result.ok()) {
      in_a_row = 0;
      return result;
    }
    const Status cause = CauseOf(result.status());
    if (!SessionIsLost(cause)) return cause;
    if (in_a_row >= options.max_recoveries) {
      if (in_a_row == 0) return cause;
      return Annotate(cause, StrCat("; the session was made anew ", in_a_row,
                                    " times, and no step has ended since"));
    }
    MR_RETURN_IF_ERROR(Recover(cause));
  }
}

StatusOr<std::vector<Tensor>> MonitoredSession::Impl::RunWithHooks(const SessionRunArgs& args,
                                                                   RunMetadata* metadata) {
  bool stop = false;
  StatusOr<std::vector<Tensor>> result =
      RunHooked(*session, options.hooks, args, options.session.step_timeout, metadata, &stop);
  if (stop) stop_requested = true;
  return result;
}

MonitoredSession::MonitoredSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MonitoredSession::~MonitoredSession() {
  if (!impl_->closed) impl_->EndSession().IgnoreError();
}

StatusOr<std::unique_ptr<MonitoredSession>> MonitoredSession::Create(
    Graph& graph, MonitoredSessionOptions options) {
  if (!options.scaffold) options.scaffold = std::make_shared<Scaffold>();
  std::unique_ptr<Impl> impl(new Impl{graph, std::move(options)});
  MR_RETURN_IF_ERROR(impl->Begin());
  MR_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<MonitoredSession>(new MonitoredSession(std::move(impl)));
}

StatusOr<std::vector<Tensor>> MonitoredSession::Run(std::span<const Feed> feeds,
                                                    std::span<const Output> fetches,
                                                    std::span<const Operation> targets,
                                                    const RunOptions& options,
                                                    RunMetadata* metadata) {
  const SessionRunArgs args{.fetches = {fetches.begin(), fetches.end()},
                            .targets = {targets.begin(), targets.end()},
                            .feeds = {feeds.begin(), feeds.end()},
                            .options = options};
  return impl_->Repeat([&] { return impl_->RunWithHooks(args, metadata); });
}

Status MonitoredSession::RunTargets(std::initializer_list<Operation> targets) {
  return Run({}, {}, std::span(targets.begin(), targets.size())).status();
}

StatusOr<std::vector<Tensor>> MonitoredSession::RunStepFn(
    const std::function<StatusOr<std::vector<Tensor>>(StepContext&)>& fn) {
  StepContext context(*this);
  return impl_->Repeat([&] { return fn(context); });
}

Session& StepContext::session() const { return *session_.impl_->session; }
StatusOr<std::vector<Tensor>> StepContext::RunWithHooks(const SessionRunArgs& args) const {
  return session_.impl_->RunWithHooks(args, nullptr);
}
Status StepContext::RequestStop() const {
  session_.impl_->stop_requested = true;
  return errors::OutOfRange("the step function has asked to stop");
}

bool MonitoredSession::ShouldStop() {
  Impl& s = *impl_;
  if (s.closed || s.stop_requested || !s.failure.ok() || PreemptionSignal() != 0) return true;
  if (!s.coordinator || !s.coordinator->ShouldStop()) return false;
  if (s.coordinator->status().ok()) return true;
  const Status cause = s.CauseOf(s.coordinator->status());
  s.failure = cause;
  if (SessionIsLost(cause) && s.in_a_row < s.options.max_recoveries) s.failure = s.Recover(cause);
  return !s.failure.ok();
}

Status MonitoredSession::Close(const Status& cause) {
  Impl& s = *impl_;
  if (s.closed) return errors::FailedPrecondition("the monitored session has been closed already");
  Status result = s.failure;
  if (result.ok() && IsCleanEnd(cause) && s.session) {
    for (const HookPtr& hook : s.options.hooks) {
      result = Guarded([&] { return hook->End(*s.session); });
      if (!result.ok()) break;
    }
  }
  s.closed = true;
  const Status ended = s.EndSession();
  if (!IsCleanEnd(cause)) return cause;
  return result.ok() ? ended : result;
}

Status MonitoredSession::RunUntilStop(const std::function<Status()>& step) {
  while (!ShouldStop()) {
    const Status status = Guarded(step);
    if (!status.ok()) return Close(status);
  }
  return Close();
}

Session& MonitoredSession::session() { return *impl_->session; }
int MonitoredSession::recoveries() const { return impl_->recoveries; }

}  // namespace millrace
