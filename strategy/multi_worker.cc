// multi_worker_mirrored: every task of a cluster runs the program, and gradients are summed between
// the tasks by collective ops, one member each.
#include <algorithm>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/math.h"
#include "strategy/devices.h"
#include "strategy/own_server.h"

namespace millrace {
namespace {

// All strategies of a cluster are one group: it has the same members.
constexpr int64_t kGroupKey = 1;
constexpr int64_t kFirstInstanceKey = 100;

Tensor Vector(std::span<const int64_t> values) {
  Tensor vector(kInt64, Shape({static_cast<int64_t>(values.size())}));
  std::copy(values.begin(), values.end(), vector.data<int64_t>());
  return vector;
}

class MultiWorker : public Strategy {
 public:
  using Strategy::Layout;
  MultiWorker(Layout layout, const CommunicationOptions& communication, SessionTarget target)
      : Strategy(std::move(layout)), communication_(communication), target_(std::move(target)) {}

  std::vector<Output> SumOverWorkers(const Scope& scope, std::span<const Output> values,
                                     std::source_location where) override;
  std::vector<Output> GatherOverWorkers(const Scope& scope, std::span<const Output> values,
                                        std::source_location where) override;
  Output FromChief(const Scope& scope, const Output& value, std::source_location where) override;

 private:
  using Attrs = std::vector<std::pair<std::string, AttrValue>>;
  Attrs Member();
  Output Sum(const Scope& scope, const Output& value, std::source_location where);
  Output GatherEqual(const Scope& scope, const Output& value, std::source_location where);
  Output GatherRows(const Scope& scope, const Output& value, const Output& rows_of_all, int i,
                    std::source_location where);
  void SumPack(const Scope& scope, std::span<const Output> values,
               std::span<const std::size_t> pack, std::vector<Output>* sums,
               std::source_location where);

