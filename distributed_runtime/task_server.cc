// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/task_server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_limit.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "device/device_name.h"
#include "distributed_runtime/admission.h"
#include "distributed_runtime/eager_limits.h"
#include "distributed_runtime/flags_in_force.h"
#include "distributed_runtime/gated_master.h"
#include "distributed_runtime/limited_master.h"
#include "distributed_runtime/method_limits.h"
#include "distributed_runtime/pages/observed_eager.h"
#include "distributed_runtime/pages/observed_master.h"
#include "distributed_runtime/pages/observed_workers.h"
#include "distributed_runtime/pages/published_pages.h"
#include "distributed_runtime/pages/task_pages.h"
#include "distributed_runtime/peer_monitor.h"
#include "distributed_runtime/reach.h"
#include "distributed_runtime/remote_rendezvous.h"
#include "distributed_runtime/service/control_service.h"
#include "distributed_runtime/service/eager_service.h"
#include "distributed_runtime/service/ledger_service.h"
#include "distributed_runtime/service/master_service.h"
#include "distributed_runtime/service/observe_service.h"
#include "distributed_runtime/service/worker_service.h"
#include "distributed_runtime/session_clusters.h"
#include "distributed_runtime/stub/eager_transport.h"
#include "distributed_runtime/stub/grpc_worker_cache.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/why_waiting.h"
#include "eager/eager_server.h"
#include "io/file_root.h"
#include "master/dump/graph_dump.h"
#include "session/inter_op_pools.h"
#include "task/task.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/rpc_server.h"
#include "transport/link/link_hub.h"
#include "transport/peer_table.h"

namespace millrace {
namespace {

constexpr std::string_view kScheme = "grpc://";

// Sessions of several masters take part in one collective, and all must name the same leader: what
// the options say, or the chief, or the first worker. "" if there is none of these.
std::string LeaderOf(const TaskServerOptions& options) {
  const std::string& said = options.default_session_config.experimental().collective_group_leader();
  if (!said.empty()) return said;
  for (const char* job : {"chief", "worker"}) {
    const auto found = options.server.cluster.jobs().find(job);
    if (found == options.server.cluster.jobs().end() || found->second.empty()) continue;
    return StrCat("/job:", job, "/replica:0/task:", found->second.begin()->first);
  }
  return "";
}

// One may decode or free something large while the other answers.
constexpr int kControlThreads = 2;
// What whoever reaches the server may take of it, unless the options say otherwise.
constexpr int64_t kMaxMessageSize = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxConnections = 16384;
constexpr int kMaxCalls = 65536;

// "localhost" is two addresses, of which one may be taken without the other: the usual one.
std::string ListeningHost(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  return host.find(':') != std::string::npos ? StrCat("[", host, "]") : host;
}

}  // namespace

struct TaskServer::Impl {
  enum class State { kNew, kStarted, kStopped };

  // Constant after Create. Destroyed from the last to the first.
  TaskServerOptions options;
  std::string task;        // "/job:J/replica:0/task:T"
  std::string configured;  // the address in the cluster
  std::string host;
  int64_t created_nanos = SteadyNanos();
  std::unique_ptr<GraphDumper> dumper;                   // null: no dumps
  std::shared_ptr<const LoadedCredentials> credentials;  // null: none
  Admission admission = Admission::All();

  Mutex start_mu;  // serialises Start and Stop
  mutable Mutex mu;
  CondVar changed;
  State state ABSL_GUARDED_BY(mu) = State::kNew;
  bool shutdown_asked ABSL_GUARDED_BY(mu) = false;
  Deadline waits_end ABSL_GUARDED_BY(mu) = kNoDeadline;
  std::string address ABSL_GUARDED_BY(mu);  // with the bound port

