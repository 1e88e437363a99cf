// SPDX-License-Identifier: Apache-2.0
#include "millrace/cluster_coordinator.h"

#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/notification.h"
#include "base/preemption/on_preemption.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "coordinator/core.h"
#include "millrace/data.h"
#include "millrace/distributed_values.h"
#include "millrace/ops.h"
#include "millrace/preemption.h"
#include "millrace/strategy.h"
#include "millrace/variables.h"

namespace millrace {

using std::chrono::milliseconds;

namespace {

constexpr char kWorkers[] = "/job:worker";
constexpr char kWorkerIndexName[] = "coordinator/worker_index";

Status CheckPositive(int64_t value, std::string_view name) {
  if (value > 0) return OkStatus();
  return errors::InvalidArgument("CoordinatorOptions.", name, " is ", value,
                                 "; it must be at least 1");
}

Status CheckOptions(const CoordinatorOptions& options) {
  for (const char* job : {"ps", "worker"}) {
    if (options.cluster.num_tasks(job) > 0) continue;
    return errors::InvalidArgument("There must be at least one ", job,
                                   ". CoordinatorOptions.cluster has the jobs '",
                                   options.cluster.ToString(), "'");
  }
  MR_RETURN_IF_ERROR(CheckPositive(options.max_in_flight, "max_in_flight"));
  MR_RETURN_IF_ERROR(CheckPositive(static_cast<int64_t>(options.queue_capacity), "queue_capacity"));
  MR_RETURN_IF_ERROR(CheckPositive(options.max_attempts, "max_attempts"));
  const std::pair<const char*, milliseconds> times[] = {
      {"connect_timeout (ms)", options.connect_timeout},
      {"schedule_timeout (ms)", options.schedule_timeout},
      {"join_timeout (ms)", options.join_timeout},
      {"fetch_timeout (ms)", options.fetch_timeout},
      {"function_timeout (ms)", options.function_timeout},
      {"heartbeat (ms)", options.heartbeat},
      {"worker_timeout (ms)", options.worker_timeout},
      {"ps_timeout (ms)", options.ps_timeout},
  };
  for (const auto& [name, time] : times) MR_RETURN_IF_ERROR(CheckPositive(time.count(), name));
  return OkStatus();
}

Status CheckPart(const Operation& part, Graph& graph, std::string_view what,
                 std::string_view name) {
  if (part.valid() && part.graph() == graph.state()) return OkStatus();
  return errors::InvalidArgument(
      what, " of '", name, "' is ",
      part.valid() ? "a node of another graph than the coordinator's" : "not valid");
}

}  // namespace

struct ClusterCoordinator::Impl {
  std::shared_ptr<CoordinatorCore> core;
  std::unique_ptr<OnPreemption> on_preemption;  // null until the core is there
  std::shared_ptr<Strategy> strategy;           // null for none
  Mutex index_mu;
  Output worker_index ABSL_GUARDED_BY(index_mu);

