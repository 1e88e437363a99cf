// SPDX-License-Identifier: Apache-2.0
#include "worker/local_worker.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/deadline_timer.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "collective/collective_manager.h"
#include "graph/graph_def_io.h"
#include "kernels/background.h"
#include "session/inter_op_pools.h"
#include "session/session_clusters.h"
#include "session/wait_report.h"
#include "worker/direct_graph.h"
#include "worker/run_call.h"
#include "worker/worker_graph.h"
#include "worker/worker_step.h"

namespace millrace {
namespace {

std::shared_ptr<SessionResources> SharedResources(const WorkerEnv& env) {
  auto resources = std::make_shared<SessionResources>();
  resources->devices = env.devices;
  return resources;
}

// What the tensors of a step may take on one device, in bytes (docs/memory.md); 0: no limit. The
// smaller one of what the session says and `own`, the task's.
StatusOr<int64_t> MemoryLimit(const pb::ConfigProto& config, int64_t own) {
  const double mib = config.gpu_options().experimental().gpu_host_mem_limit_in_mb();
  if (!(mib >= 0 && mib < 1e12)) {
    return errors::InvalidArgument("gpu_host_mem_limit_in_mb is ", mib,
                                   ", but must not be negative (0: no limit)");
  }
  auto limit = static_cast<int64_t>(mib * (1 << 20));
  if (mib > 0) limit = std::max<int64_t>(limit, 1);
  return limit == 0 || own == 0 ? std::max(limit, own) : std::min(limit, own);
}

// Steps of which something is kept: more than a cluster has under way.
constexpr std::size_t kMostSteps = 100'000;

Status GraphNotFound(std::string_view handle, std::string_view hint) {
  return errors::Aborted("Graph handle is not found: ", handle, hint);
}

}  // namespace

LocalWorker::LocalWorker(const WorkerEnv& env)
    : env_(env),
      legacy_session_(
          std::make_shared<WorkerSession>(WorkerSessionOptions(), SharedResources(env), env)) {}

LocalWorker::~LocalWorker() {
  StringMap<std::shared_ptr<WorkerSession>> sessions;
  {
    MutexLock lock(&mu_);
    sessions.swap(sessions_);
  }
  sessions[""] = legacy_session_;
  const Status reason = errors::Cancelled("the worker ", env_.task, " is going down");
  for (const auto& [handle, session] : sessions) CloseSession(session, reason);
  std::vector<std::shared_ptr<WorkerSession>> ending;
  {
    MutexLock lock(&mu_);
    ending.swap(ending_);
  }
  for (const auto& session : ending) session->WaitForSteps();
  // Iterators work ahead on threads of their own, with functions that use the devices.
  sessions.clear();
  ending.clear();
  for (Device* device : env_.devices) device->resource_manager()->Clear();
  for (Device* device : env_.devices) WaitForBackground(device);
}

void LocalWorker::CloseSession(const std::shared_ptr<WorkerSession>& session,
                               const Status& reason) {
  session->Close(reason);
  // Its master will not clean up after them any more.
  std::vector<int64_t> steps;
  {
    MutexLock lock(&mu_);
    for (const auto& [step_id, step] : steps_) {
      if (step.session == session.get()) steps.push_back(step_id);
    }
  }
  for (const int64_t step_id : steps) ForgetStep(step_id);
  MutexLock lock(&mu_);
  std::erase_if(ending_, [](const auto& other) { return !other->HasSteps(); });
  if (session->HasSteps()) ending_.push_back(session);
}

template <typename Condition>
void LocalWorker::CloseSessionsIf(const Status& reason, const Condition& condition) {
  std::vector<std::shared_ptr<WorkerSession>> closed;
  {
    MutexLock lock(&mu_);
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      const auto here = it++;
      if (!condition(*here->second)) continue;
      closed.push_back(std::move(here->second));
      sessions_.erase(here);
    }
  }
  for (const auto& session : closed) {
    MR_LOG(kInfo, "dropping session ", session->options().session_handle, ": ", Message(reason));
    CloseSession(session, reason);
  }
}