  // Made by Start, gone after Stop; in the order in which they depend on each other.
  struct Running {
    std::unique_ptr<TaskObservation> observed;
    std::shared_ptr<PageTable> pages;
    // Kernels never run on the threads of control, which answer, cancel and close.
    std::unique_ptr<ThreadPool> control_pool, intra_op_pool, inter_op_pool;
    std::unique_ptr<ThreadPool> page_pool;  // whatever kernels do, pages are made
    std::unique_ptr<Task> core;
    std::unique_ptr<PeerTable> peers;
    std::unique_ptr<LinkHub> links;
    std::unique_ptr<WorkerCache> observed_workers;  // `workers`, while there are such
    std::unique_ptr<GrpcWorkerCache> workers;
    std::unique_ptr<WorkerInterface> admitting;  // the same, for graphs from anywhere
    std::unique_ptr<Reach> reach;
    std::unique_ptr<ServerSessionClusters> clusters;
    std::unique_ptr<EagerTransport> eager_transport;
    std::unique_ptr<EagerObserver> eager_observer;
    std::unique_ptr<EagerServer> eager;
    std::unique_ptr<PeerMonitor> monitor;
    std::unique_ptr<MasterInterface> limited_master;  // null: there are no quotas
    std::unique_ptr<MasterInterface> observed_master;
    std::shared_ptr<GatedMaster> gate;
    std::unique_ptr<WorkerService> worker_service;
    std::unique_ptr<MasterService> master_service;
    std::unique_ptr<RpcServer> rpc;
  };
  std::unique_ptr<Running> running;  // guarded by start_mu

  // Those of the options, or of the process, or none if nobody else reaches the address.
  Status TakeCredentials() {
    MR_ASSIGN_OR_RETURN(credentials, CredentialsOrDefault(options.server.credentials));
    const LoadedCredentials* const own = credentials.get();
    if (own != nullptr && own->has_tls() && own->own().TaskName() != task) {
      return errors::InvalidArgument("the server of ", task, " was given the certificate of ",
                                     own->own().ToUri(), ": give it its own (--tls_cert)");
    }
    if (own != nullptr || options.server.insecure || IsLoopbackHost(host)) return OkStatus();
    return errors::FailedPrecondition(
        "the address ", configured, " of /job:", options.server.job_name,
        "/task:", options.server.task_index,
        " is not loopback, and whoever reaches it could run any op: give the task a certificate "
        "(--tls_cert, --tls_key, --tls_ca), or a token that its callers have too (--token_file), "
        "or, if only trusted hosts reach it, ask for it without either (--insecure)");
  }

  // What graphs may do, and to which files.
  Status TakeRules() {
    const ServerOptions& server = options.server;
    if (!server.allow.empty()) {
      MR_ASSIGN_OR_RETURN(admission, Admission::Parse(server.allow));
    } else if (!IsLoopbackHost(host) && server.file_root.empty()) {
      admission = Admission::AllButFileWrite();
    }
    if (server.file_root.empty()) return OkStatus();
    std::vector<std::string> others;
    if (!server.dump_dir.empty()) others.push_back(server.dump_dir);
    return ConfineFiles(server.file_root, others);
  }

  Status Compose(Running* r) {
    const ServerOptions& server = options.server;
    r->control_pool = std::make_unique<ThreadPool>("mr-control", kControlThreads);
    r->page_pool = std::make_unique<ThreadPool>("mr-page", 1);
    r->intra_op_pool = std::make_unique<ThreadPool>(
        "mr-intra", ThreadsOrCores(std::max(0, server.intra_op_threads)));
    r->inter_op_pool = std::make_unique<ThreadPool>(
        "mr-inter", ThreadsOrCores(std::max(0, server.inter_op_threads)));
    TaskOptions core;
    core.name = task;
    core.ops = options.ops;
    core.kernels = options.kernels;
    core.factories = options.devices;
    core.device_count = options.device_count;
    core.device_count["CPU"] = server.num_cpu_devices;
    core.intra_op_pool = r->intra_op_pool.get();
    core.inter_op_pool = r->inter_op_pool.get();
    core.engine = options.engine;
    MR_ASSIGN_OR_RETURN(r->core, Task::Open(std::move(core)));
    if (!admission.allows_all()) {
      r->core->env().admit = [this](const DataflowGraph& graph) { return admission.Check(graph); };
    }
    r->core->env().session_memory_limit = server.quotas.session_memory_limit;
    ReachPeers(r);
    r->core->Connect(r->observed_workers.get(),
                     NewRemoteRendezvousManager(task, r->observed_workers.get()),
                     LeaderOf(options));
    r->admitting = NewAdmittingWorker(r->core->worker(), task, admission);
    r->workers->SetOwnWorker(admission.allows_all() ? r->core->worker() : r->admitting.get());
    r->reach = std::make_unique<Reach>(
        ReachOptions{task, Addresses(), [this] { return address_now(); }, IsLoopbackHost(host),
                     credentials != nullptr, credentials != nullptr && credentials->has_tls(),
                     !server.allow.empty(), admission.Allows("network")});
    AddClusters(r);
    WatchPeers(r);
    AddEager(r);
    MasterEnv master;
    master.default_config = options.default_session_config;
    master.graph_dumper = dumper.get();
    master.writes_placement = false;
    r->core->Lead(std::move(master));
    MasterInterface* served = r->core->master();
    if (LimitsSessions(server.quotas)) {
      r->limited_master =
          NewLimitedMaster(served, task, server.quotas,
                           [master = r->core->master()] { return master->ListSessions(); });
      served = r->limited_master.get();
    }
    r->observed_master = NewObservedMaster(served, task, &r->observed->steps, &r->observed->tracer);
    AddPages(r);
    return OkStatus();
  }

