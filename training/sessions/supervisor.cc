// SPDX-License-Identifier: Apache-2.0
#include "millrace/supervisor.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"
#include "millrace/variables.h"
#include "training/hooks/hook_support.h"
#include "training/lost_session.h"
#include "training/preemption_wait.h"
#include "training/sessions/manager_options.h"

namespace millrace {

struct Supervisor::Impl {
  Graph& graph;
  const SupervisorOptions options;
  Output global_step{};  // not valid: the graph has none
  std::shared_ptr<EventWriter> events{};
  std::unique_ptr<SessionManager> manager{};
  std::optional<Session> session{};
  std::unique_ptr<Coordinator> coordinator = std::make_unique<Coordinator>();

  bool HasServices() const { return options.is_chief && !options.logdir.empty(); }

  Status Prepare() {
    Scaffold& scaffold = *options.scaffold;
    scaffold.needs_saver |= HasServices();
    MR_RETURN_IF_ERROR(scaffold.Finalize(graph));
    const std::vector<Variable> steps = Variables(graph, kGlobalStep);
    global_step = options.global_step;
    if (!global_step.valid() && !steps.empty()) global_step = steps.front().read;
    if (options.is_chief) events = options.summary_writer;
    if (HasServices()) {
      MR_RETURN_IF_ERROR(PosixFileSystem()->CreateDirectories(options.logdir));
      if (!events) {
        MR_ASSIGN_OR_RETURN(events, EventWriter::Create(options.logdir, {.filename_suffix = ""}));
      }
    }
    MR_ASSIGN_OR_RETURN(
        manager, SessionManager::Create(graph, ManagerOptions(options, scaffold, options.io.log)));
    return OkStatus();
  }

  StatusOr<int64_t> Step() {
    if (!global_step.valid()) return 0;
    return hooks::ReadStep(*session, global_step);
  }

  // A run that a stop has cancelled is not an error of the service.
  Status Service(const std::function<Status()>& work) {
    const Status status = work();
    return coordinator->ShouldStop() ? OkStatus() : status;
  }

  Status SaveModel() {
    SaveOptions save;
    if (global_step.valid()) {
      MR_ASSIGN_OR_RETURN(save.global_step, Step());
    }
    const std::string prefix = StrCat(options.logdir, "/", options.checkpoint_basename);
    MR_RETURN_IF_ERROR(options.scaffold->saver->Save(*session, prefix, save).status());
    if (!save.global_step) return OkStatus();
    return events->WriteSessionCheckpoint(prefix, *save.global_step);
  }

  Status WriteGraph() {
    if (HasServices()) MR_RETURN_IF_ERROR(hooks::WriteGraphText(options.logdir, graph));
    return events ? hooks::WriteGraphEvents(*events, graph, options.scaffold->saver.get())
                  : OkStatus();
  }

  // After the services: one may be writing the checkpoint of this very step.
  Status SaveAtEnd() {
    coordinator->RequestStop();
    const Status services = coordinator->Join(options.stop_grace_period);
    if (!services.ok()) MR_LOG(kWarning, "saving after a service has failed: ", Message(services));
    MR_RETURN_IF_ERROR(SaveModel());
    return SyncSaves();
  }

  // Waits for a checkpoint that a saver writes aside.
  Status SyncSaves() const {
    if (!HasServices() || options.scaffold->saver == nullptr) return OkStatus();
    return options.scaffold->saver->Sync();
  }

  Status SaveSummaries() {
    MR_ASSIGN_OR_RETURN(const int64_t step, Step());
    MR_ASSIGN_OR_RETURN(const Tensor summary, session->Eval(options.scaffold->summary_op));
    MR_ASSIGN_OR_RETURN(const std::string text, summary.TryScalar<std::string>());
    return events->WriteSummary(text, step);
  }

  Status CountSteps(StepTimer& timer) {
    MR_ASSIGN_OR_RETURN(const int64_t step, Step());
    const std::optional<StepTimer::Elapsed> elapsed = timer.Update(step);
    if (!elapsed || elapsed->seconds <= 0) return OkStatus();
    const double rate = static_cast<double>(elapsed->steps) / elapsed->seconds;
    char text[64];
    std::snprintf(text, sizeof(text), "global_step/sec: %g", rate);
    hooks::Log(options.io, text);
    return hooks::WriteNumber(*events, "global_step/sec", rate, step);
  }

  Status StartServices() {
    if (global_step.valid()) {
      MR_ASSIGN_OR_RETURN(const int64_t step, Step());
      MR_RETURN_IF_ERROR(events->WriteSessionStart(step));
    }
    const auto start = [this](const char* name, std::chrono::milliseconds interval,
                              std::function<Status()> work) {
      if (interval.count() == 0) return OkStatus();
      return coordinator->StartLoop(name, interval,
                                    [this, work = std::move(work)] { return Service(work); });
    };
    if (options.scaffold->summary_op.valid()) {
      MR_RETURN_IF_ERROR(
          start("summaries", options.save_summaries_time, [this] { return SaveSummaries(); }));
    }
    if (global_step.valid() && options.save_summaries_time.count() > 0) {
      MR_ASSIGN_OR_RETURN(StepTimer timer,
                          StepTimer::Create({.time = options.save_summaries_time}));
      const auto shared = std::make_shared<StepTimer>(std::move(timer));
      MR_RETURN_IF_ERROR(start("step counter", options.save_summaries_time,
                               [this, shared] { return CountSteps(*shared); }));
    }
    return start("checkpoints", options.save_model_time, [this] { return SaveModel(); });
  }

