// SPDX-License-Identifier: Apache-2.0
// An eager context: what one client has in one task. Its devices, functions, tensors, what runs.
#ifndef EAGER_CONTEXT_H_
#define EAGER_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/calls/caller_host.h"
#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "device/device.h"
#include "eager/eager_run.h"
#include "eager/function_plan.h"
#include "eager/handle_table.h"
#include "eager/observer.h"
#include "eager/program.h"
#include "eager/request_id.h"
#include "eager/transport.h"
#include "executor/memory/memory_quota.h"
#include "millrace/status.h"
#include "proto/eager.pb.h"
#include "session/worker_env.h"

namespace millrace {

// What an eager server is given by whoever composes a task. Outlives the server.
struct EagerEnv {
  const WorkerEnv* task = nullptr;
  EagerTransport* transport = nullptr;
  // Judges what clients send before it is run; null: everything is admitted.
  std::function<Status(const DataflowGraph&)> admit;
  EagerObserver* observer = nullptr;  // null: nobody watches
};

// How much one context may keep (docs/security.md).
struct EagerLimits {
  std::size_t tensors = 1'000'000;
  std::size_t functions = 100'000;
  std::size_t programs = 4096;  // of ops, and as many of functions: the rest is made again
  // What a server's quotas bound; 0: no bound.
  int64_t contexts = 0;      // of the server (--max_sessions)
  int64_t graph_nodes = 0;   // of a context's functions (--max_graph_nodes)
  int64_t graph_bytes = 0;   // of these, as they come (--max_graph_size)
  int64_t runs = 0;          // under way at once (--max_steps)
  int64_t memory_bytes = 0;  // that kernels took and that are still held, and the same again for
                             // tensors that were sent (--session_memory_limit)
};

// Thread-safe.
class EagerContext : public std::enable_shared_from_this<EagerContext> {
 public:
  // Runs something that may wait for other tasks, on a thread where that does no harm.
  using Later = std::function<void(std::function<void()>)>;

  // This task is `task` for the client; `resources` are its devices. What `later` uses must be
  // there until the last copy of it has gone: connections that calls still use may outlive the
  // context.
  EagerContext(const EagerEnv& env, uint64_t id, std::string task,
               std::shared_ptr<SessionResources> resources, const EagerLimits& limits, Later later);
  ~EagerContext();

  uint64_t id() const { return id_; }
  const std::string& task() const { return worker_.task; }
  const WorkerEnv& worker() const { return worker_; }
  // Null if nobody watches.
  std::shared_ptr<EagerStep> BeginStep(const pb::Operation& operation, int64_t step_id) const {
    if (env_.observer == nullptr) return nullptr;
    return env_.observer->Begin(id_, operation.name(), step_id, EagerRequestId(id_, operation));
  }
  HandleTable* handles() { return &handles_; }
  const HandleTable& handles() const { return handles_; }
  uint64_t view_id() const;
  Device* device() const { return resources_->devices.front(); }
  // "" is the first one. InvalidArgument "unknown device" for one that is not of this task.
  StatusOr<Device*> FindDevice(std::string_view name) const;
  // Whether it is the full name of a device of any task of the context.
  bool HasDevice(std::string_view name) const;

  // The tasks and devices as they are from now on; this task's own devices need not be among them.
  // Functions are placed anew. `caller` is where the client calls from.
  void SetCluster(uint64_t view_id, const pb::ClusterDef& cluster,
                  const google::protobuf::RepeatedPtrField<pb::DeviceAttributes>& devices,
                  const CallerHost& caller = {});
  // Of an update that changes nothing that this task may see.
  void SetView(uint64_t view_id);
  // The task's eager server, to be kept until it has answered; InvalidArgument if the context has
  // no such task.
  StatusOr<std::shared_ptr<EagerPeer>> FindPeer(const std::string& task) const;
  // Asks a task to forget something. Whoever cannot be reached forgets it with the context.
  void Tell(const std::string& task, const pb::EnqueueRequest& request) const;

  Status RegisterFunction(const pb::RegisterFunctionOp& op);
  Status RemoveFunction(const std::string& name);
  bool IsFunction(std::string_view name) const;

  // What runs an op with these attributes; with `keep` it may be kept for the next one.
  StatusOr<std::shared_ptr<const EagerProgram>> FindProgram(const std::string& op, AttrMap attrs,
                                                            const Device& device, bool keep);
  // What runs a function, or a part of one, called at `device` with inputs that lie on these
  // devices; `arg_widths` as in PlanInput.
  StatusOr<std::shared_ptr<const FunctionPlan>> FindPlan(FunctionName function,
                                                         const Device& device,
                                                         std::vector<std::string> arg_devices,
                                                         std::vector<int> arg_widths,
                                                         bool is_component);