  std::map<std::string, std::string> Addresses() const {
    std::map<std::string, std::string> addresses;
    for (const auto& [job, tasks] : options.server.cluster.jobs()) {
      for (const auto& [index, address] : tasks) addresses[MakeTaskName(job, index)] = address;
    }
    return addresses;
  }

  // The other tasks of the cluster, as this one calls them.
  void ReachPeers(Running* r) {
    std::map<std::string, std::string> addresses = Addresses();
    const PeerIdentity own{task, r->core->incarnation(), options.server.cluster_id, ""};
    std::map<std::string, std::string> others = addresses;
    others.erase(task);
    r->observed = std::make_unique<TaskObservation>(others);
    r->pages = std::make_shared<PageTable>();
    r->peers = std::make_unique<PeerTable>(own, addresses, r->control_pool.get());
    r->links = std::make_unique<LinkHub>(task, r->control_pool.get(), r->inter_op_pool.get(),
                                         r->peers.get());
    // Whose graphs are not trusted shall not change a tensor behind a kernel's check either.
    r->links->ShareMemory(LinkHub::DefaultBudget(), /*copies=*/!admission.allows_all());
    r->workers = std::make_unique<GrpcWorkerCache>(std::move(addresses), task,
                                                   r->inter_op_pool.get(), r->control_pool.get(),
                                                   r->links.get(), r->peers.get(), credentials);
    r->peers->set_ask([workers = r->workers.get()](const std::string& peer, const CallOptions& call,
                                                   PeerTable::Devices* found, auto answered) {
      workers->GetWorker(peer)->GetStatusAsync(call, found, std::move(answered));
    });
    r->observed_workers = NewObservedWorkers(r->workers.get(), &r->observed->peers,
                                             &r->observed->steps, &r->observed->tracer);
  }

  // Workers that somebody calls directly or through stubs, counted.
  static std::function<std::unique_ptr<WorkerCache>(WorkerCache*)> Observing(Running* r) {
    return [observed = r->observed.get()](WorkerCache* workers) {
      return NewObservedWorkers(workers, &observed->peers, &observed->steps, &observed->tracer);
    };
  }

  // What sessions may bring.
  void AddClusters(Running* r) {
    SessionClustersOptions clusters;
    clusters.task = &r->core->env();
    clusters.own_worker = r->workers->GetWorker(task);
    clusters.pool = r->inter_op_pool.get();
    clusters.control = r->control_pool.get();
    clusters.credentials = credentials;
    clusters.observe = Observing(r);
    clusters.reach = r->reach.get();
    clusters.own_address = [this] { return address_now(); };
    r->clusters = std::make_unique<ServerSessionClusters>(std::move(clusters));
    r->core->env().clusters = r->clusters.get();
  }

  void AddEager(Running* r) {
    r->eager_transport =
        NewGrpcEagerTransport(r->inter_op_pool.get(), r->control_pool.get(), r->core->rendezvous(),
                              r->admitting.get(), credentials, r->reach.get(), Observing(r));
    r->eager_observer = NewObservedEager(&r->observed->steps, &r->observed->tracer);
    r->eager =
        std::make_unique<EagerServer>(EagerEnv{&r->core->env(), r->eager_transport.get(),
                                               r->core->env().admit, r->eager_observer.get()},
                                      EagerLimitsOf(options.server.quotas));
  }