Status LocalWorker::BeginStep(int64_t step_id, const WorkerSession* session) {
  MutexLock lock(&mu_);
  if (steps_.size() >= kMostSteps && !steps_.contains(step_id)) {
    return errors::ResourceExhausted(env_.task, " keeps what ", steps_.size(),
                                     " steps have left, the most that it does: their master has "
                                     "not called CleanupGraph for them");
  }
  steps_[step_id] = {session, session->own_env()};
  return OkStatus();
}

void LocalWorker::ForgetStep(int64_t step_id) {
  std::shared_ptr<const WorkerEnv> own_env;
  {
    MutexLock lock(&mu_);
    if (const auto it = steps_.find(step_id); it != steps_.end()) {
      own_env = std::move(it->second.env);
      steps_.erase(it);
    }
  }
  if (own_env != nullptr) own_env->rendezvous->Cleanup(step_id);
  env_.rendezvous->Cleanup(step_id);
  if (env_.collectives != nullptr) env_.collectives->Cleanup(step_id);
  partial_steps_.Forget(step_id);
}

StatusOr<std::shared_ptr<WorkerSession>> LocalWorker::FindSession(std::string_view handle) const {
  if (handle.empty()) return legacy_session_;
  {
    MutexLock lock(&mu_);
    const auto it = sessions_.find(handle);
    if (it != sessions_.end()) return it->second;
  }
  Status status = errors::Aborted("Session handle is not found: ", handle,
                                  ". Possibly this worker (\"", env_.task, "\") just restarted.");
  status.SetPayload(kWorkerRestartedPayload, "");
  return status;
}

void LocalWorker::GetStatusAsync(const CallOptions& options,
                                 std::vector<pb::DeviceAttributes>* devices, Done done) {
  for (const Device* device : env_.devices) {
    const DeviceAttributes& from = device->attributes();
    pb::DeviceAttributes& to = devices->emplace_back();
    to.set_name(from.name);
    to.set_device_type(from.device_type);
    to.set_memory_limit(from.memory_limit);
    to.set_incarnation(from.incarnation);
    to.set_physical_device_desc(from.physical_description);
  }
  done(OkStatus());
}

void LocalWorker::CreateSessionAsync(const CallOptions& options,
                                     const WorkerSessionOptions& session, Done done) {
  done(CreateSession(session));
}

