// multi_worker_mirrored: every task of a cluster runs the program, and gradients are summed between
// the tasks by collective ops, one member each.
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ranks/member_nodes.h"
#include "ranks/own_server.h"
#include "strategy/devices.h"

namespace millrace {
namespace {

// All strategies of a cluster are one group: it has the same members.
constexpr int64_t kGroupKey = 1;

// In the order of their ranks.
std::vector<std::string> TasksOf(int workers, int chiefs) {
  std::vector<std::string> tasks;
  for (int i = 0; i < workers; ++i) {
    tasks.push_back(i < chiefs ? StrCat("/job:chief/replica:0/task:", i)
                               : StrCat("/job:worker/replica:0/task:", i - chiefs));
  }
  return tasks;
}

class MultiWorker : public Strategy {
 public:
  using Strategy::Layout;
  MultiWorker(Layout layout, int rank, int num_chiefs, const CommunicationOptions& communication,
              SessionTarget target)
      : Strategy(std::move(layout)),
        target_(std::move(target)),
        nodes_({.size = num_workers(),
                .rank = rank,
                .key = kGroupKey,
                .places = PlacesOf(TasksOf(num_workers(), num_chiefs))},
               communication) {}

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
  MR_ASSIGN_OR_RETURN(const int workers, WorkerCount(task));
  MR_ASSIGN_OR_RETURN(const int rank, WorkerRank(task));
  MR_ASSIGN_OR_RETURN(const bool is_chief, IsChief(task));
  const std::string name = StrCat("/job:", *task.job_name, "/replica:0/task:", *task.task_index);
  MR_ASSIGN_OR_RETURN(std::vector<std::string> own, DevicesOf(options, name));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> devices,
                      WithPieces(options, workers, std::move(own)));
  MR_RETURN_IF_ERROR(CheckCommunication(options.communication, devices[0]));
  MR_ASSIGN_OR_RETURN(SessionTarget target,
                      TargetFor(options.target, task, CpuDevicesOf(devices), options.server));
  const int local = static_cast<int>(devices.size());
  MultiWorker::Layout layout{.name = "multi_worker_mirrored",
                             .devices = devices,
                             .replicas_in_sync = workers * local,
                             .first_replica = rank * local,
                             .is_chief = is_chief,
                             .root_device = devices[0],
                             .target = target.target,
                             .device_filter = name,
                             .mirrors_variables = true,
                             .is_deterministic = options.deterministic};
  auto made =
      std::make_shared<MultiWorker>(std::move(layout), rank, task.cluster.num_tasks("chief"),
                                    options.communication, std::move(target));
  MR_LOG(kInfo, "using ", made->Description(), " of the cluster ", task.cluster.ToString(), ", ",
         *task.job_name, " ", *task.task_index);
  return std::shared_ptr<Strategy>(made);
}

}  // namespace millrace
