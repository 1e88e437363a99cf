// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/session_clusters.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "base/use_count.h"
#include "device/device_name.h"
#include "distributed_runtime/remote_rendezvous.h"
#include "distributed_runtime/stub/grpc_worker_cache.h"
#include "millrace/cluster.h"
#include "session/forwarding_worker.h"

namespace millrace {
namespace {

constexpr std::string_view kSession = "a session";  // brings the cluster

std::string Member(const std::string& task, std::string_view address) {
  return StrCat(task, "@", address);
}

// Of "task@host:port"; "" for a task of the server's own cluster.
std::string_view AddressOf(std::string_view member) {
  const std::size_t at = member.find('@');
  return at == std::string_view::npos ? "" : member.substr(at + 1);
}

// The devices of a task as the cluster of a session calls it.
void Rename(const DeviceName& task, std::vector<pb::DeviceAttributes>* devices) {
  std::erase_if(*devices, [&](pb::DeviceAttributes& device) {
    StatusOr<DeviceName> name = DeviceName::Parse(device.name());
    if (!name.ok() || name->type != "CPU") return true;
    name->EnsureSpecification(task);
    device.set_name(name->ToString());
    return false;
  });
}

// A worker that speaks of itself as the cluster of a session does.
class MemberWorker final : public ForwardingWorker {
 public:
  MemberWorker(WorkerInterface* worker, const DeviceName& task,
               std::shared_ptr<const pb::ClusterDef> cluster)
      : ForwardingWorker(worker), task_(task), cluster_(std::move(cluster)) {}

  void GetStatusAsync(const CallOptions& options, std::vector<pb::DeviceAttributes>* devices,
                      Done done) override {
    ForwardingWorker::GetStatusAsync(
        options, devices, [devices, task = task_, done = std::move(done)](Status status) {
          if (status.ok()) Rename(task, devices);
          done(std::move(status));
        });
  }

  void CreateSessionAsync(const CallOptions& options, const WorkerSessionOptions& session,
                          Done done) override {
    auto server = std::make_shared<pb::ServerDef>();
    *server->mutable_cluster() = *cluster_;
    server->set_job_name(*task_.job);
    server->set_task_index(*task_.task);
    server->set_protocol("grpc");
    WorkerSessionOptions told = session;
    told.server_def = std::move(server);
    ForwardingWorker::CreateSessionAsync(options, told, std::move(done));
  }

  CollectivePeer* collectives() override { return nullptr; }

 private:
  const DeviceName task_;
  const std::shared_ptr<const pb::ClusterDef> cluster_;
};

// One session's cluster at this task.
class Cluster final : public WorkerCache, public std::enable_shared_from_this<Cluster> {
 public:
  struct Task {
    std::string address;
    std::string reached;  // the same, as this server calls it
    std::string called;   // what its stub calls it: what its certificate says, if it has one
  };
  using Tasks = std::map<std::string, Task, std::less<>>;

  Cluster(const SessionClustersOptions& options, const pb::ClusterDef& def, Tasks tasks,
          const std::string& own_task)
      : tasks_(std::move(tasks)),
        def_(std::make_shared<pb::ClusterDef>(def)),
        env_(*options.task),
        rendezvous_(NewRenamedRendezvousManager(
            own_task, [this](std::string_view task) { return Find(task); },
            options.task->rendezvous)),
        stubs_(Addresses(), tasks_.find(own_task)->second.called, options.pool, options.control,
               nullptr, nullptr, options.credentials) {
    stubs_.SetOwnWorker(options.own_worker);
    if (options.observe != nullptr) observed_ = options.observe(&stubs_);
    env_.task = own_task;
    env_.devices.clear();
    env_.rendezvous = rendezvous_.get();
    env_.workers = this;
    env_.collectives = nullptr;
    env_.clusters = nullptr;
    env_.make_session_devices = nullptr;
  }

  // To be completed before anybody has it.
  WorkerEnv* env() { return &env_; }

  std::vector<std::string> ListWorkers() const override {
    std::vector<std::string> names;
    for (const auto& [name, task] : tasks_) names.push_back(name);
    return names;
  }