  // Handles that stand for one tensor on each of several devices, as functions take them.
  // InvalidArgument if the number is taken or there is no tensor; ResourceExhausted as for tensors.
  Status PutPacked(const pb::SendPackedHandleOp& op);
  // Null if there is none of this number.
  std::shared_ptr<const pb::SendPackedHandleOp> FindPacked(int64_t op_id) const;
  // Drops a packed handle, or a tensor.
  Status Drop(const pb::RemoteTensorHandle& handle);

  // The steps that other tasks, or the client, run parts of here, until they are cleaned up.
  // ResourceExhausted beyond the number of tensors that the context may keep.
  Status AddStep(int64_t step_id);
  void ForgetStep(int64_t step_id);
  bool HasStep(int64_t step_id) const;

  // Where ops of the context that send and receive meet those of other tasks.
  RefPtr<Rendezvous> shared_rendezvous() const { return shared_rendezvous_; }

  // What kernels of the context may take; null: no bound.
  const RefPtr<MemoryQuota>& memory_quota() const { return memory_quota_; }

  // A run of `what` under way, until Leave. Aborted once the context is closed, ResourceExhausted
  // if as many run as may.
  Status Enter(EagerRun* run, const std::string& what);
  void Leave(EagerRun* run);
  bool is_busy() const;
  // When nothing runs: perhaps right now.
  void WhenIdle(std::function<void()> done);
  // Ends what runs with `reason`, and forgets everything. Idempotent.
  void Close(const Status& reason);

 private:
  struct FunctionSize {
    int64_t functions = 0, nodes = 0, bytes = 0;
    void Add(std::span<const std::shared_ptr<const Function>> added, int sign);
  };
  // ResourceExhausted if the functions may not be so many or so large; `last` came last.
  Status CheckSize(const FunctionSize& size, const std::string& last) const;
  // NotFound if it is not there.
  Status RemoveFromLibrary(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct KeptPlan {
    std::string function;
    std::shared_ptr<const FunctionPlan> plan;
  };

  // Destroyed on the thread of `later`, after the last call that uses it.
  std::shared_ptr<EagerCluster> Connect(const std::map<std::string, std::string>& addresses,
                                        const CallerHost& caller) const;
  std::shared_ptr<WorkerInterface> FindWorker(std::string_view task) const;
  // Tells the tasks that have parts of the plan to forget them.
  void Withdraw(const FunctionPlan& plan) const;
  std::vector<KeptPlan> TakePlans(std::string_view function) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<const FunctionLibrary> LibraryFor(const std::vector<std::string>& names) const;

  const EagerEnv& env_;
  const uint64_t id_;
  const EagerLimits limits_;
  const Later later_;
  const std::shared_ptr<SessionResources> resources_;
  WorkerEnv worker_;
  ProgramEnv program_env_;
  std::unique_ptr<RendezvousManager> rendezvous_;
  RefPtr<Rendezvous> shared_rendezvous_;
  HandleTable handles_;
  const RefPtr<MemoryQuota> memory_quota_;
  // Ends what the context tells others, once it is gone.
  const std::shared_ptr<CancellationManager> telling_ = std::make_shared<CancellationManager>();

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t view_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::string> addresses_ ABSL_GUARDED_BY(mu_);
  // Shared by the calls to its tasks: an earlier one goes with the last of them.
  std::shared_ptr<EagerCluster> cluster_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const ContextDevices> devices_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const FunctionLibrary> library_ ABSL_GUARDED_BY(mu_);
  StringMap<std::shared_ptr<const FunctionLibrary>> components_ ABSL_GUARDED_BY(mu_);
  StringMap<std::shared_ptr<const EagerProgram>> programs_ ABSL_GUARDED_BY(mu_);
  // Of the library and of those of the components: what is in several of them counts in each.
  FunctionSize size_ ABSL_GUARDED_BY(mu_);
  StringMap<KeptPlan> plans_ ABSL_GUARDED_BY(mu_);
  // How often plans were taken out. A plan that was begun before that is not kept.
  int64_t plans_taken_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<int64_t, std::shared_ptr<const pb::SendPackedHandleOp>> packed_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<int64_t> steps_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<EagerRun*> runs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void()>> when_idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // EAGER_CONTEXT_H_
