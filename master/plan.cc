// SPDX-License-Identifier: Apache-2.0
#include "master/plan.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "device/device_name.h"
#include "master/collective_steps.h"
#include "master/dump/graph_dump.h"
#include "master/feed_fetch.h"
#include "master/step.h"
#include "partitioner/early_receives.h"
#include "partitioner/partition.h"
#include "partitioner/receive_schedule.h"
#include "partitioner/verify.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

constexpr std::chrono::seconds kCleanupTimeout(10);
// What a crowd of steps at once leaves behind.
constexpr std::size_t kMostIdleSteps = 64;

StatusOr<std::string> TaskOf(const Node& node) {
  MR_ASSIGN_OR_RETURN(const DeviceName device, DeviceName::Parse(node.assigned_device()));
  std::string task = TaskName(device);
  if (task.empty()) {
    return errors::Internal("{{node ", node.name(), "}} is assigned to '", node.assigned_device(),
                            "', which names no task");
  }
  return task;
}

// Feeds and fetches meet the graph at the client's device, outside of all loops.
std::string ClientKey(const PlanContext& context, const std::string& tensor) {
  RendezvousKey key;
  key.src_device = key.dst_device = context.client_device;
  key.src_incarnation = context.client_incarnation;
  key.edge_name = tensor;
  return key.ToString();
}

// In which a value of the edge travels if floats travel as bfloat16.
DataType HalvedType(const Edge& edge) {
  if (edge.IsControl()) return kFloat;
  const DataType type = BaseType(edge.src->output_types()[edge.src_output]);
  return type == kFloat ? kBfloat16 : type;
}

StatusOr<std::vector<Partition>> CutByTask(const DataflowGraph& graph, const PlanContext& context) {
  StringMap<std::string> tasks;  // by device
  const InternedString* last = nullptr;
  for (const Node* node : graph.OpNodes()) {
    if (last != nullptr && *last == node->shared_assigned_device()) continue;
    last = &node->shared_assigned_device();
    if (tasks.contains(node->assigned_device())) continue;
    MR_ASSIGN_OR_RETURN(std::string task, TaskOf(*node));
    tasks[node->assigned_device()] = std::move(task);
  }
  PartitionOptions options;
  options.node_to_location = [&tasks](const Node& node) { return tasks[node.assigned_device()]; };
  options.new_name = context.new_name;
  options.get_incarnation = context.incarnation;
  if (context.bfloat16_transfers) options.should_cast = HalvedType;
  MR_ASSIGN_OR_RETURN(std::vector<Partition> parts, PartitionGraph(graph, options));
  if (context.schedule_receives && parts.size() > 1) {
    MR_RETURN_IF_ERROR(ScheduleReceives(graph, EarliestStarts(graph), &parts));
  }
  MarkEarlyReceives(&parts);
  return parts;
}

// The client's task comes last: its worker may run the step in the thread that starts it,
// when the others have been sent theirs.
Status AddParts(std::vector<Partition> partitions, const PlanContext& context, Plan* plan) {
  std::stable_partition(partitions.begin(), partitions.end(), [&](const Partition& partition) {
    return partition.location != context.client_task;
  });
  for (Partition& partition : partitions) {
    PlanPart& part = plan->parts.emplace_back();
    part.task = std::move(partition.location);
    part.graph = std::move(partition.graph);
    part.worker = context.workers->GetWorker(part.task);
    if (part.worker == nullptr) {
      return errors::InvalidArgument("the cluster has no task ", part.task);
    }
  }
  return OkStatus();
}

Status AddClientKeys(const PlanContext& context, Plan* plan) {
  const RunSignature& signature = plan->signature;
  if (signature.feeds.empty() && signature.fetches.empty()) return OkStatus();
  if (plan->parts.empty() || plan->parts.back().task != context.client_task) {
    return errors::Internal("no part of the plan is at the client's task ", context.client_task);
  }
  const int client = static_cast<int>(plan->parts.size()) - 1;
  PlanPart& part = plan->parts.back();
  for (const std::string& name : signature.feeds) {
    plan->feed_slots.push_back({client, static_cast<int>(part.feed_keys.size())});
    part.feed_keys.push_back(ClientKey(context, name));
  }
  for (const std::string& name : signature.fetches) {
    plan->fetch_slots.push_back({client, static_cast<int>(part.fetch_keys.size())});
    part.fetch_keys.push_back(ClientKey(context, name));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<Plan>> BuildPlan(std::unique_ptr<DataflowGraph> graph,
                                          const PlanContext& context, RunSignature signature) {
  auto plan = std::make_shared<Plan>();
  plan->signature = std::move(signature);
  MR_RETURN_IF_ERROR(ConnectTensors(plan->signature.connections, graph.get()));
  MR_RETURN_IF_ERROR(RewriteForRun(
      plan->signature, {context.client_device, context.client_incarnation}, graph.get()));
  MR_RETURN_IF_ERROR(VerifySyncCounts(*graph));
  plan->collective_graph_key = plan->signature.collective_graph_key != 0
                                   ? plan->signature.collective_graph_key
                                   : CollectiveGraphKey(*graph);
  if (plan->collective_graph_key != 0) MR_RETURN_IF_ERROR(VerifyCollectives(*graph));
  if (plan->collective_graph_key != 0 && plan->signature.partial) {
    return errors::InvalidArgument(
        "PartialRun does not support Collective ops.  collective_graph_key must be "
        "kNoCollectiveGraphKey.");
  }
  MR_ASSIGN_OR_RETURN(std::vector<Partition> partitions, CutByTask(*graph, context));
  // Before anything is found wrong with them.
  if (context.dump != nullptr) {
    plan->dump = context.dump->AddRun(plan->signature, *graph, partitions);
  }
  // A graph that stays in one task has nothing that could be torn apart.
  if (partitions.size() > 1) MR_RETURN_IF_ERROR(VerifyPartitions(partitions));
  MR_RETURN_IF_ERROR(AddParts(std::move(partitions), context, plan.get()));
  MR_RETURN_IF_ERROR(AddClientKeys(context, plan.get()));
  if (plan->signature.partial) plan->client_graph = std::move(graph);
  return plan;
}

Plan::Plan() = default;

Plan::~Plan() {
  MutexLock lock(&mu_);
  for (Step* step : idle_) delete step;
}

RefPtr<Step> Plan::NewStep() {
  Step* step = nullptr;
  {
    MutexLock lock(&mu_);
    if (!idle_.empty()) {
      step = idle_.back();
      idle_.pop_back();
    }
  }
  if (step == nullptr) step = new Step(*this);
  step->plan_ = shared_from_this();
  return RefPtr<Step>(step);
}

void Plan::Recycle(Step* step) {
  if (signature.partial) {
    delete step;
    return;
  }
  {
    MutexLock lock(&mu_);
    if (idle_.size() < kMostIdleSteps) {
      idle_.push_back(step);
      return;
    }
  }
  delete step;
}

void Plan::CleanupStep(int64_t step_id) const {
  for (const PlanPart& part : parts) {
    // A worker that cannot be reached has forgotten the step, or will with its session.
    part.worker->CleanupGraphAsync({.deadline = DeadlineAfter(kCleanupTimeout)}, step_id,
                                   [](const Status&) {});
  }
}

}  // namespace millrace
