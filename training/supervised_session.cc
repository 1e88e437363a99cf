// SPDX-License-Identifier: Apache-2.0
#include "millrace/supervised_session.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "training/initializers.h"
#include "training/lost_session.h"
#include "training/preemption_wait.h"
#include "training/ready_signal.h"
#include "training/sync_tokens.h"

namespace millrace {
namespace {

// Before trying again what failed at once; each time in a row twice as long, up to the longest.
constexpr std::chrono::milliseconds kPause{20}, kLongestPause{500};
// A worker looks itself this often: the chief may be of a kind that gives no signal.
constexpr std::chrono::milliseconds kLongestWait{1'000};
// For an announcement that has been made already, if it ever will be.
constexpr std::chrono::milliseconds kShortestWait{100};
// How long the first attempt to make a session lasts before this task is told for whom it
// waits; each further one lasts twice as long.
constexpr std::chrono::milliseconds kFirstAttempt{5'000};

// "3 variables were lost with /job:ps/task:0 (a, b, c)" and so on.
std::string DescribeLoss(const std::vector<std::string>& variables) {
  constexpr std::size_t kMost = 10;
  std::map<std::string, std::vector<std::string>> by_device;
  for (const std::string& variable : variables) {
    const std::size_t at = variable.find(" @ ");
    by_device[at == std::string::npos ? "the device" : variable.substr(at + 3)].push_back(
        variable.substr(0, at));
  }
  std::string text;
  for (auto& [device, names] : by_device) {
    const std::size_t count = names.size();
    if (count > kMost) {
      names.resize(kMost);
      names.push_back("...");
    }
    StrAppend(&text, text.empty() ? "" : "; ", count, " variable", count == 1 ? " was" : "s were",
              " lost with ", device, " (", StrJoin(names, ", "), ")");
  }
  return text;
}

}  // namespace

struct SupervisedSession::Impl {
  Impl(Graph& g, const SupervisedSessionOptions& o) : graph(g), options(o) {}

  Graph& graph;
  const SupervisedSessionOptions options;
  ReadySignal signal;                // constant after Create
  std::optional<SyncTokens> tokens;  // where it drives SyncReplicas
  bool has_left = false;             // it takes none any more
  bool has_failed = false;           // the last Run
  std::optional<Session> session;
  std::vector<std::thread> queue_threads;
  int recoveries = 0;
  int in_a_row = 0;  // recoveries since a step ended well
  std::string last_reason;
  bool was_ready = false;  // all variables had a value once

  Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  Status queue_error ABSL_GUARDED_BY(mu);

  // Makes a session in which everything is ready, or says why not by the deadline.
  Status Start(Deadline deadline) {
    std::string why;  // what the first attempts that were told a reason were told
    std::chrono::milliseconds pause = kPause;
    for (std::chrono::milliseconds attempt = kFirstAttempt;;) {
      Status status = TryStart(deadline, attempt);
      if (status.ok()) {
        StartQueues();
        return status;
      }
      // No answer yet is no reason to give up before the deadline.
      const bool no_answer = !session && errors::IsDeadlineExceeded(status);
      if (no_answer) attempt *= 2;
      session.reset();
      if (const Status notice = CheckPreemption(); !notice.ok()) {
        return errors::IsCancelled(status)
                   ? status
                   : Annotate(notice, StrCat("; waiting for the cluster: ", Message(status)));
      }
      // A peer that is just coming up refuses or forgets; what is wrong with the graph stays.
      if (!(no_answer || SessionIsLost(status))) return status;
      if (SteadyClock::now() >= deadline) {
        // The last attempt had little time, and may have ended before it was told for whom it
        // waits.
        const bool tells_less = no_answer && !why.empty() && why != Message(status);
        return tells_less ? Annotate(status, StrCat("; before: ", why)) : status;
      }
      if (!no_answer || errors::IsDeadlineExceeded(status)) why = std::string(Message(status));
      Tell(StrCat("waiting for the cluster: ", Message(status)));
      MR_RETURN_IF_ERROR(SleepUnlessPreempted(pause));
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  // `attempt` bounds the making of the session, without which `session` stays empty.
  Status TryStart(Deadline deadline, std::chrono::milliseconds attempt) {
    SessionOptions session_options = options.session;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
    session_options.start_timeout =
        std::clamp(std::min(left, attempt), std::chrono::milliseconds(1),
                   std::max(session_options.start_timeout, std::chrono::milliseconds(1)));
    MR_ASSIGN_OR_RETURN(session, Session::Create(graph, session_options));
    MR_RETURN_IF_ERROR(options.is_chief ? Initialize() : WaitForChief(deadline));
    if (options.is_chief) MR_RETURN_IF_ERROR(Announce());
    if (tokens && !has_left) return StartTokens();
    if (options.local_init_op.valid()) MR_RETURN_IF_ERROR(RunTarget(options.local_init_op));
    if (has_left) return tokens->Leave(*session);
    if (options.is_chief && options.init_tokens_op.valid()) {
      MR_RETURN_IF_ERROR(RunTarget(options.init_tokens_op));
    }
    return OkStatus();
  }

  // Who asks for what the chief does with tokens, or for a worker's local step, trains with them.
  Status FindTokens() {
    const std::optional<SyncOps> ops = FindSyncOps(graph);
    const auto& loops = options.queue_ops;
    const bool drives =
        options.is_chief ? ops && std::find(loops.begin(), loops.end(), ops->apply) != loops.end()
                         : ops && options.local_init_op.valid();
    return drives ? tokens.emplace().Build(graph, *ops) : OkStatus();
  }

  Status StartTokens() {
    if (options.is_chief) {
      const Operation& first = options.init_tokens_op;
      return tokens->Lead(*session, options.local_init_op, first,
                          first.valid() && first.type() != "NoOp");
    }
    MR_RETURN_IF_ERROR(tokens->Follow(
        *session, std::min<std::chrono::milliseconds>(kSyncChiefWait, options.ready_timeout)));
    return RunTarget(options.local_init_op);
  }

  Status RunTarget(const Operation& op) { return session->Run({}, {}, std::span(&op, 1)).status(); }

  // What has no value yet.
  StatusOr<std::vector<std::string>> NotReady() {
    std::vector<std::string> names;
    if (!options.not_ready.valid()) return names;
    MR_ASSIGN_OR_RETURN(const Tensor report, session->Eval(options.not_ready));
    for (const std::string& name : report.flat<std::string>()) names.push_back(name);
    return names;
  }

  Status Initialize() {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> missing, NotReady());
    if (options.init_op.valid() && (!missing.empty() || !options.not_ready.valid())) {
      const std::vector<Operation> initializers = InitializersOf(graph, options.init_op, missing);
      if (options.not_ready.valid() &&
          (was_ready || initializers != std::vector<Operation>{options.init_op})) {
        MR_RETURN_IF_ERROR(TellOfLoss(missing));
      }
      MR_RETURN_IF_ERROR(session->Run({}, {}, initializers).status());
      MR_ASSIGN_OR_RETURN(missing, NotReady());
    }
    was_ready = missing.empty();
    if (missing.empty()) return OkStatus();
    return errors::FailedPrecondition("the init op left variables without a value: ",
                                      StrJoin(missing, ", "));
  }

  Status TellOfLoss(const std::vector<std::string>& variables) const {
    MR_LOG(kWarning, DescribeLoss(variables), "; initialised anew");
    return options.on_variables_lost ? options.on_variables_lost(variables) : OkStatus();
  }

  // Ends the waits of the others.
  Status Announce() {
    for (const Operation& op : signal.announce) {
      const Status status = RunTarget(op);
      if (!status.ok() && !errors::IsCancelled(status)) return status;  // Cancelled: it was before
    }
    return OkStatus();
  }

  // Until the chief has announced that it is ready, or for at most `limit`. True if it has.
  StatusOr<bool> AwaitChief(Deadline deadline, std::chrono::milliseconds limit) {
    for (const Operation& op : signal.await) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
      const RunOptions run{.timeout = std::clamp(left, std::chrono::milliseconds(1), limit)};
      const Status status = session->Run({}, {}, std::span(&op, 1), run).status();
      if (const Status notice = CheckPreemption(); !notice.ok() && !status.ok()) return notice;
      if (errors::IsDeadlineExceeded(status)) return false;
      if (!status.ok() && !errors::IsOutOfRange(status)) return status;
    }
    return !signal.await.empty();
  }

  Status WaitForChief(Deadline deadline) {
    for (bool announced = false;;) {
      MR_ASSIGN_OR_RETURN(const std::vector<std::string> missing, NotReady());
      if (missing.empty()) {
        // What a session runs, and dumps, shall not depend on who came first.
        return AwaitChief(deadline, kShortestWait).status();
      }
      const std::string reason = StrCat("waiting for the chief to initialise ", missing.size(),
                                        " variable(s): ", StrJoin(missing, ", "));
      if (SteadyClock::now() >= deadline) {
        return errors::DeadlineExceeded("gave up ", reason);
      }
      Tell(reason);
      // An announcement from before the variables were lost says nothing.
      if (announced || signal.await.empty()) MR_RETURN_IF_ERROR(SleepUnlessPreempted(kPause));
      MR_ASSIGN_OR_RETURN(announced, AwaitChief(deadline, kLongestWait));
    }
  }

  void Tell(const std::string& reason) {
    if (reason == last_reason) return;
    last_reason = reason;
    if (options.on_wait) options.on_wait(reason);
  }

  StatusOr<std::vector<Tensor>> RunStep(std::span<const Feed> feeds,
                                        std::span<const Output> fetches,
                                        std::span<const Operation> targets, const RunOptions& run,
                                        RunMetadata* metadata) {
    if (!tokens || !tokens->AreTakenBy(fetches, targets)) {
      return session->Run(feeds, fetches, targets, run, metadata);
    }
    const std::size_t asked = fetches.size();
    std::vector<Output> all(fetches.begin(), fetches.end());
    all.insert(all.end(), tokens->fetches().begin(), tokens->fetches().end());
    const auto limit = run.timeout.count() > 0 ? run.timeout : options.session.step_timeout;
    while (true) {
      const Deadline deadline = DeadlineAfter(limit);
      auto ran = session->Run(feeds, all, targets, run, metadata);
      if (!ran.ok()) return tokens->Explain(*session, ran.status());
      std::vector<Tensor> values = *std::move(ran);
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
      MR_ASSIGN_OR_RETURN(
          const std::optional<int64_t> step,
          tokens->Own(*session, std::span(values).subspan(asked),
                      limit.count() > 0 ? std::max(left, std::chrono::milliseconds(1)) : limit));
      if (!step) continue;  // for a chief that has begun again
      values.resize(asked);
      for (std::size_t i = 0; i < asked; ++i) {
        if (tokens->IsLocalStep(fetches[i])) values[i] = Tensor::Scalar<int64_t>(*step);
      }
      return values;
    }
  }

  void StartQueues() {
    if (!options.is_chief) return;
    for (const Operation& op : options.queue_ops) {
      queue_threads.emplace_back([this, op] { QueueLoop(op); });
    }
  }

  void QueueLoop(const Operation& op) {
    // No step timeout: the op waits for the workers, however slow they are; closing the
    // session ends it.
    const RunOptions forever{.timeout = std::chrono::hours(24 * 365)};
    while (true) {
      const Status status = session->Run({}, {}, std::span(&op, 1), forever).status();
      if (status.ok()) continue;
      {
        MutexLock lock(&mu);
        if (stopping || errors::IsCancelled(status)) return;
        if (queue_error.ok()) queue_error = status;
      }
      // Steps that wait for what the queue's op would have done would wait for their deadline.
      MR_LOG(kWarning, "the session ends because {{node ", op.name(),
             "}}, which it runs in a loop, has failed: ", Message(status));
      session->Close().IgnoreError();
      return;
    }
  }

  // The end of this task's training, but for one that has failed: that may begin again.
  void LeaveOthers() {
    if (!tokens || has_failed) return;
    Status status = options.is_chief ? tokens->Resign(*session) : OkStatus();
    if (!has_left) status.Update(tokens->Leave(*session));
    // The others may be gone already, with the ps.
    if (!status.ok() && options.is_chief) {
      MR_LOG(kWarning,
             "workers that wait for this chief are not told that it ends: ", Message(status));
    }
  }

  // Cancels what runs, then nothing uses the session any more.
  Status EndSession() {
    {
      MutexLock lock(&mu);
      stopping = true;
    }
    Status closed;
    if (session) closed = session->Close();
    for (std::thread& t : queue_threads) t.join();
    queue_threads.clear();
    session.reset();
    return closed;
  }

  Status Recover(const Status& why) {
    if (const Status notice = CheckPreemption(); !notice.ok()) {
      return Annotate(notice, StrCat("; the session was lost: ", Message(why)));
    }
    ++recoveries;
    ++in_a_row;
    MR_LOG(kWarning, "the session was lost (", Message(why), "); recovery ", in_a_row, " of ",
           options.max_recoveries, " without a step in between");
    EndSession().IgnoreError();
    if (in_a_row > 1) MR_RETURN_IF_ERROR(SleepUnlessPreempted(RecoveryBackOff(in_a_row - 1)));
    {
      MutexLock lock(&mu);
      stopping = false;
      queue_error = OkStatus();
    }
    return Start(DeadlineAfter(options.ready_timeout));
  }

  Status QueueError() {
    MutexLock lock(&mu);
    return queue_error;
  }
};

SupervisedSession::SupervisedSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SupervisedSession::~SupervisedSession() {
  if (impl_->session) impl_->EndSession().IgnoreError();
}

StatusOr<std::unique_ptr<SupervisedSession>> SupervisedSession::Create(
    Graph& graph, const SupervisedSessionOptions& options) {
  MR_RETURN_IF_ERROR(graph.status());
  auto impl = std::make_unique<Impl>(graph, options);
  if (options.not_ready.valid()) {
    MR_ASSIGN_OR_RETURN(impl->signal, MakeReadySignal(graph));
  }
  MR_RETURN_IF_ERROR(impl->FindTokens());
  MR_RETURN_IF_ERROR(impl->Start(DeadlineAfter(options.ready_timeout)));
  return std::unique_ptr<SupervisedSession>(new SupervisedSession(std::move(impl)));
}

StatusOr<std::vector<Tensor>> SupervisedSession::Run(std::span<const Feed> feeds,
                                                     std::span<const Output> fetches,
                                                     std::span<const Operation> targets,
                                                     const RunOptions& options,
                                                     RunMetadata* metadata) {
  impl_->has_failed = true;  // until it has ended well
  while (true) {
    if (!impl_->session) {
      return errors::FailedPrecondition("the supervised session has been stopped");
    }
    StatusOr<std::vector<Tensor>> result =
        impl_->RunStep(feeds, fetches, targets, options, metadata);
    if (result.ok()) {
      impl_->in_a_row = 0;
      impl_->has_failed = false;
      return result;
    }
    // The queue thread saw the root cause if it failed first.
    const Status queue = impl_->QueueError();
    const Status cause = queue.ok() ? result.status() : queue;
    if (!SessionIsLost(cause)) return cause;
    if (impl_->in_a_row >= impl_->options.max_recoveries) {
      if (impl_->in_a_row == 0) return cause;
      return Annotate(cause, StrCat("; the session was made anew ", impl_->in_a_row,
                                    " times, and no step has ended since"));
    }
    MR_RETURN_IF_ERROR(impl_->Recover(cause));
  }
}

Session& SupervisedSession::session() { return *impl_->session; }
int SupervisedSession::recoveries() const { return impl_->recoveries; }

Status SupervisedSession::Leave() {
  Impl& s = *impl_;
  if (!s.session) return errors::FailedPrecondition("the supervised session has been stopped");
  if (!s.tokens || s.has_left) return OkStatus();
  s.has_left = true;
  return s.tokens->Leave(*s.session);
}

Status SupervisedSession::Stop() {
  const Status queue = impl_->QueueError();
  if (!impl_->session) return queue;
  impl_->LeaveOthers();
  const Status closed = impl_->EndSession();
  return queue.ok() ? closed : queue;
}

}  // namespace millrace