Status LocalWorker::CreateSession(WorkerSessionOptions options) {
  if (options.session_handle.empty()) {
    return errors::InvalidArgument("Session must be non-empty.");
  }
  std::shared_ptr<const WorkerEnv> own_env;
  if (options.server_def != nullptr) {
    MR_ASSIGN_OR_RETURN(own_env, JoinCluster(options));
    options.server_def = nullptr;
  }
  const WorkerEnv& env = own_env != nullptr ? *own_env : env_;
  auto resources = SharedResources(env);
  if (options.isolate_session_state) {
    if (env.make_session_devices == nullptr) {
      return errors::Unimplemented("sessions with devices of their own at ", env_.task);
    }
    MR_ASSIGN_OR_RETURN(resources->own_devices, env.make_session_devices());
    resources->devices.clear();
    for (const auto& device : resources->own_devices->devices) {
      resources->devices.push_back(device.get());
    }
  }
  const bool brought = own_env != nullptr;
  auto session =
      std::make_shared<WorkerSession>(options, std::move(resources), env, std::move(own_env));
  if (env_.session_memory_limit > 0) {
    session->set_memory_quota(MakeRef<MemoryQuota>(env_.session_memory_limit));
  }
  {
    MutexLock lock(&mu_);
    if (!sessions_.try_emplace(options.session_handle, std::move(session)).second) {
      return errors::AlreadyExists(
          "the session ", options.session_handle, " is open at ", env_.task,
          brought ? ": the cluster that it brings must not have one server for two of its tasks"
                  : "");
    }
  }
  if (options.master_task.empty()) return OkStatus();
  // A master that restarted has forgotten the sessions it opened before.
  if (options.master_is_confirmed) {
    CloseSessionsIf(errors::Aborted("the master ", options.master_task, " has restarted"),
                    [&](const WorkerSession& other) {
                      return other.options().master_task == options.master_task &&
                             (other.own_env() != nullptr) == brought &&
                             other.options().master_incarnation != options.master_incarnation;
                    });
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<const WorkerEnv>> LocalWorker::JoinCluster(
    const WorkerSessionOptions& options) {
  if (env_.clusters == nullptr) {
    return errors::Unimplemented("a worker session with a cluster of its own (server_def) at ",
                                 env_.task);
  }
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const WorkerEnv> env,
                      env_.clusters->Join(*options.server_def, options.isolate_session_state));
  // Nobody else would know when to end it.
  if (env->workers->Address(options.master_task).empty()) {
    return errors::InvalidArgument("the session ", options.session_handle, " of the master '",
                                   options.master_task, "' brings a cluster to ", env_.task,
                                   " which has no such task");
  }
  return env;
}

void LocalWorker::DeleteSessionAsync(const CallOptions& options, const std::string& session_handle,
                                     Done done) {
  std::shared_ptr<WorkerSession> session;
  {
    MutexLock lock(&mu_);
    const auto it = sessions_.find(session_handle);
    if (it != sessions_.end()) {
      session = std::move(it->second);
      sessions_.erase(it);
    }
  }
  if (session != nullptr) {
    CloseSession(session, errors::Cancelled("the session ", session_handle, " was closed"));
  }
  done(OkStatus());
}

void LocalWorker::RegisterGraphAsync(const CallOptions& options, RegisterGraphArgs args,
                                     std::string* graph_handle, Done done) {
  StatusOr<std::string> handle = RegisterGraph(std::move(args));
  if (handle.ok()) *graph_handle = *std::move(handle);
  done(handle.status());
}

StatusOr<std::string> LocalWorker::RegisterGraph(RegisterGraphArgs args) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<WorkerSession> session,
                      FindSession(args.session_handle));
  MR_ASSIGN_OR_RETURN(const int64_t memory_limit,
                      MemoryLimit(args.config, env_.engine.step_memory_limit));
  if (args.graph == nullptr) return errors::InvalidArgument("RegisterGraph without a graph");
  // What is computed before any step is kept with the graph, on no step's account.
  if (memory_limit > 0 || session->memory_quota()) {
    args.graph_options.mutable_rewrite_options()->set_constant_folding(pb::RewriterConfig::OFF);
  }
  MR_ASSIGN_OR_RETURN(
      std::shared_ptr<WorkerGraph> graph,
      WorkerGraph::Make(session->env(), session->resources(), *args.graph, args.graph_options,
                        args.keep_graph, std::move(args.direct), [this](std::string_view prefix) {
                          return StrCat(prefix, "_G",
                                        next_name_.fetch_add(1, std::memory_order_relaxed));
                        }));
  graph->set_memory_limit(memory_limit);
  graph->set_memory_quota(session->memory_quota());
  CollectiveManager* const collectives = session->env().collectives;
  if (args.collective_graph_key != 0 && collectives != nullptr) {
    graph->set_collective_leader(collectives->ChooseLeader(
        args.config.experimental().collective_group_leader(), session->options().master_task));
  }
  std::string handle = Hex16(next_graph_.fetch_add(1, std::memory_order_relaxed));
  session->AddGraph(handle, std::move(graph));
  return handle;
}

void LocalWorker::DeregisterGraphAsync(const CallOptions& options,
                                       const std::string& session_handle,
                                       const std::string& graph_handle, Done done) {
  const StatusOr<std::shared_ptr<WorkerSession>> session = FindSession(session_handle);
  if (!session.ok()) return done(session.status());
  if (!(*session)->RemoveGraph(graph_handle)) {
    return done(GraphNotFound(graph_handle, ". Possibly, this worker just restarted."));
  }
  done(OkStatus());
}

