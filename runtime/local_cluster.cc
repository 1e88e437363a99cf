#include "runtime/local_cluster.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "distributed_runtime/task_server.h"
#include "runtime/registries.h"
#include "session/graph_dump.h"
#include "session/local_worker.h"
#include "session/master.h"
#include "session/task_collectives.h"

namespace millrace {
namespace {

constexpr char kTask[] = "/job:localhost/replica:0/task:0";
constexpr int kMaxThreads = 4096;
constexpr int kMaxDevices = 1024;

// Pools of the process by size; never destroyed, so that late callbacks find them.
ThreadPool* SharedPool(const char* name, int threads) {
  static auto* const mu = new Mutex;
  static auto* const pools = new std::map<std::pair<std::string, int>, ThreadPool*>;
  if (threads == 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (threads < 0) threads = 0;
  MutexLock lock(mu);
  ThreadPool*& pool = (*pools)[{name, threads}];
  if (pool == nullptr) pool = new ThreadPool(name, threads);
  return pool;
}

std::unique_ptr<DeviceSet> MakeDevices(const std::vector<uint64_t>& incarnations,
                                       ThreadPool* intra_op_pool) {
  auto set = std::make_unique<DeviceSet>();
  for (size_t i = 0; i < incarnations.size(); ++i) {
    set->resources.push_back(std::make_unique<ResourceManager>());
    set->devices.push_back(NewCpuDevice(StrCat(kTask, "/device:CPU:", i), incarnations[i],
                                        intra_op_pool, set->resources.back().get()));
  }
  return set;
}

// Destroyed from the last to the first.
struct LocalCluster {
  std::unique_ptr<DeviceSet> devices;
  std::unique_ptr<RendezvousManager> rendezvous;
  FixedWorkerCache workers;
  std::shared_ptr<CollectiveManager> collectives;
  WorkerEnv env;
  std::unique_ptr<LocalWorker> worker;
  std::unique_ptr<GraphDumper> dumper;  // null: no dumps
  std::unique_ptr<Master> master;
};

}  // namespace

StatusOr<std::shared_ptr<MasterInterface>> NewLocalCluster(const pb::ConfigProto& config,
                                                           const std::string& dump_dir) {
  int num_cpus = 1;
  if (const auto it = config.device_count().find("CPU"); it != config.device_count().end()) {
    num_cpus = it->second;
  }
  if (num_cpus < 1 || num_cpus > kMaxDevices) {
    return errors::InvalidArgument("device_count[\"CPU\"] must be from 1 to ", kMaxDevices,
                                   ", not ", num_cpus);
  }
  const int inter = config.inter_op_parallelism_threads();
  const int intra = config.intra_op_parallelism_threads();
  if (inter > kMaxThreads || intra > kMaxThreads) {
    return errors::InvalidArgument("a session may ask for ", kMaxThreads, " threads, not ",
                                   std::max(inter, intra));
  }
  auto cluster = std::make_shared<LocalCluster>();
  ThreadPool* const intra_op_pool = SharedPool("mr-intra", intra);
  std::vector<uint64_t> incarnations;
  for (int i = 0; i < num_cpus; ++i) incarnations.push_back(RandomId());
  cluster->devices = MakeDevices(incarnations, intra_op_pool);
  cluster->rendezvous = NewLocalRendezvousManager();
  WorkerEnv& env = cluster->env;
  env.task = kTask;
  for (const auto& device : cluster->devices->devices) env.devices.push_back(device.get());
  env.ops = &AllOps();
  env.kernels = &AllKernels();
  env.inter_op_pool = SharedPool("mr-inter", inter);
  env.rendezvous = cluster->rendezvous.get();
  env.workers = &cluster->workers;
  env.make_session_devices = [incarnations,
                              intra_op_pool]() -> StatusOr<std::unique_ptr<DeviceSet>> {
    return MakeDevices(incarnations, intra_op_pool);
  };
  cluster->collectives = NewTaskCollectives(env, "");
  env.collectives = cluster->collectives.get();
  cluster->worker = std::make_unique<LocalWorker>(env);
  cluster->workers.Add(env.task, cluster->worker.get());
  if (!dump_dir.empty()) {
    MR_ASSIGN_OR_RETURN(cluster->dumper, GraphDumper::Open(dump_dir, env.ops));
  }
  cluster->master = std::make_unique<Master>(MasterEnv{&env, {}, cluster->dumper.get()});
  MasterInterface* const master = cluster->master.get();
  return std::shared_ptr<MasterInterface>(std::move(cluster), master);
}

StatusOr<std::shared_ptr<MasterInterface>> ConnectTarget(const std::string& target,
                                                         const pb::ConfigProto& config,
                                                         const std::string& dump_dir) {
  if (target.empty()) return NewLocalCluster(config, dump_dir);
  if (!dump_dir.empty()) {
    return errors::InvalidArgument(
        "dump_dir is for sessions in this process; the server at ", target,
        " writes the graphs of its sessions if it is started with a dump_dir of its own");
  }
  return ConnectToMaster(target);
}

}  // namespace millrace