  void AddPages(Running* r) {
    TaskFacts facts;
    facts.task = task;
    facts.cluster_id = options.server.cluster_id;
    facts.started_nanos = created_nanos;
    facts.flags = FlagsInForce(options.server, options.engine, Limits());
    facts.devices.assign(r->core->env().devices.begin(), r->core->env().devices.end());
    facts.address = [this] { return address_now(); };
    if (credentials != nullptr) facts.usable = [c = credentials] { return c->Usable(); };
    facts.silent = [r] {
      std::vector<Wait> waits;
      r->monitor->ListSilent(&waits);
      std::vector<std::string> texts;
      for (const Wait& wait : waits) texts.push_back(wait.text);
      return StrJoin(texts, "; ");
    };
    facts.version_of = [r](const std::string& peer) { return r->workers->Version(peer); };
    facts.observed = r->observed.get();
    AddTaskPages(std::move(facts), r->pages.get());
    if (options.add_pages) options.add_pages(r->core->master(), r->pages.get());
  }

  PublishedPages ToPublish(const Running& r) const {
    PublishedPages published;
    published.pages = r.pages;
    published.insecure = options.server.insecure;
    published.has_tls = credentials != nullptr && credentials->has_tls();
    if (credentials != nullptr && credentials->has_token()) {
      published.is_token = [loaded = credentials](std::string_view text) {
        return loaded->IsToken(text);
      };
    }
    return published;
  }

  RpcLimits Limits() const {
    const ServerOptions& server = options.server;
    const int64_t files = RaiseFileLimit();
    RpcLimits limits;
    limits.max_message_size =
        server.max_message_size > 0 ? server.max_message_size : kMaxMessageSize;
    // The other half is for links, peers, files and dumps.
    limits.max_connections =
        server.max_connections > 0
            ? server.max_connections
            : static_cast<int>(std::clamp<int64_t>(files / 2, 16, kMaxConnections));
    limits.max_calls = server.max_calls > 0 ? server.max_calls : kMaxCalls;
    limits.max_method_calls = CurrentMethodLimits();
    limits.loopback_only = !server.insecure && credentials == nullptr;
    limits.silence_limit = server.peer_timeout;
    const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    limits.memory_quota = std::max(memory / 4 * 3, 2 * kMaxMessageSize);
    return limits;
  }

  void WatchPeers(Running* r) {
    PeerMonitor::Options watch;
    watch.timeout = options.server.peer_timeout;
    watch.pool = r->control_pool.get();
    watch.watched = [r] {
      std::vector<std::string> tasks = r->workers->WaitedFor();
      for (std::string& master : r->core->worker()->MasterTasks()) {
        if (!r->workers->Address(master).empty()) tasks.push_back(std::move(master));
      }
      return tasks;
    };
    watch.ask = [r](const std::string& peer, const CallOptions& call, WorkerInterface::Done done) {
      WorkerInterface* const asked = r->observed_workers->GetWorker(peer);
      if (asked == nullptr) return done(errors::Unavailable("the cluster has no task ", peer));
      auto found = std::make_shared<std::vector<pb::DeviceAttributes>>();
      asked->GetStatusAsync(call, found.get(), [=, done = std::move(done)](const Status& status) {
        if (status.ok()) r->core->worker()->MasterAnswered(peer, *found);
        done(status);
      });
    };
    // Who opened a session was there; it may still be, if there is a link.
    watch.known = [r](const std::string& peer) {
      if (r->workers->HasAnswered(peer)) return true;
      const std::vector<std::string> masters = r->core->worker()->MasterTasks();
      return r->links->Find(peer) == nullptr &&
             std::find(masters.begin(), masters.end(), peer) != masters.end();
    };
    watch.lost = [r](const std::string& peer, const Status& why) {
      r->workers->FailWaiting(peer, why);
      r->core->worker()->AbandonMaster(peer, why);
    };
    watch.address = [r](const std::string& peer) { return r->workers->Address(peer); };
    r->clusters->AddTo([r] { return r->core->worker(); }, &watch);
    r->monitor = std::make_unique<PeerMonitor>(std::move(watch));
    r->core->env().list_silent_tasks = [r](std::vector<Wait>* waits) {
      r->monitor->ListSilent(waits);
    };
    r->links->set_on_closed([r](const std::string& peer) {
      if (!r->workers->Address(peer).empty()) r->monitor->Suspect(peer);
    });
  }

