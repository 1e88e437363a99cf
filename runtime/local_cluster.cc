#include "runtime/local_cluster.h"

#include <map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "distributed_runtime/task_server.h"
#include "master/dump/graph_dump.h"
#include "master/master.h"
#include "runtime/gpu.h"
#include "runtime/registries.h"
#include "runtime/session_pools.h"
#include "session/device_set.h"
#include "worker/local_worker.h"
#include "worker/task_collectives.h"

namespace millrace {
namespace {

constexpr char kTask[] = "/job:localhost/replica:0/task:0";
constexpr int kMaxIntraOpThreads = 4096;

// Destroyed from the last to the first.
struct LocalCluster {
  SessionPools pools;
  std::shared_ptr<const TaskDevices> machines;
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
  const int intra = config.intra_op_parallelism_threads();
  if (intra > kMaxIntraOpThreads) {
    return errors::InvalidArgument("a session may ask for ", kMaxIntraOpThreads,
                                   " intra-op threads, not ", intra);
  }
  MR_ASSIGN_OR_RETURN(SessionPools pools, SessionPools::Make(config));
  auto cluster = std::make_shared<LocalCluster>();
  cluster->pools = std::move(pools);
  ThreadPool* const intra_op_pool = SharedPool("mr-intra", intra);
  DeviceFactories factories = AllDeviceFactories();
  std::map<std::string, int> counts(config.device_count().begin(), config.device_count().end());
  MR_RETURN_IF_ERROR(AddGpus(config, &factories, &counts));
  MR_ASSIGN_OR_RETURN(cluster->machines, TaskDevices::Open(factories, kTask, counts));
  MR_ASSIGN_OR_RETURN(cluster->devices, MakeDeviceSet(*cluster->machines, intra_op_pool));
  cluster->rendezvous = NewLocalRendezvousManager();
  WorkerEnv& env = cluster->env;
  env.task = kTask;
  for (const auto& device : cluster->devices->devices) env.devices.push_back(device.get());
  env.ops = &AllOps();
  env.kernels = &AllKernels();
  env.inter_op_pools = cluster->pools.pools();
  env.inter_op_pool = env.inter_op_pools[0];
  env.rendezvous = cluster->rendezvous.get();
  env.workers = &cluster->workers;
  env.make_session_devices = [machines = cluster->machines, intra_op_pool] {
    return MakeDeviceSet(*machines, intra_op_pool);
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
                                                         const std::string& dump_dir,
                                                         const Credentials& credentials) {
  if (target.empty()) return NewLocalCluster(config, dump_dir);
  if (!dump_dir.empty()) {
    return errors::InvalidArgument(
        "dump_dir is for sessions in this process; the server at ", target,
        " writes the graphs of its sessions if it is started with a dump_dir of its own");
  }
  return ConnectToMaster(target, credentials);
}

}  // namespace millrace
