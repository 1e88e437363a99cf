// SPDX-License-Identifier: Apache-2.0
#include "planner/captures.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "device/capture.h"
#include "device/device_name.h"
#include "device/stream.h"
#include "worker/worker_graph.h"

namespace millrace {
namespace {

// Nothing is ever enqueued to it.
class PaperMachine final : public Accelerator, public RecordingAccelerator {
 public:
  explicit PaperMachine(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  Stream* stream(StreamKind) override { return nullptr; }
  Allocator* allocator() override { return HostAllocator(); }
  Allocator* staging_allocator() override { return HostAllocator(); }
  void Post(std::function<void()> fn) override { fn(); }
  StatusOr<std::unique_ptr<OperationRecorder>> NewRecorder(Allocator*) override {
    return errors::Unimplemented(name_, " exists on paper only");
  }
  bool IsRecording() const override { return false; }

 private:
  const std::string name_;
};

class PaperDevice final : public AcceleratorDevice {
 public:
  PaperDevice(const std::string& name, const std::string& type, ThreadPool* pool,
              ResourceManager* resources)
      : AcceleratorDevice({name, type, 0, 1, ""}, pool, resources), machine_(name) {}
  Allocator* allocator() const override { return HostAllocator(); }
  Accelerator* accelerator() const override { return &machine_; }

 private:
  mutable PaperMachine machine_;
};

// One task with the devices that its part names.
struct PaperTask {
  ThreadPool pool{"paper", 0};
  ResourceManager resources;
  std::vector<std::unique_ptr<Device>> devices;
  WorkerEnv env;

  explicit PaperTask(const DataflowGraph& part) {
    std::set<std::string> names;
    for (const Node* node : part.OpNodes()) names.insert(node->assigned_device());
    for (const std::string& name : names) {
      const StatusOr<DeviceName> parsed = DeviceName::Parse(name);
      if (!parsed.ok() || !parsed->type) continue;
      if (*parsed->type == "CPU") {
        devices.push_back(NewCpuDevice(name, 1, &pool, &resources));
      } else {
        devices.push_back(std::make_unique<PaperDevice>(name, *parsed->type, &pool, &resources));
      }
      env.devices.push_back(devices.back().get());
    }
    env.inter_op_pool = &pool;
  }
};

std::vector<CaptureForecast> ForecastTask(const Partition& part, const OpRegistry& ops,
                                          const KernelRegistry& kernels,
                                          const EngineOptions& engine,
                                          const pb::GraphOptions& options) {
  PaperTask task(*part.graph);
  task.env.task = part.location;
  task.env.ops = &ops;
  task.env.kernels = &kernels;
  task.env.engine = engine;
  auto resources = std::make_shared<SessionResources>();
  resources->devices = task.env.devices;
  int made = 0;
  const StatusOr<std::shared_ptr<WorkerGraph>> graph = WorkerGraph::Make(
      task.env, std::move(resources), *part.graph, options, /*keep_graph=*/false, std::nullopt,
      [&made](std::string_view prefix) { return StrCat(prefix, "_P", made++); });
  std::vector<CaptureForecast> forecasts;
  if (!graph.ok()) {
    std::map<std::string, int> counts;
    for (const Node* node : part.graph->OpNodes()) ++counts[node->assigned_device()];
    for (const Device* device : task.env.devices) {
      if (AcceleratorOf(device) == nullptr) continue;
      forecasts.push_back(
          {device->name(), counts[device->name()], std::string(Message(graph.status()))});
    }
    return forecasts;
  }
  for (const WorkerGraph::Part& one : (*graph)->parts()) {
    if (AcceleratorOf(one.device) == nullptr) continue;
    CaptureForecast& forecast = forecasts.emplace_back();
    forecast.device = one.device->name();
    forecast.nodes = static_cast<int>(one.program->nodes().size());
    forecast.obstacle = one.captured != nullptr ? one.captured->Report().reason
                                                : "it is switched off for this session";
  }
  return forecasts;
}

}  // namespace

std::vector<CaptureForecast> ForecastCaptures(const PlannedRun& run, const OpRegistry& ops,
                                              const KernelRegistry& kernels,
                                              const EngineOptions& engine,
                                              const pb::GraphOptions& options) {
  std::vector<CaptureForecast> all;
  for (const Partition& part : run.task_parts) {
    for (CaptureForecast& one : ForecastTask(part, ops, kernels, engine, options)) {
      all.push_back(std::move(one));
    }
  }
  std::sort(all.begin(), all.end(),
            [](const CaptureForecast& a, const CaptureForecast& b) { return a.device < b.device; });
  return all;
}

}  // namespace millrace