  Scope WorkerScope(std::string_view name) const {
    return core->graph().root().WithoutDevice().Named(name).WithDevice(kWorkers);
  }
  FunctionQueue::Describe Describe() const {
    return [core = core.get()] { return core->Describe(); };
  }
  // Tells of an error that is kept, and makes the coordinator usable after it.
  Status Prepare(Deadline deadline) {
    if (core->running()) return OkStatus();
    MR_RETURN_IF_ERROR(core->queue().Raise(deadline, Describe()));
    return core->EnsureUsable();
  }
};

ClusterCoordinator::ClusterCoordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClusterCoordinator::~ClusterCoordinator() {
  impl_->on_preemption = nullptr;
  impl_->core->Stop();
}

StatusOr<std::unique_ptr<ClusterCoordinator>> ClusterCoordinator::Create(
    Graph& graph, const CoordinatorOptions& options) {
  MR_RETURN_IF_ERROR(graph.status());
  MR_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>();
  impl->core = std::make_shared<CoordinatorCore>(graph, options);
  impl->on_preemption =
      std::make_unique<OnPreemption>([core = impl->core] { core->EndForNotice(); });
  MR_RETURN_IF_ERROR(impl->core->Start());
  return std::unique_ptr<ClusterCoordinator>(new ClusterCoordinator(std::move(impl)));
}

StatusOr<std::shared_ptr<ClusterCoordinator>> ClusterCoordinator::Create(
    Graph& graph, const std::shared_ptr<Strategy>& strategy, const CoordinatorOptions& options) {
  if (strategy == nullptr || !strategy->led_) {
    return errors::InvalidArgument(
        "a ClusterCoordinator leads the workers of a parameter_server strategy, and is given ",
        strategy == nullptr ? "none" : StrCat("'", strategy->name(), "'"));
  }
  if (std::shared_ptr<ClusterCoordinator> first = strategy->coordinator_.lock()) {
    if (&first->impl_->core->graph() == &graph) return first;
    return errors::FailedPrecondition(
        "the strategy ", strategy->name(),
        " has a coordinator already, of another graph: there is one coordinator for a strategy");
  }
  CoordinatorOptions own = options;
  const std::string cluster = strategy->cluster().ToString();
  if (own.cluster.jobs().empty()) own.cluster = strategy->cluster();
  if (own.cluster.ToString() != cluster) {
    return errors::InvalidArgument("CoordinatorOptions.cluster is ", own.cluster.ToString(),
                                   ", and that of the strategy ", cluster, ": leave it out");
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<ClusterCoordinator> made, Create(graph, own));
  std::shared_ptr<ClusterCoordinator> shared = std::move(made);
  shared->impl_->strategy = strategy;
  strategy->layout_ = *strategy->led_;
  strategy->coordinator_ = shared;
  return shared;
}

StatusOr<WorkerFunction> ClusterCoordinator::AddFunction(std::string_view name,
                                                         const WorkerFunctionBuilder& builder) {
  CoordinatorCore& core = *impl_->core;
  Graph& graph = core.graph();
  GraphGate::Building building(&core.gate());
  FunctionParts parts = builder(impl_->WorkerScope(name));
  MR_RETURN_IF_ERROR(graph.status());
  for (const Output& input : parts.inputs) {
    MR_RETURN_IF_ERROR(CheckPart(input, graph, "an input", name));
  }
  for (const Output& output : parts.outputs) {
    MR_RETURN_IF_ERROR(CheckPart(output, graph, "an output", name));
  }
  for (const Operation& target : parts.targets) {
    MR_RETURN_IF_ERROR(CheckPart(target, graph, "a target", name));
  }
  return WorkerFunction(core.AddFunction(std::string(name), std::move(parts))->id);
}

StatusOr<std::vector<Output>> ClusterCoordinator::CreatePerWorkerValues(
    std::string_view name, const PerWorkerBuilder& builder) {
  CoordinatorCore& core = *impl_->core;
  Graph& graph = core.graph();
  GraphGate::Building building(&core.gate());
  const std::size_t variables = graph.collection(kVariables).size();
  PerWorkerParts parts = builder(impl_->WorkerScope(name));
  MR_RETURN_IF_ERROR(graph.status());
  const std::vector<Output> after = graph.collection(kVariables);
  if (after.size() > variables) {
    return errors::InvalidArgument(
        "the builder of the per-worker values '", name, "' made the variable '",
        after.back().op().name(),
        "', which every worker would initialise: make it before, or with VariableOptions.local");
  }
  auto init = std::make_shared<PerWorkerInit>();
  init->name = name;
  for (const Operation& op : parts.initializers) {
    MR_RETURN_IF_ERROR(CheckPart(op, graph, "an initializer", name));
    init->initializers.push_back(op);
  }
  for (const Output& value : parts.values) {
    MR_RETURN_IF_ERROR(CheckPart(value, graph, "a value", name));
  }
  if (!init->initializers.empty()) core.AddPerWorkerInit(std::move(init));
  return std::move(parts.values);
}

StatusOr<std::vector<Output>> ClusterCoordinator::CreatePerWorkerDataset(
    std::string_view name, const std::function<Dataset(const InputContext& context)>& make) {
  return CreatePerWorkerValues(name, [&](const Scope& worker) {
    const DatasetIterator iterator = MakeIterator(worker, make(InputContext()));
    return PerWorkerParts{iterator.next, {iterator.initializer}};
  });
}

StatusOr<Output> ClusterCoordinator::WorkerIndex() {
  MutexLock lock(&impl_->index_mu);
  if (impl_->worker_index.valid()) return impl_->worker_index;
  CoordinatorCore& core = *impl_->core;
  GraphGate::Building building(&core.gate());
  const Scope scope = impl_->WorkerScope(kWorkerIndexName);
  auto init = std::make_shared<PerWorkerInit>();
  init->name = kWorkerIndexName;
  init->worker_index = Placeholder(scope, kInt32, PartialShape(Shape({})));
  const Variable index = MakeVariable(scope, "index", Constant(scope, Tensor::Scalar<int32_t>(-1)),
                                      {.trainable = false, .local = true, .use_resource = true});
  init->initializers = {Assign(scope, index, init->worker_index)};
  MR_RETURN_IF_ERROR(core.graph().status());
  core.AddPerWorkerInit(std::move(init));
  impl_->worker_index = index.read;
  return impl_->worker_index;
}

int ClusterCoordinator::num_workers() const {
  return impl_->core->options().cluster.num_tasks("worker");
}

StatusOr<RemoteValue> ClusterCoordinator::Schedule(const WorkerFunction& function,
                                                   std::span<const Tensor> inputs) {
  CoordinatorCore& core = *impl_->core;
  auto call = std::make_shared<CoordinatedCall>();
  call->function = core.FindFunction(function.id_);
  if (call->function == nullptr) {
    return errors::InvalidArgument("what is scheduled is no function of this coordinator");
  }
  if (inputs.size() != call->function->parts.inputs.size()) {
    return errors::InvalidArgument("the function '", call->function->name, "' takes ",
                                   call->function->parts.inputs.size(), " inputs, not ",
                                   inputs.size());
  }
  MR_RETURN_IF_ERROR(CheckPreemption());
  const Deadline deadline = DeadlineAfter(core.options().schedule_timeout);
  MR_RETURN_IF_ERROR(impl_->Prepare(deadline));
  call->inputs.assign(inputs.begin(), inputs.end());
  call->result = std::make_shared<RemoteResult>(call->function->name, core.options().fetch_timeout);
  RemoteValue value(call->result);
  MR_RETURN_IF_ERROR(core.queue().Put(std::move(call), deadline, impl_->Describe()));
  return value;
}

Status ClusterCoordinator::Join(milliseconds timeout) {
  CoordinatorCore& core = *impl_->core;
  const milliseconds limit = timeout.count() > 0 ? timeout : core.options().join_timeout;
  const Deadline deadline = DeadlineAfter(limit);
  MR_RETURN_IF_ERROR(impl_->Prepare(deadline));
  const FunctionQueue::Counts counts = core.queue().counts();
  MR_LOG(kInfo, "Waiting for all global closures to be finished. (", counts.queued, " queued, ",
         counts.running, " running)");
  return core.queue().Join(deadline, impl_->Describe());
}

StatusOr<bool> ClusterCoordinator::Done() { return impl_->core->queue().Done(); }

StatusOr<std::vector<std::vector<Tensor>>> ClusterCoordinator::Fetch(
    std::span<const RemoteValue> values, milliseconds timeout) const {
  const milliseconds limit = timeout.count() > 0 ? timeout : impl_->core->options().fetch_timeout;
  const Deadline deadline = DeadlineAfter(limit);
  std::vector<std::vector<Tensor>> all;
  for (const RemoteValue& value : values) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - SteadyClock::now());
    MR_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, value.Fetch(std::max(left, milliseconds(1))));
    all.push_back(std::move(outputs));
  }
  return all;
}

StatusOr<std::vector<Tensor>> ClusterCoordinator::Run(std::span<const Feed> feeds,
                                                      std::span<const Output> fetches,
                                                      std::span<const Operation> targets) {
  return impl_->core->Run(feeds, fetches, targets);
}

Status ClusterCoordinator::Recover() { return impl_->core->Recover(); }

CoordinatorStats ClusterCoordinator::stats() const { return impl_->core->stats(); }

}  // namespace millrace
