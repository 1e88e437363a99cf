// SPDX-License-Identifier: Apache-2.0
// multi_worker_mirrored: every task of a cluster runs the program, and gradients are summed between
// the tasks by collective ops, one member each.
#include <numeric>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ranks/own_server.h"
#include "strategy/devices.h"
#include "strategy/workers.h"

namespace millrace {
namespace {

class MultiWorker : public Strategy {
 public:
  using Strategy::Layout;
  MultiWorker(Layout layout, const MemberNodes::Group& group,
              const CommunicationOptions& communication, SessionTarget target)
      : Strategy(std::move(layout)), target_(std::move(target)), nodes_(group, communication) {}

  std::vector<Output> SumOverWorkers(const Scope& scope, std::span<const Output> values,
                                     std::source_location where) override;
  std::vector<Output> GatherOverWorkers(const Scope& scope, std::span<const Output> values,
                                        std::source_location where) override;
  Output FromChief(const Scope& scope, const Output& value, std::source_location where) override;

 private:
  const SessionTarget target_;
  MemberNodes nodes_;  // the same on all workers: so are their calls
};

std::vector<Output> MultiWorker::SumOverWorkers(const Scope& outer, std::span<const Output> values,
                                                std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("AllReduce"), 0);
  return nodes_.Reduce(scope, ReduceOp::kSum, values, where);
}

std::vector<Output> MultiWorker::GatherOverWorkers(const Scope& outer,
                                                   std::span<const Output> values,
                                                   std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("AllGather"), 0);
  return nodes_.Gather(scope, values, where);
}

Output MultiWorker::FromChief(const Scope& outer, const Output& value, std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("FromChief"), 0);
  return nodes_.Broadcast(scope, value, 0, where);
}

}  // namespace

StatusOr<std::shared_ptr<Strategy>> MultiWorkerMirroredStrategy(const StrategyOptions& options) {
  ResolvedTask task = options.task;
  if (task.cluster.jobs().empty()) {
    MR_ASSIGN_OR_RETURN(task, ResolveFromEnvironment());
  }
  if (task.cluster.jobs().empty()) {
    MR_LOG(kInfo, "multi_worker_mirrored without a cluster: one worker");
    return MirroredStrategy(options);
  }
  if (!task.job_name || !task.task_index) {
    return errors::InvalidArgument(
        "multi_worker_mirrored must know which task of the cluster ", task.cluster.ToString(),
        " this process is: give ResolvedTask.job_name and task_index, or the task in TF_CONFIG");
  }
  if (options.start_timeout.count() <= 0) {
    return errors::InvalidArgument("StrategyOptions.start_timeout is ",
                                   options.start_timeout.count(), " ms, and must be positive");
  }
  MR_ASSIGN_OR_RETURN(const int rank, WorkerRank(task));
  MR_ASSIGN_OR_RETURN(const bool is_chief, IsChief(task));
  MR_ASSIGN_OR_RETURN(const std::vector<GroupMember> workers, WorkersOf(task));
  const int worker = workers.size() == 1 ? 0 : rank;
  const std::string name = StrCat("/job:", *task.job_name, "/replica:0/task:", *task.task_index);
  MR_ASSIGN_OR_RETURN(std::vector<std::string> own, DevicesOf(options, name));
  MR_RETURN_IF_ERROR(CheckCommunication(options.communication, own[0]));
  MR_ASSIGN_OR_RETURN(SessionTarget target,
                      TargetFor(options.target, task, CpuDevicesOf(own), options.server));
  MR_ASSIGN_OR_RETURN(
      std::vector<int> replicas,
      DevicesOfAll(workers, worker, static_cast<int>(own.size()), target.target, options));
  const int all = std::accumulate(replicas.begin(), replicas.end(), 0);
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> devices,
                      WithPieces(options, all, std::move(own)));
  if (options.deterministic) {
    for (int& count : replicas) count *= options.micro_batches / all;
  }
  const auto first = replicas.begin() + worker;
  MultiWorker::Layout layout{
      .name = "multi_worker_mirrored",
      .devices = devices,
      .replicas_in_sync = std::accumulate(replicas.begin(), replicas.end(), 0),
      .first_replica = std::accumulate(replicas.begin(), first, 0),
      .replicas_of_workers = replicas,
      .worker = worker,
      .is_chief = is_chief,
      .root_device = devices[0],
      .target = target.target,
      .device_filter = name,
      .mirrors_variables = true,
      .is_deterministic = options.deterministic,
      .compression = options.communication.compression};
  auto made = std::make_shared<MultiWorker>(std::move(layout), GroupOf(workers, worker),
                                            options.communication, std::move(target));
  MR_LOG(kInfo, "using ", made->Description(), " of the cluster ", task.cluster.ToString(), ", ",
         *task.job_name, " ", *task.task_index);
  return std::shared_ptr<Strategy>(made);
}

}  // namespace millrace