  WorkerInterface* GetWorker(std::string_view name) override {
    MutexLock lock(&mu_);
    const auto known = members_.find(name);
    if (known != members_.end()) return known->second.get();
    const auto task = tasks_.find(name);
    if (task == tasks_.end()) return nullptr;
    WorkerCache* const under = observed_ != nullptr ? observed_.get() : &stubs_;
    auto made = std::make_unique<MemberWorker>(under->GetWorker(task->second.called),
                                               *DeviceName::Parse(name), def_);
    return members_.emplace(task->first, std::move(made)).first->second.get();
  }

  std::string Address(std::string_view name) const override {
    const auto task = tasks_.find(name);
    return task == tasks_.end() ? "" : task->second.address;
  }

  // Whether this is one of its tasks, at that address.
  bool Has(std::string_view member) const {
    const std::string_view address = AddressOf(member);
    const auto task = tasks_.find(member.substr(0, member.size() - address.size() - 1));
    return !address.empty() && task != tasks_.end() && task->second.address == address;
  }
  void AddWaitedFor(std::set<std::string>* members) const {
    const std::vector<std::string> waited = stubs_.WaitedFor();
    if (waited.empty()) return;
    for (const auto& [name, task] : tasks_) {
      if (std::find(waited.begin(), waited.end(), task.called) == waited.end()) continue;
      members->insert(Member(name, task.address));
    }
  }
  bool HasAnswered(std::string_view member) const { return stubs_.HasAnswered(CalledBy(member)); }
  void FailWaiting(std::string_view member, const Status& why) {
    stubs_.FailWaiting(CalledBy(member), why);
  }
  void FailAll(const Status& why) {
    for (const auto& [name, task] : tasks_) stubs_.FailWaiting(task.called, why);
  }

 private:
  // Of a task that there is.
  const std::string& CalledBy(std::string_view member) const {
    return tasks_.find(member.substr(0, member.find('@')))->second.called;
  }

  std::shared_ptr<WorkerInterface> Find(std::string_view task) {
    std::shared_ptr<Cluster> self = weak_from_this().lock();
    WorkerInterface* const worker = self == nullptr ? nullptr : GetWorker(task);
    return worker == nullptr ? nullptr : std::shared_ptr<WorkerInterface>(std::move(self), worker);
  }

  std::map<std::string, std::string> Addresses() const {
    std::map<std::string, std::string> addresses;
    for (const auto& [name, task] : tasks_) addresses[task.called] = task.reached;
    return addresses;
  }

  const Tasks tasks_;
  const std::shared_ptr<const pb::ClusterDef> def_;
  WorkerEnv env_;
  const std::unique_ptr<RendezvousManager> rendezvous_;
  std::unique_ptr<WorkerCache> observed_;  // told by the calls that `stubs_` waits for
  Mutex mu_;
  StringMap<std::unique_ptr<MemberWorker>> members_ ABSL_GUARDED_BY(mu_);
  GrpcWorkerCache stubs_;
};

// The task's CPUs under the name that a cluster gives them, over the resources that `resources`
// gives for each.
template <typename Resources>
std::unique_ptr<DeviceSet> RenamedDevices(const WorkerEnv& task, const std::string& name,
                                          const Resources& resources) {
  auto set = std::make_unique<DeviceSet>();
  for (Device* device : task.devices) {
    if (device->type() != "CPU") continue;
    DeviceName renamed = device->parsed_name();
    renamed.EnsureSpecification(*DeviceName::Parse(name));
    set->devices.push_back(NewCpuDevice(renamed.ToString(), device->incarnation(),
                                        device->intra_op_pool(), resources(device, set.get())));
  }
  return set;
}

}  // namespace

struct ServerSessionClusters::Impl {
  explicit Impl(SessionClustersOptions o)
      : options(std::move(o)), later(std::make_unique<ThreadPool>("mr-clusters", 1)) {}

  const SessionClustersOptions options;
  const std::shared_ptr<UseCount> alive = std::make_shared<UseCount>();
  mutable Mutex mu;
  std::map<Cluster*, std::weak_ptr<Cluster>> open ABSL_GUARDED_BY(mu);
  // As long as the server: what sessions leave in its state may hold on to them.
  StringMap<std::unique_ptr<DeviceSet>> shared_devices ABSL_GUARDED_BY(mu);
  // Gives clusters back, whose connections wait for answers: the last share of one may be that of
  // the callback of such an answer. Gone first.
  std::unique_ptr<ThreadPool> later;