  // Whatever has to be asked of a task is added once, to all ways into it.
  void AddServices(Running* r) {
    r->rpc = std::make_unique<RpcServer>(r->control_pool.get(), r->inter_op_pool.get(), Limits(),
                                         r->peers.get(), credentials);
    r->rpc->Observe(&r->observed->rpc, &r->observed->peers);
    r->links->Observe(&r->observed->rpc, &r->observed->peers);
    r->worker_service =
        std::make_unique<WorkerService>(&r->core->env(), r->admitting.get(), r->peers.get());
    r->worker_service->set_may_receive([r](int64_t step_id, std::string_view client) {
      return r->eager->CheckReceive(step_id, client);
    });
    MethodServers all({r->rpc.get(), r->links.get()});
    r->worker_service->AddMethods(&all);
    r->master_service =
        std::make_unique<MasterService>(r->observed_master.get(), r->inter_op_pool.get());
    r->master_service->AddMethods(&all);
    AddObserveMethods(r->rpc.get(), task, r->page_pool.get(), r->pages.get(), &r->observed->tracer);
    AddEagerMethods(r->eager.get(), r->rpc.get());
    std::function<void(const std::string&)> shutdown;
    if (options.server.accept_shutdown) {
      shutdown = [this, r](const std::string& reason) {
        MR_LOG(kInfo, task, " was told to end", reason.empty() ? "" : ": ", reason);
        r->rpc->Drain();
        MutexLock lock(&mu);
        shutdown_asked = true;
        changed.SignalAll();
      };
    }
    AddControlMethods(
        &all,
        [this, r](pb::ControlStatusResponse* status) {
          status->set_task(task);
          status->set_cluster_id(r->peers->own().cluster_id);
          status->set_incarnation(r->peers->own().incarnation);
          {
            MutexLock lock(&mu);
            status->set_address(address);
          }
          status->set_process_id(getpid());
          status->set_uptime_seconds(static_cast<double>(SteadyNanos() - created_nanos) * 1e-9);
          for (const Device* device : r->core->env().devices) status->add_device(device->name());
        },
        std::move(shutdown), [r](std::string_view caller) { return r->links->offer(caller); });
    AddLedgerMethod(r->rpc.get(), task, r->core->env().devices, [this, r] {
      std::map<std::string, std::string> others;
      for (const std::string& peer : r->workers->ListWorkers()) {
        if (peer != task) others[peer] = r->workers->Address(peer);
      }
      return others;
    });
    AddWhyWaitingMethod(&all, [r](const CallOptions& options, auto done) {
      AskWhyWaiting(r->workers.get(), options, std::move(done));
    });
  }

  // Whatever could be made of it.
  void TearDown(Deadline grace) {
    Running* const r = running.get();
    if (r->gate != nullptr) {
      WithdrawMaster(address_now());
      WithdrawPages(address_now());
    }
    if (r->pages != nullptr) r->pages->Close();
    if (r->observed != nullptr) r->observed->tracer.Stop();
    if (r->peers != nullptr) r->peers->Stop();
    if (r->monitor != nullptr) r->monitor->Stop();
    // Calls that came over the wire and those from within the process end side by side.
    std::thread gate_closer([r, grace] {
      if (r->gate != nullptr) r->gate->Close(grace);
    });
    if (r->rpc != nullptr) r->rpc->Shutdown(grace);
    if (r->master_service != nullptr) r->master_service->WaitForNone();
    if (r->links != nullptr) r->links->StopServing(grace);
    gate_closer.join();
    r->eager = nullptr;
    if (r->core != nullptr) {
      r->core->Stop(errors::Unavailable("the server ", task, " is stopping"));
    }
    if (r->links != nullptr) r->links->Stop();
    r->clusters = nullptr;  // as the next
    r->workers = nullptr;   // waits for the answers of peers
    running = nullptr;
  }