void LocalWorker::RunGraphAsync(const CallOptions& options, RunGraphArgs* args,
                                RunGraphResult* result, Done done) {
  StatusOr<std::shared_ptr<WorkerSession>> found = FindSession(args->session_handle);
  if (!found.ok()) return done(found.status());
  std::shared_ptr<WorkerSession> session = *std::move(found);
  std::shared_ptr<WorkerGraph> graph = session->FindGraph(args->graph_handle);
  if (graph == nullptr) return done(GraphNotFound(args->graph_handle, ""));
  if (args->record_partition_graphs) {
    for (const WorkerGraph::Part& part : graph->parts()) {
      if (part.graph == nullptr) {
        return done(errors::FailedPrecondition(
            "the step wants the graphs of its partitions, but its graph was registered by a "
            "master that said it would not ask for them"));
      }
      const Status exported =
          ExportGraphDef(*part.graph, {}, &result->partition_graphs.emplace_back());
      if (!exported.ok()) return done(exported);
    }
  }
  // The calls of a partial run share a step.
  if (graph->updates() != nullptr && !args->is_partial) {
    if (Status admitted = graph->updates()->Admit(args->step_id); !admitted.ok()) {
      return done(std::move(admitted));
    }
  }
  if (Status begun = BeginStep(args->step_id, session.get()); !begun.ok()) {
    return done(std::move(begun));
  }
  if (args->is_partial) {
    return partial_steps_.Run(options, session, graph, args, result, std::move(done));
  }
  RefPtr<WorkerStep> step = WorkerGraph::NewStep(graph);
  RefPtr<CollectiveExecutor> collective;
  if (!graph->collective_leader().empty()) {
    collective = env_.collectives->NewStep(args->step_id, graph->collective_leader());
  }
  step->Prepare(args->step_id, session->env().rendezvous->Find(args->step_id),
                std::move(collective));
  if (!session->AddStep(session, step.get())) {
    ForgetStep(args->step_id);
    return done(errors::Aborted("Session handle is not found: ", args->session_handle));
  }
  // This thread may run the step, and leave it late: it must be the step's shares that go last.
  graph.reset();
  MakeRef<RunCall>(std::move(step), std::move(session), args, result, std::move(done))
      ->Run(options, InterOpPool(env_, args->inter_op_thread_pool));
}

std::shared_ptr<DirectGraph> LocalWorker::FindDirectGraph(const std::string& session_handle,
                                                          const std::string& graph_handle) {
  const StatusOr<std::shared_ptr<WorkerSession>> session = FindSession(session_handle);
  if (!session.ok()) return nullptr;
  std::shared_ptr<WorkerGraph> graph = (*session)->FindGraph(graph_handle);
  if (graph == nullptr || graph->direct() == nullptr) return nullptr;
  return MakeDirectGraph(std::move(graph), &env_);
}

void LocalWorker::CleanupGraphAsync(const CallOptions& options, int64_t step_id, Done done) {
  ForgetStep(step_id);
  done(OkStatus());
}

void LocalWorker::CleanupAllAsync(const CallOptions& options, std::vector<std::string> containers,
                                  Done done) {
  if (containers.empty()) containers.emplace_back(kDefaultContainer);
  for (const Device* device : env_.devices) {
    for (const std::string& container : containers) device->resource_manager()->Cleanup(container);
  }
  done(OkStatus());
}

void LocalWorker::ListWaitsAsync(const CallOptions& options, std::optional<int64_t> step_id,
                                 pb::TaskWaits* waits, Done done) {
  std::vector<std::shared_ptr<WorkerSession>> sessions = {legacy_session_};
  {
    MutexLock lock(&mu_);
    for (const auto& [handle, session] : sessions_) sessions.push_back(session);
  }
  std::vector<Wait> others;
  if (env_.list_silent_tasks != nullptr) env_.list_silent_tasks(&others);
  if (const auto* lister = dynamic_cast<const WaitLister*>(env_.collectives)) {
    lister->ListWaits(&others);
  }
  const int64_t now = SteadyNanos();
  for (const Wait& wait : others) AddWait(wait, /*step_id=*/0, now, waits);
  for (const auto& session : sessions) session->ListWaits(step_id, waits);
  if (!step_id && env_.list_direct_waits != nullptr) env_.list_direct_waits(waits);
  done(OkStatus());
}