  // What must be true of every cluster, whoever names it; gives its tasks as they are called.
  StatusOr<ClusterSpec> Check(const pb::ClusterDef& def, Cluster::Tasks* called) const {
    MR_RETURN_IF_ERROR(CheckSizes(def));
    ClusterSpec spec;
    for (const pb::JobDef& job : def.job()) {
      for (const auto& [index, address] : job.tasks()) {
        if (const Status added = spec.AddTask(job.name(), index, address); !added.ok()) {
          return Annotate(added, " (in the cluster_def of a session)");
        }
        std::string task = MakeTaskName(job.name(), index);
        MR_ASSIGN_OR_RETURN(std::string reached, options.reach->Find(kSession, task, address));
        // Whoever has credentials takes answers from the task of that name alone.
        std::string known = options.credentials == nullptr ? "" : options.reach->TaskAt(address);
        std::string proves = known.empty() ? task : std::move(known);
        (*called)[std::move(task)] = {address, std::move(reached), std::move(proves)};
      }
    }
    return spec;
  }

  // Errors may repeat the names, afterwards.
  Status CheckSizes(const pb::ClusterDef& def) const {
    int num_tasks = 0;
    std::set<std::string> jobs;
    for (const pb::JobDef& job : def.job()) {
      num_tasks += static_cast<int>(job.tasks_size());
      if (num_tasks > kMostTasks) {
        return errors::InvalidArgument("the cluster_def of a session has more than ", kMostTasks,
                                       " tasks, the most that ", options.task->task, " takes");
      }
      if (job.name().size() > kLongestName) {
        return errors::InvalidArgument("the cluster_def of a session has the job '",
                                       ShortName(job.name()), "', whose name is longer than ",
                                       kLongestName);
      }
      if (!jobs.insert(job.name()).second) {
        return errors::InvalidArgument("the cluster_def of a session has the job '",
                                       CEscape(job.name()), "' twice");
      }
      for (const auto& [index, address] : job.tasks()) {
        if (address.size() <= kLongestAddress) continue;
        // Says so.
        MR_RETURN_IF_ERROR(
            options.reach->Find(kSession, MakeTaskName(job.name(), index), address).status());
      }
    }
    return OkStatus();
  }

  // Whether an address is that at which the server listens.
  bool IsOwn(const std::string& address) const {
    std::string host, own_host;
    int port = 0, own_port = 0;
    if (!SplitAddress(address, &host, &port).ok() ||
        !SplitAddress(options.own_address(), &own_host, &own_port).ok() || port != own_port) {
      return false;
    }
    const bool here = IsLoopbackHost(own_host) || own_host == "0.0.0.0" || own_host == "::";
    return host == own_host || (here && IsLoopbackHost(host));
  }

  // The task of the cluster that this server is.
  StatusOr<std::string> FindOwn(const pb::ClusterDef& def, std::string_view target) const {
    const std::size_t scheme = target.find("://");
    if (scheme != std::string_view::npos) target.remove_prefix(scheme + 3);
    std::vector<std::string> called, own;
    for (const pb::JobDef& job : def.job()) {
      for (const auto& [index, address] : job.tasks()) {
        std::string task = MakeTaskName(job.name(), index);
        if (address == target) called.push_back(task);
        if (IsOwn(address)) own.push_back(std::move(task));
      }
    }
    if (!called.empty()) own = std::move(called);
    // These begin as TensorFlow's do.
    if (own.empty()) {
      return errors::InvalidArgument(
          "The master (current machine) is not included in the provided cluster_def. It is ",
          options.task->task, " at ", options.own_address(),
          target.empty() ? "" : ", and was called ", ShortName(target));
    }
    if (own.size() > 1) {
      return errors::InvalidArgument(
          "Found multiple matching tasks that correspond to to the master. Master target: '",
          ShortName(target), "'. Tasks: ", StrJoin(own, ", "));
    }
    if (own[0] == options.task->task) {
      const DeviceName name = *DeviceName::Parse(own[0]);
      return errors::InvalidArgument(
          "The ClusterSpec names the job and task index to be the same names that were provided "
          "when the server booted. This is currently not allowed. Job: ",
          *name.job, ", task index: ", *name.task);
    }
    return own[0];
  }

