// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core.h"

#include <random>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"

namespace millrace {

using std::chrono::milliseconds;

namespace {

// For threads that are in a call to a task that does not answer.
constexpr milliseconds kStopLimit{5'000};

// No other coordinator's: two may use one cluster.
std::string UniqueId() {
  std::random_device random;
  return StrCat("id", random(), "_", random());
}

}  // namespace

CoordinatorCore::CoordinatorCore(Graph& graph, const CoordinatorOptions& options)
    : graph_(&graph), options_(options), queue_(options.queue_capacity) {
  const std::string id = UniqueId();
  const auto probe = [&](std::string_view job, int task, const std::string& address) {
    return std::make_unique<TaskProbe>(StrCat("/job:", job, "/task:", task),
                                       StrCat("grpc://", address), id);
  };
  for (const auto& [task, address] : options.cluster.jobs().at("worker")) {
    auto worker = std::make_unique<Worker>();
    worker->index = task;
    worker->address = address;
    worker->probe = probe("worker", task, address);
    workers_.push_back(std::move(worker));
  }
  for (const auto& [task, address] : options.cluster.jobs().at("ps")) {
    auto server = std::make_unique<ParameterServer>();
    server->address = address;
    server->probe = probe("ps", task, address);
    servers_.push_back(std::move(server));
  }
}

Status CoordinatorCore::Start() {
  const Deadline deadline = DeadlineAfter(options_.connect_timeout);
  std::vector<int64_t> processes;
  while (true) {
    const Status status = LookAtServers(&processes).status();
    if (status.ok()) break;
    if (const Status notice = CheckPreemption(); !notice.ok()) {
      return Annotate(
          notice, StrCat("; the coordinator waited for its parameter servers: ", Message(status)));
    }
    if (SteadyClock::now() >= deadline) {
      return errors::DeadlineExceeded("no coordinator without all parameter servers, for which ",
                                      options_.connect_timeout.count(),
                                      " ms were waited: ", Message(status));
    }
    Sleep(milliseconds(50));
  }
  {
    MutexLock lock(&mu_);
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_[i]->process = processes[i];
  }
  for (const auto& worker : workers_) {
    Spawn([&worker = *worker](CoordinatorCore& core) { core.KeepWorker(worker); });
  }
  Spawn([](CoordinatorCore& core) { core.WatchServers(); });
  return OkStatus();
}

void CoordinatorCore::Stop() {
  {
    MutexLock lock(&mu_);
    phase_.store(Phase::kStopped, std::memory_order_release);
    changed_.SignalAll();
  }
  queue_.Close();
  LoseAll("the coordinator is destroyed");
  const Deadline deadline = DeadlineAfter(kStopLimit);
  MutexLock lock(&mu_);
  while (threads_ > 0) {
    if (changed_.WaitUntil(&mu_, deadline) || SteadyClock::now() < deadline) continue;
    if (threads_ > 0) {
      MR_LOG(kWarning, threads_, " threads of the coordinator are left in calls to tasks that do ",
             "not answer");
    }
    return;
  }
}

void CoordinatorCore::EndForNotice() {
  queue_.FailAll(CheckPreemption());
  CancelSoon();
}

Status CoordinatorCore::EnsureUsable() {
  switch (phase_.load(std::memory_order_acquire)) {
    case Phase::kIdle:
      SetPhase(Phase::kIdle, Phase::kRunning);
      return OkStatus();
    case Phase::kRunning:
      return OkStatus();
    case Phase::kStopped:
      return errors::FailedPrecondition("the coordinator is being destroyed");
    case Phase::kPsLost:
    case Phase::kRecovering:
      break;
  }
  if (options_.restore) return Recover();
  MutexLock lock(&mu_);
  return errors::FailedPrecondition(
      "a parameter server was lost, and its variables with it: call Recover, give them values "
      "again, and go on (",
      Message(ps_error_), ")");
}

StatusOr<std::vector<Tensor>> CoordinatorCore::Run(std::span<const Feed> feeds,
                                                   std::span<const Output> fetches,
                                                   std::span<const Operation> targets) {
  MR_RETURN_IF_ERROR(EnsureUsable());
  std::vector<Output> names;
  std::vector<Tensor> values;
  for (const auto& [output, value] : feeds) {
    names.push_back(output);
    values.push_back(value);
  }
  const Deadline deadline = DeadlineAfter(options_.connect_timeout);
  while (true) {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<CoordinatedSession> session, AwaitWorker(deadline));
    const StatusOr<Callable> callable = [&] {
      GraphGate::Sending sending(&gate_);
      return session->session().MakeCallable(names, fetches, targets);
    }();
    if (callable.ok()) {
      StatusOr<std::vector<Tensor>> result = callable->Run(values);
      if (!result.ok()) LoseIfGone(session, result.status());
      return result;
    }
    // A worker that was lost unseen: nothing has run, the next one is asked.
    if (!LoseIfGone(session, callable.status()) || SteadyClock::now() >= deadline) {
      return callable.status();
    }
  }
}

bool CoordinatorCore::LoseIfGone(const std::shared_ptr<CoordinatedSession>& session,
                                 const Status& error) {
  for (const auto& worker : workers_) {
    if (worker->index != session->worker()) continue;
    Status why;
    const Verdict verdict = Judge(*worker, *session, error, &why);
    if (verdict != Verdict::kWorkerLost && verdict != Verdict::kSessionLost) return false;
    Lose(*worker, session, Message(why));
    return true;
  }
  return false;
}

std::string CoordinatorCore::Describe() const {
  const FunctionQueue::Counts counts = queue_.counts();
  std::string text = StrCat(counts.queued, " functions are queued and ", counts.running, " run");
  const auto add = [&](const auto&... pieces) { StrAppend(&text, "; ", pieces...); };
  std::size_t idle = 0;
  MutexLock lock(&mu_);
  for (const auto& worker : workers_) {
    const std::string name = StrCat(worker->probe->task(), " at ", worker->address);
    if (worker->session == nullptr) {
      const auto seconds =
          std::chrono::duration_cast<std::chrono::seconds>(SteadyClock::now() - worker->since);
      add(name, " has had no session for ", seconds.count(), " s: ", worker->reason);
      continue;
    }
    const std::string runs = worker->session->Describe();
    if (runs.empty()) {
      ++idle;
    } else {
      add(name, " runs ", runs);
    }
  }
  if (idle > 0) add(idle, " workers are idle");
  return text;
}

CoordinatorStats CoordinatorCore::stats() const {
  const FunctionQueue::Counts counts = queue_.counts();
  CoordinatorStats stats;
  stats.scheduled = counts.scheduled;
  stats.finished = counts.finished;
  stats.failed = counts.failed;
  stats.cancelled = counts.cancelled;
  stats.retried = counts.retried;
  MutexLock lock(&mu_);
  stats.sessions_lost = sessions_lost_;
  stats.ps_lost = ps_lost_;
  for (const auto& worker : workers_) stats.workers_ready += worker->session != nullptr;
  return stats;
}

void CoordinatorCore::AddPerWorkerInit(std::shared_ptr<const PerWorkerInit> init) {
  MutexLock lock(&mu_);
  inits_.push_back(std::move(init));
}

std::shared_ptr<const CoordinatedFunction> CoordinatorCore::AddFunction(std::string name,
                                                                        FunctionParts parts) {
  MutexLock lock(&mu_);
  auto function = std::make_shared<CoordinatedFunction>();
  function->id = static_cast<int>(functions_.size());
  function->name = std::move(name);
  function->parts = std::move(parts);
  function->per_worker_values = static_cast<int>(inits_.size());
  return functions_.emplace_back(std::move(function));
}

std::shared_ptr<const CoordinatedFunction> CoordinatorCore::FindFunction(int id) const {
  MutexLock lock(&mu_);
  const bool known = id >= 0 && static_cast<std::size_t>(id) < functions_.size();
  return known ? functions_[id] : nullptr;
}

}  // namespace millrace
