#include "session/worker_graph.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/kernel_registry.h"
#include "partitioner/partition.h"
#include "session/late_reads.h"
#include "session/worker_step.h"

namespace millrace {
namespace {

bool InHostMemory(const KernelRegistry& kernels, const DeviceName& device, const Node& node,
                  int slot, bool is_input) {
  if (device.type == "CPU") return true;
  const KernelDef* kernel = kernels.Find(node.type(), *device.type, node.attrs());
  if (kernel == nullptr) return false;
  for (const std::string& arg : kernel->host_memory_args) {
    int begin = 0, end = 0;
    if (ArgRange(node.op().def, node.attrs(), arg, is_input, &begin, &end).ok() && slot >= begin &&
        slot < end) {
      return true;
    }
  }
  return false;
}

}  // namespace

Device* SessionResources::FindDevice(std::string_view name) const {
  for (Device* device : devices) {
    if (device->name() == name) return device;
  }
  return nullptr;
}

StatusOr<std::shared_ptr<WorkerGraph>> WorkerGraph::Make(
    const WorkerEnv& env, std::shared_ptr<SessionResources> resources, const DataflowGraph& graph,
    const pb::GraphOptions& options,
    const std::function<std::string(std::string_view prefix)>& new_name) {
  std::shared_ptr<WorkerGraph> made(new WorkerGraph(std::move(resources)));
  const SessionResources& session = *made->resources_;
  const InternedString* last = nullptr;
  for (const Node* node : graph.OpNodes()) {
    if (last != nullptr && *last == node->shared_assigned_device()) continue;
    last = &node->shared_assigned_device();
    if (session.FindDevice(node->assigned_device()) == nullptr) {
      return errors::InvalidArgument("{{node ", node->name(), "}} is assigned to ",
                                     node->assigned_device(), ", which is not a device of ",
                                     env.task);
    }
  }
  PartitionOptions cut;
  cut.node_to_location = [](const Node& node) { return node.assigned_device(); };
  cut.new_name = new_name;
  cut.get_incarnation = [&session](std::string_view name) -> uint64_t {
    const Device* device = session.FindDevice(name);
    return device == nullptr ? 0 : device->incarnation();
  };
  cut.control_flow_added = true;  // by the master
  const bool only_cpus =
      std::all_of(session.devices.begin(), session.devices.end(),
                  [](const Device* device) { return device->parsed_name().type == "CPU"; });
  if (!only_cpus) {
    cut.in_host_memory = [&](const Node& node, int slot, bool is_input) {
      const Device* device = session.FindDevice(node.assigned_device());
      return InHostMemory(*env.kernels, device->parsed_name(), node, slot, is_input);
    };
  }
  MR_ASSIGN_OR_RETURN(std::vector<Partition> partitions, PartitionGraph(graph, cut));
  made->parts_.reserve(partitions.size());
  for (Partition& partition : partitions) {
    Part& part = made->parts_.emplace_back();
    part.device = session.FindDevice(partition.location);
    part.graph = std::move(partition.graph);
    MR_RETURN_IF_ERROR(ReadLate(part.graph.get()));
    MR_RETURN_IF_ERROR(made->Compile(env, &part));
  }
  return made;
}

Status WorkerGraph::Compile(const WorkerEnv& env, Part* part) {
  Device* const device = part->device;
  auto source = [&](const Node& node) -> StatusOr<Kernel*> {
    auto create = [&] {
      return env.kernels->Create(device, &node.op(), node.name(), node.attrs(), node.input_types(),
                                 node.output_types());
    };
    if (node.is_stateful()) {
      return resources_->stateful_kernels.FindOrCreate(device->name(), node.name(), create);
    }
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, create());
    part->kernels.push_back(std::move(kernel));
    return part->kernels.back().get();
  };
  MR_ASSIGN_OR_RETURN(part->program, CompiledGraph::Compile(*part->graph, device, source));
  return OkStatus();
}

WorkerGraph::~WorkerGraph() {
  MutexLock lock(&mu_);
  for (WorkerStep* step : idle_) delete step;
}

RefPtr<WorkerStep> WorkerGraph::NewStep(const std::shared_ptr<WorkerGraph>& self) {
  WorkerStep* step = nullptr;
  {
    MutexLock lock(&self->mu_);
    if (!self->idle_.empty()) {
      step = self->idle_.back();
      self->idle_.pop_back();
    }
  }
  if (step == nullptr) step = new WorkerStep(*self);
  step->graph_ = self;
  return RefPtr<WorkerStep>(step);
}

void WorkerGraph::Recycle(WorkerStep* step) {
  MutexLock lock(&mu_);
  idle_.push_back(step);
}

}  // namespace millrace