  StatusOr<std::shared_ptr<Cluster>> Open(const pb::ClusterDef& def, Cluster::Tasks tasks,
                                          const std::string& own_task) {
    MutexLock lock(&mu);
    if (open.size() >= kMostOpen) {
      return errors::ResourceExhausted(options.task->task, " has part in ", open.size(),
                                       " clusters that sessions brought, the most that it takes: "
                                       "close some of the sessions");
    }
    alive->Enter();
    std::shared_ptr<Cluster> cluster(new Cluster(options, def, std::move(tasks), own_task),
                                     [this, count = alive](Cluster* unused) {
                                       const std::shared_ptr<UseCount> giving_back = count;
                                       giving_back->Enter();
                                       later->Schedule([this, unused] { GiveBack(unused); });
                                       giving_back->Leave();
                                     });
    open[cluster.get()] = cluster;
    return cluster;
  }

  void GiveBack(Cluster* unused) {
    const std::shared_ptr<UseCount> count = alive;
    {
      MutexLock lock(&mu);
      open.erase(unused);
    }
    delete unused;
    count->Leave();
  }

  static std::shared_ptr<const WorkerEnv> EnvOf(std::shared_ptr<Cluster> cluster) {
    const WorkerEnv* const env = cluster->env();
    return {std::move(cluster), env};
  }

  Status ShareDevices(WorkerEnv* env) {
    MutexLock lock(&mu);
    auto known = shared_devices.find(env->task);
    if (known == shared_devices.end()) {
      if (shared_devices.size() >= kMostNames) {
        return errors::ResourceExhausted("sessions that share its state know ", options.task->task,
                                         " by ", shared_devices.size(),
                                         " names already, the most that it takes: ", env->task,
                                         " would be another one");
      }
      known = shared_devices
                  .emplace(env->task, RenamedDevices(*options.task, env->task,
                                                     [](Device* device, DeviceSet*) {
                                                       return device->resource_manager();
                                                     }))
                  .first;
    }
    for (const auto& device : known->second->devices) env->devices.push_back(device.get());
    return OkStatus();
  }

  std::vector<std::shared_ptr<Cluster>> AllOpen() const {
    std::vector<std::shared_ptr<Cluster>> all;
    MutexLock lock(&mu);
    for (const auto& [at, weak] : open) {
      if (std::shared_ptr<Cluster> cluster = weak.lock()) all.push_back(std::move(cluster));
    }
    return all;
  }
  // Those that have the task.
  std::vector<std::shared_ptr<Cluster>> With(std::string_view member) const {
    std::vector<std::shared_ptr<Cluster>> found = AllOpen();
    std::erase_if(found, [&](const auto& cluster) { return !cluster->Has(member); });
    return found;
  }

