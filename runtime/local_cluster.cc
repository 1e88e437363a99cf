// SPDX-License-Identifier: Apache-2.0
#include "runtime/local_cluster.h"

#include <utility>

#include "base/errors.h"
#include "base/options/engine_options.h"
#include "base/status_macros.h"
#include "distributed_runtime/task_server.h"
#include "master/dump/graph_dump.h"
#include "runtime/gpu.h"
#include "runtime/registries.h"
#include "runtime/session_pools.h"
#include "task/task.h"

namespace millrace {
namespace {

constexpr char kTask[] = "/job:localhost/replica:0/task:0";
constexpr int kMaxIntraOpThreads = 4096;

// Destroyed from the last to the first.
struct LocalCluster {
  SessionPools pools;
  FixedWorkerCache workers;
  std::unique_ptr<GraphDumper> dumper;  // null: no dumps
  std::unique_ptr<Task> task;
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
  TaskOptions options;
  options.name = kTask;
  options.ops = &AllOps();
  options.kernels = &AllKernels();
  MR_ASSIGN_OR_RETURN(options.engine, EngineOptions::FromEnvironment());
  options.factories = AllDeviceFactories();
  options.device_count = {config.device_count().begin(), config.device_count().end()};
  MR_RETURN_IF_ERROR(AddGpus(config, &options.factories, &options.device_count));
  options.intra_op_pool = SharedPool("mr-intra", intra);
  options.inter_op_pools = cluster->pools.pools();
  options.inter_op_pool = options.inter_op_pools[0];
  MR_ASSIGN_OR_RETURN(cluster->task, Task::Open(std::move(options)));
  Task& task = *cluster->task;
  task.Connect(&cluster->workers, NewLocalRendezvousManager(), "");
  cluster->workers.Add(kTask, task.worker());
  MasterEnv leading;
  if (!dump_dir.empty()) {
    MR_ASSIGN_OR_RETURN(cluster->dumper, GraphDumper::Open(dump_dir, &AllOps()));
    leading.graph_dumper = cluster->dumper.get();
  }
  task.Lead(std::move(leading));
  MasterInterface* const master = task.master();
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
