// SPDX-License-Identifier: Apache-2.0
// Clusters as launchers describe them: which tasks there are, and which one this process is.
//
//   millrace::StatusOr<millrace::ResolvedTask> self = millrace::ResolveFromEnvironment();
//   auto server = millrace::Server::Create({.cluster = self->cluster,
//                                           .job_name = *self->job_name,
//                                           .task_index = *self->task_index});
//
// All functions are thread-safe. They read the environment, open no connection, and change nothing.
#ifndef MILLRACE_CLUSTER_RESOLVER_H_
#define MILLRACE_CLUSTER_RESOLVER_H_

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/cluster.h"
#include "millrace/status.h"

namespace millrace {

// The value of an environment variable; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// Reads the variables of this process, each time anew.
Environment ProcessEnvironment();
// Reads these variables alone: for tests, and for descriptions that come from elsewhere.
Environment FixedEnvironment(std::map<std::string, std::string> variables);

// A cluster and which of its tasks this process is.
struct ResolvedTask {
  ClusterSpec cluster{};                  // empty: the program runs by itself
  std::optional<std::string> job_name{};  // of this task; none: not said, or by itself
  std::optional<int> task_index{};        // of this task in its job; none: as job_name
  std::string source{};                   // "TF_CONFIG", "Slurm", ...; "" for a program by itself
  std::string rpc_layer{};                // "grpc" in most; "" if not said
  std::string environment{};              // TF_CONFIG's "environment"
  std::string session_master{};           // TF_CONFIG's "session_master"
  int local_rank = 0;                     // among the tasks of this launcher on this host
  int local_size = 1;                     // how many tasks of this launcher are on this host
  // The GPUs for this task, as ServerOptions::visible_gpus takes them; "": not decided here.
  std::string visible_gpus{};
};

// A cluster that the program describes itself, and the task that it is. InvalidArgument for a task
// that the cluster does not have.
StatusOr<ResolvedTask> SimpleCluster(ClusterSpec cluster, const std::string& job_name,
                                     int task_index = 0);

// The task that the launcher of this process describes: the first of TF_CONFIG, SageMaker, MPI,
// torchrun, Slurm and Kubernetes whose variables are set. A program by itself if none is.
StatusOr<ResolvedTask> ResolveFromEnvironment(
    const Environment& environment = ProcessEnvironment());

// {"cluster": {...}, "task": {"type": "worker", "index": 0}} in TF_CONFIG. An evaluator that is no
// task of the cluster gets a cluster of its own. InvalidArgument if it cannot be read.
StatusOr<ResolvedTask> ResolveTfConfig(const Environment& environment = ProcessEnvironment());

// What Slurm does not say of the jobs, ports and GPUs of its tasks.
struct SlurmOptions {
  // Jobs and how many tasks each has, filled in order of their names; empty: all are workers.
  std::map<std::string, int> jobs{};
  int port_base = 8888;  // a task listens on port_base + its number on its host
  // 0: as CUDA_VISIBLE_DEVICES names them.
  int gpus_per_node = 0;
  int gpus_per_task = 0;  // 0: an equal share of the host's
  // Whether ResolvedTask::visible_gpus is set: to the share of this task, by its local rank.
  bool auto_set_gpu = true;
};
// From SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.
// FailedPrecondition names the one that is missing; InvalidArgument if jobs and tasks do not agree,
// or the tasks of a host want more GPUs than it has.
StatusOr<ResolvedTask> ResolveSlurm(const SlurmOptions& options = {},
                                    const Environment& environment = ProcessEnvironment());

// What MPI and torchrun do not say of jobs, hosts and ports.
struct RankOptions {
  std::map<std::string, int> jobs{};  // as SlurmOptions::jobs
  // The hosts in order of the ranks that run there, the same number on each. Launchers do not tell:
  // empty takes MILLRACE_HOSTS ("a,b"), and without that all ranks must be on one host.
  std::vector<std::string> hosts{};
  int port_base = 0;  // 0: 8888 under MPI; MASTER_PORT + 1 under torchrun
};
// From OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK and _LOCAL_SIZE (Open MPI), or PMI_RANK and
// PMI_SIZE with MPI_LOCALRANKID and MPI_LOCALNRANKS (MPICH, Intel).
StatusOr<ResolvedTask> ResolveMpi(const RankOptions& options = {},
                                  const Environment& environment = ProcessEnvironment());
// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
StatusOr<ResolvedTask> ResolveTorchrun(const RankOptions& options = {},
                                       const Environment& environment = ProcessEnvironment());

// From SM_HOSTS (a JSON list, taken in order of names) and SM_CURRENT_HOST; all are workers.
StatusOr<ResolvedTask> ResolveSageMaker(int port = 2223,
                                        const Environment& environment = ProcessEnvironment());

// What the names of pods do not say of the cluster.
struct KubernetesOptions {
  // Jobs and their replicas; empty takes MILLRACE_JOBS ("ps=2,worker=3").
  std::map<std::string, int> jobs{};
  // The headless service that gives pods their names; empty takes MILLRACE_SERVICE.
  std::string service{};
  int port = 8470;  // that every pod listens on
};
// Of stateful sets named "<name>-<job>": pod <name>-worker-2 is task 2 of the workers, and its
// address is <name>-worker-2.<service>:<port>. HOSTNAME, or POD_NAME, says which pod this is.
StatusOr<ResolvedTask> ResolveKubernetes(const KubernetesOptions& options = {},
                                         const Environment& environment = ProcessEnvironment());

// One cluster of several descriptions. The first says which task this process is. InvalidArgument
// if two give the same task different addresses, or there is none.
StatusOr<ResolvedTask> Union(std::span<const ResolvedTask> tasks);

// Whether the task writes for all: the chief, the evaluator, worker 0 where there is no chief, and
// a program by itself. InvalidArgument for a task that the cluster does not have.
StatusOr<bool> IsChief(const ResolvedTask& task);
// "grpc://host:port" of the task, "" for a program by itself or a cluster of one task; what
// TF_CONFIG's session_master says, if it does.
StatusOr<std::string> MasterTarget(const ResolvedTask& task);
// Chiefs and workers; of an evaluator, evaluators. InvalidArgument for a ps.
StatusOr<int> WorkerCount(const ResolvedTask& task);
// Position among those: the chief is 0, the workers come after it.
StatusOr<int> WorkerRank(const ResolvedTask& task);
// "/job:chief/replica:0/task:0", or worker 0's; "" where there is none to lead.
std::string CollectiveLeader(const ResolvedTask& task);

// The names of a Slurm node list: "a[1-3,07],b" is a1, a2, a3, a07, b. InvalidArgument says where
// it cannot be read, and if it names more than 65,536.
StatusOr<std::vector<std::string>> ExpandHostList(std::string_view text);

}  // namespace millrace

#endif  // MILLRACE_CLUSTER_RESOLVER_H_