  // The error for which threads stopped, or for which a stop was asked for.
  Status End() {
    if (!session) return OkStatus();
    coordinator->RequestStop();
    // A checkpoint that is being written is finished first.
    Status status = coordinator->Join(options.stop_grace_period);
    // What is written aside has its values from the session, which is closed next.
    const Status written = SyncSaves();
    if (status.ok() && !SessionIsLost(written)) status = written;
    const Status closed = session->Close();
    if (status.ok() && !SessionIsLost(closed)) status = closed;
    if (events) {
      Status told = events->WriteSessionStop();
      // The caller's, who has closed it meanwhile.
      if (errors::IsFailedPrecondition(told)) told = OkStatus();
      told.Update(events->Flush());
      if (status.ok()) status = told;
    }
    session.reset();
    return status;
  }
};

Supervisor::Supervisor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Supervisor::~Supervisor() { Stop().IgnoreError(); }

StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(Graph& graph, SupervisorOptions options) {
  if (!options.scaffold) options.scaffold = std::make_shared<Scaffold>();
  std::unique_ptr<Impl> impl(new Impl{graph, std::move(options)});
  MR_RETURN_IF_ERROR(impl->Prepare());
  return std::unique_ptr<Supervisor>(new Supervisor(std::move(impl)));
}

StatusOr<Session*> Supervisor::PrepareOrWaitForSession(bool start_services) {
  Impl& s = *impl_;
  s.End().IgnoreError();
  s.coordinator = std::make_unique<Coordinator>();
  if (s.options.is_chief) {
    const InitialValues values{.saver = s.options.scaffold->saver,
                               .checkpoint_dir = s.options.logdir,
                               .init_op = s.options.scaffold->init_op,
                               .init_feeds = s.options.scaffold->init_feeds,
                               .init_fn = s.options.scaffold->init_fn,
                               .keep_values = s.options.keep_values};
    MR_ASSIGN_OR_RETURN(s.session, s.manager->PrepareSession(values));
    MR_RETURN_IF_ERROR(s.WriteGraph());
    if (s.HasServices() && start_services) MR_RETURN_IF_ERROR(s.StartServices());
  } else {
    MR_ASSIGN_OR_RETURN(s.session, s.manager->WaitForSession());
  }
  return &*s.session;
}

Status Supervisor::StartServices() {
  if (!impl_->HasServices() || !impl_->session) {
    return errors::FailedPrecondition(
        "the services of a Supervisor are those of a chief with a logdir and a session: ",
        !impl_->session ? "call PrepareOrWaitForSession before" : "this one has none");
  }
  return impl_->StartServices();
}

Status Supervisor::SummaryComputed(const std::string& summary, std::optional<int64_t> step) {
  if (!impl_->events || !impl_->session) {
    return errors::FailedPrecondition(
        "Writing a summary requires a summary writer: a chief's, with a logdir or ",
        "SupervisorOptions.summary_writer, and a session");
  }
  if (!step) {
    MR_ASSIGN_OR_RETURN(step, impl_->Step());
  }
  return impl_->events->WriteSummary(summary, *step);
}

Status Supervisor::RunUntilStop(const std::function<Status(Session&)>& step) {
  Impl& s = *impl_;
  for (int in_a_row = 0;;) {
    Status status;
    if (!s.session) status = PrepareOrWaitForSession().status();
    while (status.ok() && !ShouldStop()) {
      status = Guarded([&] { return step(*s.session); });
      if (status.ok()) in_a_row = 0;
    }
    // A service may have seen it first, and have stopped all: one that was cancelled was so by a
    // server that is ending.
    const Status of_service = s.coordinator->status();
    const bool is_lost = SessionIsLost(status) || (status.ok() && SessionIsLost(of_service)) ||
                         errors::IsCancelled(of_service);
    if (status.ok() && is_lost) status = of_service;
    // Whoever wants the process back has taken away the time until the next checkpoint.
    if (status.ok() && PreemptionSignal() != 0 && s.HasServices()) status = s.SaveAtEnd();
    if (status.ok()) return Stop();
    if (!is_lost || in_a_row >= s.options.max_recoveries) {
      s.End().IgnoreError();
      return status;
    }
    ++in_a_row;
    MR_LOG(kWarning, "the session was lost (", Message(status), "); recovery ", in_a_row, " of ",
           s.options.max_recoveries, " without a step in between");
    s.End().IgnoreError();
    MR_RETURN_IF_ERROR(SleepUnlessPreempted(in_a_row > 1 ? RecoveryBackOff(in_a_row - 1)
                                                         : std::chrono::milliseconds(0)));
  }
}

Coordinator& Supervisor::coordinator() { return *impl_->coordinator; }
bool Supervisor::ShouldStop() const {
  return PreemptionSignal() != 0 || impl_->coordinator->ShouldStop();
}
void Supervisor::RequestStop(const Status& cause) { impl_->coordinator->RequestStop(cause); }
Status Supervisor::Stop() { return impl_->End(); }

}  // namespace millrace
