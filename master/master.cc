// SPDX-License-Identifier: Apache-2.0
#include "master/master.h"

#include <algorithm>
#include <utility>

#include "base/deadline_timer.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/random.h"
#include "master/cluster_devices.h"
#include "master/master_session.h"
#include "session/async_join.h"

namespace millrace {
namespace {

Status NotFound(std::string_view handle) {
  return errors::Aborted("Session ", handle, " is not found.");
}

// How many looks fall into the limit: a session goes between one limit and 1 + 1/4 of it.
constexpr int kLooksPerLimit = 4;

}  // namespace

// Outlives the master by the callback that may be running.
class Master::Watch : public std::enable_shared_from_this<Watch> {
 public:
  explicit Watch(Master* master) : master_(master) {}

  void Start() {
    MutexLock lock(&mu_);
    Next();
  }
  // The master is not looked at any more.
  void Stop() {
    MutexLock lock(&mu_);
    master_ = nullptr;
    DeadlineTimer::Global().Cancel(timer_);
  }

 private:
  void Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto pause = master_->env_.session_idle_limit / kLooksPerLimit;
    timer_ = DeadlineTimer::Global().Schedule(
        DeadlineAfter(std::max<std::chrono::milliseconds>(pause, std::chrono::milliseconds(1))),
        [self = shared_from_this()] { self->Look(); });
  }
  void Look() {
    MutexLock lock(&mu_);
    if (master_ == nullptr) return;
    master_->CloseIdle();
    Next();
  }

  Mutex mu_;
  Master* master_ ABSL_GUARDED_BY(mu_);
  DeadlineTimer::Token timer_ ABSL_GUARDED_BY(mu_) = DeadlineTimer::kNone;
};

Master::Master(MasterEnv env) : env_(std::move(env)) {
  if (env_.session_idle_limit <= std::chrono::milliseconds(0)) return;
  watch_ = std::make_shared<Watch>(this);
  watch_->Start();
}

Master::~Master() {
  if (watch_ != nullptr) watch_->Stop();
  {
    MutexLock lock(&mu_);
    while (closing_ > 0) none_closing_.Wait(&mu_);
  }
  // All at once: each may have to wait for the same task that does not answer.
  const auto sessions = TakeAll();
  (void)Await([&](auto done) {
    auto closed = AsyncJoin::Make(static_cast<int>(sessions.size()), done);
    for (const auto& session : sessions) {
      session->Close([closed](Status status) { closed->Done(std::move(status)); });
    }
  });
}

std::shared_ptr<MasterSession> Master::Find(std::string_view handle) const {
  MutexLock lock(&mu_);
  const auto it = sessions_.find(handle);
  if (it == sessions_.end()) return nullptr;
  it->second.used = looks_;
  return it->second.session;
}

std::vector<std::shared_ptr<MasterSession>> Master::TakeAll() {
  std::vector<std::shared_ptr<MasterSession>> all;
  MutexLock lock(&mu_);
  for (auto& [handle, entry] : sessions_) all.push_back(std::move(entry.session));
  sessions_.clear();
  return all;
}

void Master::CloseIdle() {
  std::vector<std::shared_ptr<MasterSession>> idle;
  {
    MutexLock lock(&mu_);
    ++looks_;
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      const auto here = it++;
      Entry& entry = here->second;
      // Whoever runs a call keeps a share of its session.
      if (entry.session.use_count() > 1) entry.used = looks_;
      if (looks_ - entry.used <= kLooksPerLimit) continue;
      idle.push_back(std::move(entry.session));
      sessions_.erase(here);
    }
    closing_ += static_cast<int>(idle.size());
  }
  if (idle.empty()) return;
  MR_LOG(kInfo, "closing ", idle.size(), idle.size() == 1 ? " session" : " sessions",
         " that nobody has called for ", env_.session_idle_limit.count() / 1000.0,
         " s: ", idle.front()->handle(), idle.size() == 1 ? "" : " and others");
  for (const auto& session : idle) {
    session->Close([this, session](const Status&) {
      MutexLock lock(&mu_);
      if (--closing_ == 0) none_closing_.SignalAll();
    });
  }
}

void Master::CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                                CreateSessionResult* result, Done done) {
  auto session = std::make_shared<MasterSession>(env_, Hex16(RandomId()));
  session->Create(options, std::move(args),
                  [this, session, result, done = std::move(done)](Status status) {
                    if (status.ok()) {
                      result->session_handle = session->handle();
                      result->graph_version = session->graph_version();
                      MutexLock lock(&mu_);
                      sessions_[session->handle()] = {session, looks_};
                    }
                    done(std::move(status));
                  });
}

void Master::ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                                int64_t* new_graph_version, Done done) {
  const auto session = Find(args.session_handle);
  if (session == nullptr) return done(NotFound(args.session_handle));
  done(session->Extend(args, new_graph_version));
}

void Master::RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                          Done done) {
  const auto session = Find(args->session_handle);
  if (session == nullptr) return done(NotFound(args->session_handle));
  const LogRequest named(args->request_id);
  session->Run(options, args, result, std::move(done));
}

void Master::PartialRunSetupAsync(const CallOptions& options, PartialRunSetupArgs args,
                                  std::string* partial_run_handle, Done done) {
  const auto session = Find(args.session_handle);
  if (session == nullptr) return done(NotFound(args.session_handle));
  session->PartialRunSetup(options, std::move(args), partial_run_handle, std::move(done));
}