  std::string address_now() const {
    MutexLock lock(&mu);
    return address;
  }
};

TaskServer::TaskServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TaskServer::~TaskServer() { (void)Stop(SteadyClock::now()); }

StatusOr<std::unique_ptr<TaskServer>> TaskServer::Create(const TaskServerOptions& options) {
  const ServerOptions& server = options.server;
  auto impl = std::make_unique<Impl>();
  MR_ASSIGN_OR_RETURN(impl->configured, server.cluster.Address(server.job_name, server.task_index));
  int port = 0;
  MR_RETURN_IF_ERROR(SplitAddress(impl->configured, &impl->host, &port));
  impl->options = options;
  impl->task = MakeTaskName(server.job_name, server.task_index);
  MR_RETURN_IF_ERROR(impl->TakeCredentials());
  if (server.num_cpu_devices < 1) {
    return errors::InvalidArgument("a task needs at least one CPU device, not ",
                                   server.num_cpu_devices);
  }
  MR_RETURN_IF_ERROR(CheckClusterId(server.cluster_id));
  if (!server.dump_dir.empty()) {
    MR_ASSIGN_OR_RETURN(impl->dumper, GraphDumper::Open(server.dump_dir, options.ops));
  }
  MR_RETURN_IF_ERROR(impl->TakeRules());
  {
    MutexLock lock(&impl->mu);
    impl->address = impl->configured;
  }
  return std::unique_ptr<TaskServer>(new TaskServer(std::move(impl)));
}

Status TaskServer::Start() {
  MutexLock start_lock(&impl_->start_mu);
  {
    MutexLock lock(&impl_->mu);
    if (impl_->state == Impl::State::kStarted) return OkStatus();
    if (impl_->state == Impl::State::kStopped) {
      return errors::FailedPrecondition("Server has stopped.");
    }
  }
  impl_->running = std::make_unique<Impl::Running>();
  Impl::Running* const r = impl_->running.get();
  if (Status composed = impl_->Compose(r); !composed.ok()) {
    impl_->TearDown(SteadyClock::now());
    return Annotate(composed, StrCat(" (", impl_->task, ")"));
  }
  impl_->AddServices(r);
  if (impl_->options.links) {
    const Status linked = r->links->Start();
    // gRPC carries everything, then.
    if (!linked.ok()) MR_LOG(kInfo, impl_->task, ": ", Message(linked));
  }
  std::string host;
  int configured_port = 0;
  MR_RETURN_IF_ERROR(SplitAddress(impl_->configured, &host, &configured_port));
  const StatusOr<int> port = r->rpc->Start(StrCat(ListeningHost(host), ":", configured_port));
  if (!port.ok()) {
    impl_->TearDown(SteadyClock::now());
    return Annotate(port.status(), StrCat(" (", impl_->task, ")"));
  }
  r->monitor->Start();
  const std::string address =
      StrCat(impl_->configured.substr(0, impl_->configured.rfind(':') + 1), *port);
  r->gate = std::make_shared<GatedMaster>(r->observed_master.get(), StrCat(kScheme, address));
  PublishMaster(address, r->gate);
  PublishPages(address, impl_->ToPublish(*r));
  MutexLock lock(&impl_->mu);
  impl_->address = address;
  impl_->state = Impl::State::kStarted;
  return OkStatus();
}

Status TaskServer::Stop(Deadline grace) {
  MutexLock start_lock(&impl_->start_mu);
  if (impl_->running != nullptr) impl_->TearDown(grace);
  MutexLock lock(&impl_->mu);
  impl_->state = Impl::State::kStopped;
  impl_->changed.SignalAll();
  return OkStatus();
}

bool TaskServer::WaitForShutdown(Deadline deadline) {
  MutexLock lock(&impl_->mu);
  while (impl_->state != Impl::State::kStopped && !impl_->shutdown_asked) {
    const Deadline end = deadline == kNoDeadline ? impl_->waits_end : deadline;
    if (end == kNoDeadline) {
      impl_->changed.Wait(&impl_->mu);
    } else if (!impl_->changed.WaitUntil(&impl_->mu, end)) {
      return impl_->state == Impl::State::kStopped || impl_->shutdown_asked;
    }
  }
  return true;
}

void TaskServer::LimitWaits(Deadline deadline) {
  MutexLock lock(&impl_->mu);
  impl_->waits_end = deadline;
  impl_->changed.SignalAll();
}

std::string TaskServer::address() const { return impl_->address_now(); }
std::string TaskServer::target() const { return StrCat(kScheme, address()); }

StatusOr<std::shared_ptr<MasterInterface>> ConnectToMaster(const std::string& target,
                                                           const Credentials& credentials) {
  const std::string_view text = target;
  if (!text.starts_with(kScheme)) {
    return errors::InvalidArgument("session target '", target,
                                   "' is not of the form grpc://host:port");
  }
  const std::string address(text.substr(kScheme.size()));
  std::string host;
  int port = 0;
  MR_RETURN_IF_ERROR(SplitAddress(address, &host, &port));
  if (auto here = FindPublishedMaster(address)) return here;
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const LoadedCredentials> loaded,
                      CredentialsOrDefault(credentials));
  return std::shared_ptr<MasterInterface>(
      NewGrpcRemoteMaster(address, ClientPool(), std::move(loaded)));
}

}  // namespace millrace
