// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/tf_config.h"
#include "millrace/cluster_resolver.h"

namespace millrace {
namespace {

constexpr char kChief[] = "chief", kWorker[] = "worker", kEvaluator[] = "evaluator";

// A program by itself has neither a cluster nor a task.
bool IsAlone(const ResolvedTask& task) { return task.cluster.jobs().empty(); }

// The job, when the cluster has the task.
StatusOr<std::string> CheckedJob(const ResolvedTask& task) {
  if (!task.job_name.has_value() || !task.task_index.has_value()) {
    return errors::InvalidArgument(
        "the cluster ", task.cluster.ToString(),
        " does not say which of its tasks this is: set job_name and task_index");
  }
  MR_RETURN_IF_ERROR(task.cluster.Address(*task.job_name, *task.task_index).status());
  return *task.job_name;
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

Environment FixedEnvironment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

StatusOr<ResolvedTask> SimpleCluster(ClusterSpec cluster, const std::string& job_name,
                                     int task_index) {
  ResolvedTask task;
  task.cluster = std::move(cluster);
  task.job_name = job_name;
  task.task_index = task_index;
  task.source = "the program";
  task.rpc_layer = "grpc";
  MR_RETURN_IF_ERROR(CheckedJob(task).status());
  return task;
}

StatusOr<ResolvedTask> ResolveTfConfig(const Environment& environment) {
  ResolvedTask resolved;
  const std::optional<std::string> text = environment("TF_CONFIG");
  if (!text.has_value() || text->empty()) return resolved;
  MR_ASSIGN_OR_RETURN(TfConfig config, ParseTfConfig(*text));
  MR_RETURN_IF_ERROR(AddEvaluator(&config));
  resolved.source = "TF_CONFIG";
  resolved.cluster = std::move(config.cluster);
  resolved.job_name = std::move(config.job_name);
  resolved.task_index = config.task_index;
  resolved.rpc_layer = std::move(config.rpc_layer);
  resolved.environment = std::move(config.environment);
  resolved.session_master = std::move(config.session_master);
  return resolved;
}

StatusOr<ResolvedTask> ResolveFromEnvironment(const Environment& environment) {
  const auto has = [&](const char* name) {
    const std::optional<std::string> value = environment(name);
    return value.has_value() && !value->empty();
  };
  if (has("TF_CONFIG")) return ResolveTfConfig(environment);
  if (has("SM_HOSTS")) return ResolveSageMaker(2223, environment);
  // mpirun and torchrun within a Slurm step know more than Slurm does.
  if (has("OMPI_COMM_WORLD_RANK") || (has("PMI_RANK") && has("MPI_LOCALRANKID"))) {
    return ResolveMpi({}, environment);
  }
  if (has("RANK") && has("LOCAL_WORLD_SIZE")) return ResolveTorchrun({}, environment);
  if (has("SLURM_STEP_NODELIST")) return ResolveSlurm({}, environment);
  if (has("MILLRACE_JOBS") && has("MILLRACE_SERVICE")) return ResolveKubernetes({}, environment);
  return ResolvedTask{};
}

StatusOr<ResolvedTask> Union(std::span<const ResolvedTask> tasks) {
  if (tasks.empty()) return errors::InvalidArgument("a union of no clusters");
  ResolvedTask all = tasks.front();
  for (const ResolvedTask& other : tasks.subspan(1)) {
    for (const auto& [job, addresses] : other.cluster.jobs()) {
      for (const auto& [task, address] : addresses) {
        const StatusOr<std::string> known = all.cluster.Address(job, task);
        if (known.ok() && *known == address) continue;
        if (known.ok()) {
          return errors::InvalidArgument(
              "Duplicate keys detected when merging two ClusterSpecs: /job:", job, "/task:", task,
              " is at ", *known, " and at ", address);
        }
        MR_RETURN_IF_ERROR(all.cluster.AddTask(job, task, address));
      }
    }
  }
  return all;
}

StatusOr<bool> IsChief(const ResolvedTask& task) {
  if (IsAlone(task)) return true;
  MR_ASSIGN_OR_RETURN(const std::string job, CheckedJob(task));
  if (job == kChief || job == kEvaluator) return true;
  return job == kWorker && *task.task_index == 0 && task.cluster.num_tasks(kChief) == 0;
}

StatusOr<std::string> MasterTarget(const ResolvedTask& task) {
  if (!task.session_master.empty()) return task.session_master;
  const auto& jobs = task.cluster.jobs();
  if (jobs.empty() || (jobs.size() == 1 && jobs.begin()->second.size() == 1)) return std::string();
  MR_RETURN_IF_ERROR(CheckedJob(task).status());
  MR_ASSIGN_OR_RETURN(const std::string address,
                      task.cluster.Address(*task.job_name, *task.task_index));
  return StrCat("grpc://", address);
}

StatusOr<int> WorkerCount(const ResolvedTask& task) {
  if (IsAlone(task)) return 1;
  MR_ASSIGN_OR_RETURN(const std::string job, CheckedJob(task));
  if (job == kEvaluator) return task.cluster.num_tasks(kEvaluator);
  if (job != kChief && job != kWorker) {
    return errors::InvalidArgument("a task of '", job, "' is not counted among the workers");
  }
  return task.cluster.num_tasks(kChief) + task.cluster.num_tasks(kWorker);
}

StatusOr<int> WorkerRank(const ResolvedTask& task) {
  if (IsAlone(task)) return 0;
  MR_RETURN_IF_ERROR(WorkerCount(task).status());
  const bool behind_chiefs = *task.job_name == kWorker;
  return *task.task_index + (behind_chiefs ? task.cluster.num_tasks(kChief) : 0);
}

std::string CollectiveLeader(const ResolvedTask& task) {
  if (task.job_name == kEvaluator) return "";
  for (const char* job : {kChief, kWorker}) {
    if (task.cluster.num_tasks(job) > 0) return StrCat("/job:", job, "/replica:0/task:0");
  }
  return "";
}

}  // namespace millrace
