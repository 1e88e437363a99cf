// SPDX-License-Identifier: Apache-2.0
// A graph registered at a worker: cut by device, with its kernels, ready to run many times.
#ifndef WORKER_WORKER_GRAPH_H_
#define WORKER_WORKER_GRAPH_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/use_count.h"
#include "device/device.h"
#include "executor/capture/captured_program.h"
#include "executor/compiled_graph.h"
#include "graph/dataflow_graph.h"
#include "kernels/function_runner.h"
#include "millrace/status.h"
#include "proto/config.pb.h"
#include "session/worker_env.h"
#include "session/worker_interface.h"
#include "worker/graph_updates.h"
#include "worker/kernel_cache.h"

namespace millrace {

class WorkerStep;  // worker/worker_step.h

// What the graphs and steps of one worker session share. Thread-safe.
struct SessionResources {
  std::vector<Device*> devices;
  std::unique_ptr<DeviceSet> own_devices;  // of an isolated session
  KernelCache stateful_kernels;

  Device* FindDevice(std::string_view name) const;  // null if there is none
};

// Constant once made, but for its pool of idle steps. Thread-safe.
class WorkerGraph {
 public:
  struct Part {
    Device* device = nullptr;
    std::unique_ptr<DataflowGraph> graph;  // null unless it is kept, for partition graphs
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::unique_ptr<CompiledGraph> program;     // points to the kernels
    std::unique_ptr<CapturedProgram> captured;  // of an accelerator's program; null for others
    bool has_state = false;  // a node may put something into the step's container
  };

  // Cuts `graph` (this worker's part of a plan) by device, optimises each part and makes its
  // kernels. With `direct`, and if all is on one device and calls no function, the client's
  // feeds and fetches are the step's call_args and call_results instead of passing through the
  // rendezvous. `new_name` never gives a name twice in this worker. What the partitioner, the
  // kernels' constructors and the executor's compiler say is wrong comes back, with the node.
  static StatusOr<std::shared_ptr<WorkerGraph>> Make(
      const WorkerEnv& env, std::shared_ptr<SessionResources> resources, const DataflowGraph& graph,
      const pb::GraphOptions& options, bool keep_graph, std::optional<DirectIo> direct,
      const std::function<std::string(std::string_view prefix)>& new_name);
  // The same for the placed body of a function, which has stateful kernels of its own. With
  // `control_flow_added` the loops that cross devices of it are prepared: it is a part of a body.
  static StatusOr<std::shared_ptr<WorkerGraph>> MakeBody(
      const WorkerEnv& env, std::shared_ptr<SessionResources> resources, const DataflowGraph& graph,
      const std::function<std::string(std::string_view prefix)>& new_name,
      bool control_flow_added = false);
  ~WorkerGraph();

  const std::vector<Part>& parts() const { return parts_; }
  const SessionResources& resources() const { return *resources_; }
  // The order of the arguments and results of a direct graph; null for others.
  const DirectIo* direct() const { return direct_ ? &*direct_ : nullptr; }
  // Runs the functions of the graph; null if it has none.
  FunctionRunner* functions() const { return functions_.get(); }

  // What its steps update, for the ledgers; null if that is nothing.
  GraphUpdates* updates() const { return updates_.get(); }

  // What the session keeps between steps, for StepEnv::session_state; null before it is set.
  void* session_state() const { return session_state_.get(); }
  void set_session_state(std::shared_ptr<void> state) { session_state_ = std::move(state); }

  // What its session waits for before its devices go; null before it is set.
  const std::shared_ptr<UseCount>& step_count() const { return step_count_; }
  void set_step_count(std::shared_ptr<UseCount> count) { step_count_ = std::move(count); }

  // Whether steps may have work on an accelerator.
  bool uses_accelerators() const { return uses_accelerators_; }

  // What the tensors of one step may take on one device, in bytes; 0: no limit.
  int64_t memory_limit() const { return memory_limit_; }
  void set_memory_limit(int64_t bytes) { memory_limit_ = bytes; }  // before the first step
  // And what all steps of its session may hold together, with what they leave; null: no limit.
  const RefPtr<MemoryQuota>& memory_quota() const { return memory_quota_; }
  void set_memory_quota(RefPtr<MemoryQuota> quota) { memory_quota_ = std::move(quota); }

  // The task that leads the collectives of the graph's steps; "" if it has none.
  const std::string& collective_leader() const { return collective_leader_; }
  void set_collective_leader(std::string task) { collective_leader_ = std::move(task); }

  // An idle step; `self` must be the pointer to this graph.
  static RefPtr<WorkerStep> NewStep(const std::shared_ptr<WorkerGraph>& self);

 private:
  friend class WorkerStep;
  explicit WorkerGraph(std::shared_ptr<SessionResources> resources)
      : resources_(std::move(resources)) {}
  Status Cut(const WorkerEnv& env, const DataflowGraph& graph, bool is_body,
             bool control_flow_added, const pb::GraphOptions* options,
             std::optional<DirectIo> direct,
             const std::function<std::string(std::string_view prefix)>& new_name);
  Status Compile(const WorkerEnv& env, bool is_body, Part* part);
  void PlanCaptures();
  void Recycle(WorkerStep* step);

  const std::shared_ptr<SessionResources> resources_;
  std::shared_ptr<void> session_state_;
  std::shared_ptr<UseCount> step_count_;
  std::string collective_leader_;
  std::optional<DirectIo> direct_;
  RefPtr<FunctionRunner> functions_;
  std::vector<Part> parts_;
  bool uses_accelerators_ = false;
  int64_t memory_limit_ = 0;
  RefPtr<MemoryQuota> memory_quota_;
  std::unique_ptr<GraphUpdates> updates_;
  Mutex mu_;
  std::vector<WorkerStep*> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // WORKER_WORKER_GRAPH_H_