void Master::MakeCallableAsync(const CallOptions& options, MakeCallableArgs args, int64_t* callable,
                               Done done) {
  const auto session = Find(args.session_handle);
  if (session == nullptr) return done(NotFound(args.session_handle));
  session->MakeCallable(options, std::move(args), callable, std::move(done));
}

void Master::RunCallableAsync(const CallOptions& options, RunCallableArgs* args,
                              RunStepResult* result, Done done) {
  const auto session = Find(args->session_handle);
  if (session == nullptr) return done(NotFound(args->session_handle));
  const LogRequest named(args->request_id);
  session->RunCallable(options, args, result, std::move(done));
}

std::shared_ptr<PreparedRun> Master::Prepare(const std::string& session_handle, int64_t callable) {
  const auto session = Find(session_handle);
  return session == nullptr ? nullptr : session->Prepare(callable);
}

void Master::ReleaseCallableAsync(const CallOptions& options, const std::string& session_handle,
                                  int64_t callable, Done done) {
  const auto session = Find(session_handle);
  done(session == nullptr ? NotFound(session_handle) : session->ReleaseCallable(callable));
}

void Master::CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                               Done done) {
  std::shared_ptr<MasterSession> session;
  {
    MutexLock lock(&mu_);
    const auto it = sessions_.find(session_handle);
    if (it != sessions_.end()) {
      session = std::move(it->second.session);
      sessions_.erase(it);
    }
  }
  if (session == nullptr) {
    return done(errors::Aborted("Session ", session_handle,
                                " is not found. Possibly, this master has restarted."));
  }
  session->Close([session, done = std::move(done)](Status status) { done(std::move(status)); });
}

void Master::ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                              ListDevicesResult* result, Done done) {
  if (!session_handle.empty()) {
    const auto session = Find(session_handle);
    if (session == nullptr) {
      return done(errors::InvalidArgument("Session ", session_handle, " is not found."));
    }
    session->ListDevices(result);
    return done(OkStatus());
  }
  FindClusterDevices(*env_.task, options, {},
                     [result, done = std::move(done)](const StatusOr<ClusterDevices>& cluster) {
                       if (!cluster.ok()) return done(cluster.status());
                       for (const ClusterDevices::Task& task : cluster->tasks) {
                         auto& list = task.name == cluster->client_task ? result->local_devices
                                                                        : result->remote_devices;
                         list.insert(list.end(), task.devices.begin(), task.devices.end());
                       }
                       done(OkStatus());
                     });
}

void Master::ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                        std::vector<std::string> device_filters, Done done) {
  const StatusOr<std::vector<DeviceName>> filters = ParseDeviceFilters(device_filters);
  if (!filters.ok()) return done(filters.status());
  std::vector<WorkerInterface*> workers;
  for (const std::string& task : env_.task->workers->ListWorkers()) {
    const StatusOr<DeviceName> name = DeviceName::Parse(task);
    if (!name.ok()) return done(name.status());
    if (!MatchesAnyFilter(*filters, *name)) continue;
    if (WorkerInterface* worker = env_.task->workers->GetWorker(task)) workers.push_back(worker);
  }
  const auto sessions = TakeAll();
  auto closed = AsyncJoin::Make(
      static_cast<int>(sessions.size()), [options, containers = std::move(containers), workers,
                                          done = std::move(done)](const Status&) {
        auto cleaned = AsyncJoin::Make(static_cast<int>(workers.size()), done);
        for (WorkerInterface* worker : workers) {
          worker->CleanupAllAsync(options, containers,
                                  [cleaned](Status status) { cleaned->Done(std::move(status)); });
        }
      });
  for (const auto& session : sessions) {
    session->Close([closed, session](Status status) { closed->Done(std::move(status)); });
  }
}

void Master::ListDirectWaits(pb::TaskWaits* waits) const {
  std::vector<std::shared_ptr<MasterSession>> sessions;
  {
    MutexLock lock(&mu_);
    for (const auto& [handle, entry] : sessions_) sessions.push_back(entry.session);
  }
  for (const auto& session : sessions) session->ListDirectWaits(waits);
}

StatusOr<std::string> Master::ExplainPlacement(std::string_view session_handle,
                                               std::string_view node) const {
  const auto session = Find(session_handle);
  if (session == nullptr) return NotFound(session_handle);
  return session->ExplainPlacement(node);
}

std::vector<std::string> Master::ListSessions() const {
  std::vector<std::string> handles;
  {
    MutexLock lock(&mu_);
    for (const auto& [handle, entry] : sessions_) handles.push_back(handle);
  }
  std::sort(handles.begin(), handles.end());
  return handles;
}

Status Master::ReadGraph(std::string_view session_handle,
                         const std::function<void(const SessionGraph& graph)>& reader) const {
  std::shared_ptr<MasterSession> session;
  {
    MutexLock lock(&mu_);
    const auto it = sessions_.find(session_handle);
    if (it != sessions_.end()) session = it->second.session;
  }
  if (session == nullptr) return NotFound(session_handle);
  reader(session->graph());
  return OkStatus();
}

}  // namespace millrace