  void Ask(const std::string& member, const CallOptions& call,
           std::vector<pb::DeviceAttributes>* devices, WorkerInterface::Done done) const {
    std::vector<std::shared_ptr<Cluster>> clusters = With(member);
    if (clusters.empty()) return done(errors::Unavailable("no session has the task ", member));
    // Mostly the first one has been called before.
    const auto answered = std::find_if(clusters.begin(), clusters.end(), [&](const auto& cluster) {
      return cluster->HasAnswered(member);
    });
    std::shared_ptr<Cluster> asked = answered != clusters.end() ? *answered : clusters.front();
    WorkerInterface* const worker =
        asked->GetWorker(std::string_view(member).substr(0, member.find('@')));
    worker->GetStatusAsync(call, devices,
                           [asked = std::move(asked), done = std::move(done)](Status status) {
                             done(std::move(status));
                           });
  }
};

ServerSessionClusters::ServerSessionClusters(SessionClustersOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

ServerSessionClusters::~ServerSessionClusters() {
  const Status why = errors::Unavailable("the server ", impl_->options.task->task, " is stopping");
  for (const auto& cluster : impl_->AllOpen()) cluster->FailAll(why);
  impl_->alive->WaitForNone();
}

StatusOr<std::shared_ptr<const WorkerEnv>> ServerSessionClusters::Lead(
    const pb::ClusterDef& cluster, const std::string& target) {
  Cluster::Tasks tasks;
  MR_RETURN_IF_ERROR(impl_->Check(cluster, &tasks).status());
  MR_ASSIGN_OR_RETURN(const std::string own, impl_->FindOwn(cluster, target));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<Cluster> opened, impl_->Open(cluster, std::move(tasks), own));
  return Impl::EnvOf(std::move(opened));
}

StatusOr<std::shared_ptr<const WorkerEnv>> ServerSessionClusters::Join(const pb::ServerDef& server,
                                                                       bool isolated) {
  const WorkerEnv& task = *impl_->options.task;
  if (server.job_name().size() > kLongestName) {
    return errors::InvalidArgument("a session calls ", task.task, " by the job '",
                                   ShortName(server.job_name()), "', which is longer than ",
                                   kLongestName);
  }
  Cluster::Tasks tasks;
  MR_ASSIGN_OR_RETURN(const ClusterSpec spec, impl_->Check(server.cluster(), &tasks));
  MR_ASSIGN_OR_RETURN(const std::string address,
                      spec.Address(server.job_name(), server.task_index()));
  const std::string own_address = impl_->options.own_address();
  std::string host;
  int port = 0, own_port = 0;
  MR_RETURN_IF_ERROR(SplitAddress(address, &host, &port));
  MR_RETURN_IF_ERROR(SplitAddress(own_address, &host, &own_port));
  if (port != own_port) {
    return errors::InvalidArgument("Requested port ", port, " differs from expected port ",
                                   own_port, ": the cluster_def of a session has ", address,
                                   " for what is ", task.task, " at ", own_address);
  }
  const std::string own = MakeTaskName(server.job_name(), server.task_index());
  MR_ASSIGN_OR_RETURN(std::shared_ptr<Cluster> opened,
                      impl_->Open(server.cluster(), std::move(tasks), own));
  if (isolated) {
    opened->env()->make_session_devices = [&task, own]() -> StatusOr<std::unique_ptr<DeviceSet>> {
      return RenamedDevices(task, own, [](Device*, DeviceSet* set) {
        return set->resources.emplace_back(std::make_unique<ResourceManager>()).get();
      });
    };
  } else {
    MR_RETURN_IF_ERROR(impl_->ShareDevices(opened->env()));
  }
  return Impl::EnvOf(std::move(opened));
}

void ServerSessionClusters::AddTo(std::function<LocalWorker*()> worker,
                                  PeerMonitor::Options* watch) {
  Impl* const impl = impl_.get();
  watch->watched = [impl, worker, own = std::move(watch->watched)] {
    std::set<std::string> members;
    for (const auto& cluster : impl->AllOpen()) cluster->AddWaitedFor(&members);
    for (std::string& master : worker()->MasterTasks()) {
      if (!AddressOf(master).empty()) members.insert(std::move(master));
    }
    std::vector<std::string> tasks = own();
    tasks.insert(tasks.end(), members.begin(), members.end());
    return tasks;
  };
  watch->ask = [impl, worker, own = std::move(watch->ask)](
                   const std::string& task, const CallOptions& call, WorkerInterface::Done done) {
    if (AddressOf(task).empty()) return own(task, call, std::move(done));
    auto found = std::make_shared<std::vector<pb::DeviceAttributes>>();
    impl->Ask(task, call, found.get(), [=, done = std::move(done)](const Status& status) {
      if (status.ok()) worker()->MasterAnswered(task, *found);
      done(status);
    });
  };
  watch->known = [impl, worker, own = std::move(watch->known)](const std::string& task) {
    if (AddressOf(task).empty()) return own(task);
    const auto clusters = impl->With(task);
    const auto masters = worker()->MasterTasks();
    // Who opened a session was there.
    return std::find(masters.begin(), masters.end(), task) != masters.end() ||
           std::any_of(clusters.begin(), clusters.end(),
                       [&](const auto& cluster) { return cluster->HasAnswered(task); });
  };
  watch->lost = [impl, worker, own = std::move(watch->lost)](const std::string& task,
                                                             const Status& why) {
    if (AddressOf(task).empty()) return own(task, why);
    for (const auto& cluster : impl->With(task)) cluster->FailWaiting(task, why);
    worker()->AbandonMaster(task, why);
  };
  watch->address = [own = std::move(watch->address)](const std::string& task) {
    return AddressOf(task).empty() ? own(task) : std::string(AddressOf(task));
  };
}

std::size_t ServerSessionClusters::num_open() const {
  MutexLock lock(&impl_->mu);
  return impl_->open.size();
}

}  // namespace millrace