std::vector<std::string> LocalWorker::MasterTasks() const {
  std::set<std::string> masters;
  {
    MutexLock lock(&mu_);
    for (const auto& [handle, session] : sessions_) {
      if (!session->watched_master().empty()) masters.insert(session->watched_master());
    }
  }
  return {masters.begin(), masters.end()};
}

void LocalWorker::AbandonMaster(std::string_view task, const Status& why) {
  CloseSessionsIf(why, [&](const WorkerSession& other) { return other.watched_master() == task; });
}

void LocalWorker::MasterAnswered(std::string_view task,
                                 const std::vector<pb::DeviceAttributes>& devices) {
  CloseSessionsIf(errors::Aborted("the master ", task, " has restarted"),
                  [&](const WorkerSession& other) {
                    return other.watched_master() == task &&
                           std::none_of(devices.begin(), devices.end(), [&](const auto& device) {
                             return static_cast<int64_t>(device.incarnation()) ==
                                    other.options().master_incarnation;
                           });
                  });
}

CollectivePeer* LocalWorker::collectives() {
  return env_.collectives == nullptr ? nullptr : env_.collectives->local();
}

void LocalWorker::RecvTensorAsync(const CallOptions& options, int64_t step_id,
                                  const std::string& key, RecvDone done) {
  const StatusOr<RendezvousKey> parsed = RendezvousKey::Parse(key);
  StatusOr<DeviceName> source =
      parsed.ok() ? DeviceName::Parse(parsed->src_device) : parsed.status();
  if (!source.ok()) return done(source.status(), Tensor(), false);
  const Device* device = nullptr;
  for (const Device* own : env_.devices) {
    if (own->parsed_name().type == source->type && own->parsed_name().id == source->id)
      device = own;
  }
  if (device == nullptr) {
    return done(errors::InvalidArgument(env_.task, " has no device for the source of ", key),
                Tensor(), false);
  }
  if (device->incarnation() != parsed->src_incarnation) {
    Status status = errors::Aborted(
        "RecvTensor expects a different device incarnation: ", parsed->src_incarnation, " vs. ",
        device->incarnation(), ". Your worker job (\"", env_.task, "\") was probably restarted.");
    status.SetPayload(kWorkerRestartedPayload, "");
    return done(status, Tensor(), false);
  }
  // Not the step's own cancellation: a request that is given up does not end the step.
  const StatusOr<RefPtr<Rendezvous>> found = env_.rendezvous->FindForPeer(step_id);
  if (!found.ok()) return done(found.status(), Tensor(), false);
  const RefPtr<Rendezvous> rendezvous = *found;
  done = [manager = env_.rendezvous, step_id, rendezvous = rendezvous.get(),
          done = std::move(done)](const Status& status, const Tensor& value, bool is_dead) {
    manager->PeerDone(step_id, rendezvous);
    done(status, value, is_dead);
  };
  if (options.deadline == kNoDeadline) {
    return rendezvous->RecvAsync(key, options.cancellation, std::move(done));
  }
  auto expiry = std::make_shared<CancellationManager>();
  const DeadlineTimer::Token timer = DeadlineTimer::Global().Schedule(options.deadline, [expiry] {
    expiry->StartCancel(errors::DeadlineExceeded("RecvTensor did not end by its deadline"));
  });
  rendezvous->RecvAsync(key, expiry.get(),
                        [expiry, timer, done = std::move(done)](const Status& status,
                                                                const Tensor& value, bool is_dead) {
                          DeadlineTimer::Global().Cancel(timer);
                          const bool late = !status.ok() && expiry->IsCancelled();
                          done(late ? expiry->reason() : status, value, is_dead);
                        });
}

}  // namespace millrace
