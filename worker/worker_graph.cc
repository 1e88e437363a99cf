// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_graph.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/options/engine_options.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/stream.h"
#include "kernels/kernel_registry.h"
#include "partitioner/partition.h"
#include "worker/function_runtime.h"
#include "worker/late_reads.h"
#include "worker/rewrite_part.h"
#include "worker/worker_step.h"

namespace millrace {
namespace {

bool InHostMemory(const KernelRegistry& kernels, const DeviceName& device, const Node& node,
                  int slot, bool is_input) {
  if (device.type == "CPU") return true;
  const DataType dtype = BaseType(is_input ? node.input_types()[slot] : node.output_types()[slot]);
  if (!IsMemcpyable(dtype)) return true;  // objects: no device can hold them
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

bool IsTransfer(const Node& node) { return node.type() == "_Recv" || node.type() == "_Send"; }

// Takes a feed from the step's arguments, or puts a fetch into its results.
StatusOr<std::unique_ptr<Kernel>> MakeDirect(const WorkerEnv& env, Device* device, const Node& node,
                                             const DirectIo& io) {
  const bool is_feed = node.type() == "_Recv";
  MR_ASSIGN_OR_RETURN(const std::string name, node.attrs().Get<std::string>("tensor_name"));
  const std::vector<std::string>& order = is_feed ? io.feeds : io.fetches;
  const auto it = std::find(order.begin(), order.end(), name);
  if (it == order.end()) {
    return errors::Internal("{{node ", node.name(), "}} is for ", name,
                            ", which the client neither feeds nor fetches");
  }
  const DataType dtype = is_feed ? node.output_types()[0] : node.input_types()[0];
  AttrMap attrs;
  attrs.Set("T", BaseType(dtype));
  attrs.Set("index", static_cast<int64_t>(it - order.begin()));
  MR_ASSIGN_OR_RETURN(const OpInfo* op, env.ops->Lookup(is_feed ? "_Arg" : "_Retval"));
  return env.kernels->Create(device, op, node.name(), attrs, node.input_types(),
                             node.output_types());
}

// Unless the task does not, or the session's options name an optimizer "millrace_capture" whose
// parameter "enable" is false: the one place in ConfigProto for what TensorFlow does not know.
bool CapturesSteps(const EngineOptions& engine, const pb::GraphOptions& options) {
  if (!engine.capture) return false;
  for (const auto& optimizer : options.rewrite_options().custom_optimizers()) {
    if (optimizer.name() != "millrace_capture") continue;
    const auto enable = optimizer.parameter_map().find("enable");
    if (enable != optimizer.parameter_map().end()) return enable->second.b();
  }
  return true;
}

// What a kernel with a state is kept under for other graphs of the session. All that it was made
// from, not the name alone: it would read operands and write results that another node of that
// name does not have.
std::string SharedAs(const Node& node) {
  std::string key = StrCat(node.name(), ";", node.type(), ";");
  for (const DataType type : node.input_types()) StrAppend(&key, DataTypeName(type), ",");
  key += ';';
  for (const DataType type : node.output_types()) StrAppend(&key, DataTypeName(type), ",");
  for (const auto& [name, value] : node.attrs()) {
    if (!name.starts_with('_')) StrAppend(&key, ";", name, "=", value.DebugString());
  }
  return key;
}

// Such a kernel keeps functions of one graph: others must not share it.
bool NamesFunctions(const Node& node) {
  for (const auto& [name, value] : node.attrs()) {
    if (value.function() != nullptr || value.get_if<std::vector<FunctionName>>() != nullptr) {
      return true;
    }
  }
  return false;
}

// Functions, or graphs that are data: what a step needs a runner for.
bool CallsFunctions(const DataflowGraph& graph) {
  if (graph.library() != nullptr) return true;
  for (const Node* node : graph.OpNodes()) {
    if (node->type() == "DatasetFromGraph" || node->type() == "AutoShardDataset") return true;
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
    const pb::GraphOptions& options, bool keep_graph, std::optional<DirectIo> direct,
    const std::function<std::string(std::string_view prefix)>& new_name) {
  std::shared_ptr<WorkerGraph> made(new WorkerGraph(std::move(resources)));
  if (CallsFunctions(graph)) {
    made->functions_ =
        RefPtr<FunctionRunner>(new FunctionRuntime(env, made->resources_, graph.library()));
  }
  MR_RETURN_IF_ERROR(made->Cut(env, graph, /*is_body=*/false,
                               /*control_flow_added=*/true, &options, std::move(direct), new_name));
  if (!keep_graph) {
    for (Part& part : made->parts_) part.graph.reset();
  }
  return made;
}

StatusOr<std::shared_ptr<WorkerGraph>> WorkerGraph::MakeBody(
    const WorkerEnv& env, std::shared_ptr<SessionResources> resources, const DataflowGraph& graph,
    const std::function<std::string(std::string_view prefix)>& new_name, bool control_flow_added) {
  std::shared_ptr<WorkerGraph> made(new WorkerGraph(std::move(resources)));
  MR_RETURN_IF_ERROR(
      made->Cut(env, graph, /*is_body=*/true, control_flow_added, nullptr, std::nullopt, new_name));
  return made;
}

Status WorkerGraph::Cut(const WorkerEnv& env, const DataflowGraph& graph, bool is_body,
                        bool control_flow_added, const pb::GraphOptions* options,
                        std::optional<DirectIo> direct,
                        const std::function<std::string(std::string_view prefix)>& new_name) {
  const SessionResources& session = *resources_;
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
  cut.control_flow_added = control_flow_added;
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
  for (const Device* device : session.devices) {
    const auto on_device = [device](const Partition& p) { return p.location == device->name(); };
    if (AcceleratorOf(device) == nullptr) continue;
    // A function may go to any of them.
    uses_accelerators_ = uses_accelerators_ || functions_.get() != nullptr ||
                         std::any_of(partitions.begin(), partitions.end(), on_device);
  }
  if (partitions.size() == 1 && functions_.get() == nullptr && !uses_accelerators_) {
    direct_ = std::move(direct);
  }
  parts_.reserve(partitions.size());
  for (Partition& partition : partitions) {
    Part& part = parts_.emplace_back();
    part.device = session.FindDevice(partition.location);
    part.graph = std::move(partition.graph);
    MR_RETURN_IF_ERROR(ReadLate(part.graph.get()));
    if (options != nullptr) {
      MR_RETURN_IF_ERROR(RewritePart(env, *options, part.device, part.graph.get()));
    }
    MR_RETURN_IF_ERROR(Compile(env, is_body, &part));
    // What a function updates is noted by the step that calls it.
    if (!is_body) GraphUpdates::AddPart(*part.device, *part.graph, &updates_);
  }
  const bool captures = options != nullptr && CapturesSteps(env.engine, *options);
  if (uses_accelerators_ && !is_body && captures) PlanCaptures();
  return OkStatus();
}

Status WorkerGraph::Compile(const WorkerEnv& env, bool is_body, Part* part) {
  Device* const device = part->device;
  auto source = [&](const Node& node) -> StatusOr<Kernel*> {
    if (direct_ && IsTransfer(node)) {
      MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, MakeDirect(env, device, node, *direct_));
      part->kernels.push_back(std::move(kernel));
      return part->kernels.back().get();
    }
    part->has_state = part->has_state || node.is_stateful();
    auto create = [&] {
      return env.kernels->Create(device, &node.op(), node.name(), node.attrs(), node.input_types(),
                                 node.output_types());
    };
    if (node.is_stateful() && !is_body && !NamesFunctions(node)) {
      return resources_->stateful_kernels.FindOrCreate(device->name(), SharedAs(node), create);
    }
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, create());
    part->kernels.push_back(std::move(kernel));
    return part->kernels.back().get();
  };
  MR_ASSIGN_OR_RETURN(part->program, CompiledGraph::Compile(*part->graph, device, source));
  return OkStatus();
}

void WorkerGraph::PlanCaptures() {
  std::vector<const CompiledGraph*> programs;
  for (const Part& part : parts_) programs.push_back(part.program.get());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (AcceleratorOf(parts_[i].device) == nullptr) continue;
    parts_[i].captured = std::make_unique<CapturedProgram>(programs[i], PlanCapture(programs, i));
  }
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