  const CommunicationOptions communication_;
  const SessionTarget target_;
  int64_t next_instance_key_ = kFirstInstanceKey;  // the same on all workers: so are their calls
};

MultiWorker::Attrs MultiWorker::Member() {
  return {{"group_size", int64_t{num_workers()}},
          {"group_key", kGroupKey},
          {"instance_key", next_instance_key_++},
          {"timeout_seconds", static_cast<float>(communication_.timeout_seconds)}};
}

Output MultiWorker::Sum(const Scope& scope, const Output& value, std::source_location where) {
  Attrs attrs = Member();
  attrs.emplace_back("merge_op", std::string("Add"));
  attrs.emplace_back("final_op", std::string("Id"));
  attrs.emplace_back("subdiv_offsets", std::vector<int64_t>{0});
  const std::vector<Input> inputs = {value};
  return Output(scope.AddOp("CollectiveReduce", inputs, std::move(attrs), where), 0);
}

// One collective for several tensors of one type: behind each other, flat.
void MultiWorker::SumPack(const Scope& scope, std::span<const Output> values,
                          std::span<const std::size_t> pack, std::vector<Output>* sums,
                          std::source_location where) {
  if (pack.size() == 1) {
    (*sums)[pack[0]] = Sum(scope, values[pack[0]], where);
    return;
  }
  std::vector<Input> flat;
  std::vector<int64_t> sizes;
  for (const std::size_t i : pack) {
    flat.emplace_back(ops::Reshape(scope, values[i], {-1}));
    sizes.push_back(values[i].shape().AsShape()->num_elements());
  }
  const Output sum = Sum(scope, ops::ConcatV2(scope, flat, 0), where);
  const std::vector<Output> parts =
      ops::SplitV(scope, sum, Vector(sizes), 0, static_cast<int64_t>(sizes.size()));
  if (parts.size() != pack.size()) return;  // the graph's status says why
  for (std::size_t k = 0; k < pack.size(); ++k) {
    const Shape shape = *values[pack[k]].shape().AsShape();
    (*sums)[pack[k]] = ops::Reshape(scope, parts[k], Vector(shape.dims()));
  }
}

std::vector<Output> MultiWorker::SumOverWorkers(const Scope& outer, std::span<const Output> values,
                                                std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("AllReduce"), 0);
  std::vector<Output> sums(values.size());
  for (const Output& value : values) {
    if (!value.valid() || value.shape().IsFullyDefined()) continue;
    scope.RecordError(
        errors::InvalidArgument(value.name(), " of shape ", value.shape().DebugString(),
                                " cannot be summed over workers: its shape must be known"),
        where);
    return sums;
  }
  // The last first, as gradients are made, and each type by itself.
  std::vector<bool> packed(values.size(), false);
  int packs = 0;
  for (std::size_t first = values.size(); first-- > 0;) {
    if (packed[first] || !values[first].valid()) continue;
    std::vector<std::size_t> pack;
    int64_t bytes = 0;
    for (std::size_t i = first + 1; i-- > 0;) {
      if (packed[i] || !values[i].valid() || values[i].dtype() != values[first].dtype()) continue;
      pack.push_back(i);
      packed[i] = true;
      bytes += values[i].shape().AsShape()->num_elements() *
               static_cast<int64_t>(DataTypeSize(values[i].dtype()));
      if (communication_.bytes_per_pack > 0 && bytes > communication_.bytes_per_pack) break;
    }
    SumPack(scope, values, pack, &sums, where);
    ++packs;
  }
  MR_LOG(kDebug, "collective all_reduce: ", values.size(), " tensors in ", packs, " packs, group ",
         "size ", num_workers());
  return sums;
}

// Of the same shape everywhere.
Output MultiWorker::GatherEqual(const Scope& scope, const Output& value,
                                std::source_location where) {
  Attrs attrs = Member();
  attrs.emplace_back("shape", PartialShape());
  const std::vector<Input> inputs = {value};
  return Output(scope.AddOp("CollectiveGather", inputs, std::move(attrs), where), 0);
}

// With rows beyond the value's own up to the most that any has (at least one, for there is nothing
// to send of none), which are left out again. `rows_of_all`: a row for each worker, whose column i
// is of this value.
Output MultiWorker::GatherRows(const Scope& scope, const Output& value, const Output& rows_of_all,
                               int i, std::source_location where) {
  const int rank = value.shape().rank();
  const Expr rows(scope, ops::StridedSlice(scope, rows_of_all, {0, i}, {num_workers(), i + 1},
                                           {1, 1}, {.shrink_axis_mask = 2}));
  const Expr most = rows.ReduceMax().Max(1);
  const Expr own(scope, ops::GatherV2(scope, ops::Shape(scope, value), 0, 0));
  const Expr missing = most - own;
  // [[0, missing], [0, 0], ...]
  const Output padding = ops::Reshape(
      scope,
      ops::ConcatV2(scope,
                    {Tensor::FromValues<int32_t>({0}), missing.ExpandDims(0).output(),
                     Tensor::FromValues<int32_t>(
                         std::vector<int32_t>(static_cast<std::size_t>(2 * rank - 2), 0),
                         Shape({2 * rank - 2}))},
                    0),
      {rank, 2});
  const Output all = GatherEqual(scope, ops::Pad(scope, value, padding), where);
  std::vector<Input> parts;
  for (int worker = 0; worker < num_workers(); ++worker) {
    const Expr begin = most * worker;
    const Expr count(scope, ops::GatherV2(scope, rows, worker, 0));
    parts.emplace_back(
        ops::StridedSlice(scope, all, begin.ExpandDims(0), (begin + count).ExpandDims(0), {1}));
  }
  PartialShape shape = value.shape();
  shape.SetDim(0, -1);
  return ops::EnsureShape(scope, ops::ConcatV2(scope, parts, 0), shape);
}

std::vector<Output> MultiWorker::GatherOverWorkers(const Scope& outer,
                                                   std::span<const Output> values,
                                                   std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("AllGather"), 0);
  std::vector<Output> gathered(values.size());
  std::vector<Input> rows;
  std::vector<std::size_t> present;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].valid()) continue;
    const PartialShape shape = values[i].shape();
    if (!shape.has_rank() || shape.rank() == 0) {
      scope.RecordError(errors::InvalidArgument(values[i].name(), " of shape ", shape.DebugString(),
                                                " cannot be gathered over workers: it has no axis"),
                        where);
      return gathered;
    }
    present.push_back(i);
    rows.emplace_back(ops::GatherV2(scope, ops::Shape(scope, values[i]), 0, 0));
  }
  if (present.empty()) return gathered;
  const Output rows_of_all =
      GatherEqual(scope, ops::ExpandDims(scope, ops::Pack(scope, rows), 0), where);
  for (std::size_t k = 0; k < present.size(); ++k) {
    gathered[present[k]] =
        GatherRows(scope, values[present[k]], rows_of_all, static_cast<int>(k), where);
  }
  return gathered;
}

Output MultiWorker::FromChief(const Scope& outer, const Output& value, std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("FromChief"), 0);
  if (!value.valid()) return value;
  Attrs attrs = Member();
  attrs.emplace_back("shape", value.shape());
  if (first_replica() == 0) {
    const std::vector<Input> inputs = {value};
    return Output(scope.AddOp("CollectiveBcastSend", inputs, std::move(attrs), where), 0);
  }
  attrs.emplace_back("T", value.dtype());
  return Output(scope.AddOp("CollectiveBcastRecv", {}, std::move(attrs), where), 0);
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
  MR_ASSIGN_OR_RETURN(SessionTarget target, TargetFor(options, task, CpuDevicesOf(devices)));
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
      std::make_shared<MultiWorker>(std::move(layout), options.communication, std::move(target));
  MR_LOG(kInfo, "using ", made->Description(), " of the cluster ", task.cluster.ToString(), ", ",
         *task.job_name, " ", *task.task_index);
  return std::shared_ptr<Strategy>(made);
}

}  // namespace millrace
