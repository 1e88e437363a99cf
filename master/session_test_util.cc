// SPDX-License-Identifier: Apache-2.0
#include "master/session_test_util.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/deadline_timer.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/random.h"
#include "executor/stats/running_nodes.h"
#include "kernels/control/control_flow.h"
#include "kernels/control/send_recv.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr OpSpec kTestOps[] = {
    {"TestCounter", "", "count: float", "", nullptr, kStateful},
    {"TestBlock", "", "never: float", "", nullptr, kStateful},
    {"TestGate", "", "opened: float", "", nullptr, kStateful},
    {"TestHop", "", "arrived: float", "", nullptr, kStateful},
    {"TestFail", "", "never: float", "", nullptr, kStateful},
};

std::atomic<int> blocked{0};

struct Gates {
  Mutex mu;
  CondVar opened;
  int closed ABSL_GUARDED_BY(mu) = 0;  // how many block
  int64_t openings ABSL_GUARDED_BY(mu) = 0;

  static Gates& All() {
    static auto* const all = new Gates;
    return *all;
  }
  void Pass() {
    MutexLock lock(&mu);
    const int64_t before = openings;
    ++closed;
    while (openings == before) opened.Wait(&mu);
    --closed;
  }
  int Closed() {
    MutexLock lock(&mu);
    return closed;
  }
};

class ConstKernel : public Kernel {
 public:
  explicit ConstKernel(KernelConstruction& c) : Kernel(c), value_(c.attr<Tensor>("value")) {}
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, value_);
    return OkStatus();
  }

 private:
  const Tensor value_;
};

class UnfedKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    return errors::InvalidArgument("You must feed a value for placeholder tensor '", name(), "'");
  }
};

class IdentityKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    if (num_outputs() > 0) ctx.SetOutput(0, ctx.input(0));
    return OkStatus();
  }
};

class SumKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, Tensor::Scalar(ctx.input(0).scalar<float>() + ctx.input(1).scalar<float>()));
    return OkStatus();
  }
};

class Count : public Resource {
 public:
  std::string DebugString() const override { return "count"; }
  std::atomic<int> value{0};
};

class CounterKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    StatusOr<RefPtr<Count>> count = ctx.resources()->LookupOrCreate<Count>(
        "", name(), []() -> StatusOr<RefPtr<Count>> { return MakeRef<Count>(); });
    if (!count.ok()) return count.status();
    ctx.SetOutput(0, Tensor::Scalar<float>(static_cast<float>(++(*count)->value)));
    return OkStatus();
  }
};

class BlockKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override { return errors::Internal("asynchronous only"); }
  bool IsAsync() const override { return true; }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    CancellationManager* const cancellation = ctx.cancellation();
    ++blocked;
    const auto cancel = [done] {
      --blocked;
      done(errors::Cancelled("blocked op was cancelled"));
    };
    if (!cancellation->RegisterCallback(cancellation->NextToken(), cancel)) cancel();
  }
};

class GateKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    Gates::All().Pass();
    ctx.SetOutput(0, Tensor::Scalar<float>(1));
    return OkStatus();
  }
};

// Not before the thread that started it has left the step: it would go on with what follows.
class HopKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override { return errors::Internal("asynchronous only"); }
  bool IsAsync() const override { return true; }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ctx.SetOutput(0, Tensor::Scalar<float>(1));
    Arrive(ctx.cancellation(), done);
  }

 private:
  static void Arrive(CancellationManager* step, DoneCallback done) {
    DeadlineTimer::Global().Schedule(DeadlineAfter(std::chrono::milliseconds(1)), [step, done] {
      FindRunningNodes(step).empty() ? done(OkStatus()) : Arrive(step, done);
    });
  }
};

class FailKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override { return errors::InvalidArgument("bad luck"); }
};

template <typename Condition>
bool WaitUntil(const Condition& condition) {
  const Deadline deadline = DeadlineAfter(std::chrono::seconds(30));
  while (!condition()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

template <typename K>
void Register(KernelRegistry& kernels, std::string op) {
  kernels.Register(KernelDef(std::move(op)), MakeKernel<K>);
}

}  // namespace

TestGraph::TestGraph() { def_.mutable_versions()->set_producer(1000); }

pb::NodeDef* TestGraph::Add(std::string_view name, std::string_view op,
                            std::initializer_list<std::string_view> inputs,
                            std::string_view device) {
  pb::NodeDef* node = def_.add_node();
  node->set_name(std::string(name));
  node->set_op(std::string(op));
  node->set_device(std::string(device));
  for (std::string_view input : inputs) node->add_input(std::string(input));
  return node;
}

pb::NodeDef* TestGraph::Const(std::string_view name, float value, std::string_view device) {
  pb::NodeDef* node = Add(name, "Const", {}, device);
  (*node->mutable_attr())["dtype"].set_type(pb::DT_FLOAT);
  TensorToProto(Tensor::Scalar(value), (*node->mutable_attr())["value"].mutable_tensor());
  return node;
}

pb::NodeDef* TestGraph::Placeholder(std::string_view name) {
  pb::NodeDef* node = Add(name, "Placeholder");
  (*node->mutable_attr())["dtype"].set_type(pb::DT_FLOAT);
  return node;
}

pb::NodeDef* TestGraph::Sum(std::string_view name, std::string_view a, std::string_view b,
                            std::string_view device) {
  pb::NodeDef* node = Add(name, "AddV2", {a, b}, device);
  (*node->mutable_attr())["T"].set_type(pb::DT_FLOAT);
  return node;
}

pb::NodeDef* TestGraph::Identity(std::string_view name, std::string_view input,
                                 std::string_view device) {
  pb::NodeDef* node = Add(name, "Identity", {input}, device);
  (*node->mutable_attr())["T"].set_type(pb::DT_FLOAT);
  return node;
}

pb::NodeDef* TestGraph::Counter(std::string_view name, std::string_view device) {
  return Add(name, "TestCounter", {}, device);
}
pb::NodeDef* TestGraph::Block(std::string_view name, std::string_view device) {
  return Add(name, "TestBlock", {}, device);
}

pb::NodeDef* TestGraph::Gate(std::string_view name, std::string_view device) {
  return Add(name, "TestGate", {}, device);
}

pb::NodeDef* TestGraph::Hop(std::string_view name, std::string_view device) {
  return Add(name, "TestHop", {}, device);
}
pb::NodeDef* TestGraph::Fail(std::string_view name, std::string_view device) {
  return Add(name, "TestFail", {}, device);
}

void RegisterTestOpsAndKernels(OpRegistry& ops, KernelRegistry& kernels) {
  MR_CHECK(RegisterAllOps(ops).ok());
  MR_CHECK(RegisterOps(ops, kTestOps).ok());
  RegisterControlFlowKernels(kernels);
  RegisterCallKernels(kernels);
  RegisterSendRecvKernels(kernels);
  Register<ConstKernel>(kernels, "Const");
  Register<UnfedKernel>(kernels, "Placeholder");
  Register<IdentityKernel>(kernels, "Identity");
  Register<SumKernel>(kernels, "AddV2");
  Register<CounterKernel>(kernels, "TestCounter");
  Register<BlockKernel>(kernels, "TestBlock");
  Register<GateKernel>(kernels, "TestGate");
  Register<HopKernel>(kernels, "TestHop");
  Register<FailKernel>(kernels, "TestFail");
}

std::string TestCluster::TaskName(int task) { return MakeTaskName("worker", task); }

TestCluster::TestCluster(Options options)
    : inter_op_pool_("inter_op", options.num_threads),
      intra_op_pool_("intra_op", 0),
      rendezvous_(NewLocalRendezvousManager()) {
  RegisterTestOpsAndKernels(ops_, kernels_);
  for (int t = 0; t < options.num_tasks; ++t) {
    auto& task = *tasks_.emplace_back(std::make_unique<Task>());
    std::vector<uint64_t> incarnations;
    for (int i = 0; i < options.num_cpus; ++i) incarnations.push_back(RandomId());
    const auto make_devices = [this, t, incarnations] {
      auto set = std::make_unique<DeviceSet>();
      for (size_t i = 0; i < incarnations.size(); ++i) {
        set->resources.push_back(std::make_unique<ResourceManager>());
        set->devices.push_back(NewCpuDevice(StrCat(TaskName(t), "/device:CPU:", i), incarnations[i],
                                            &intra_op_pool_, set->resources.back().get()));
      }
      return set;
    };
    task.devices = make_devices();
    task.env.task = TaskName(t);
    for (const auto& device : task.devices->devices) task.env.devices.push_back(device.get());
    task.env.ops = &ops_;
    task.env.kernels = &kernels_;
    task.env.inter_op_pool = &inter_op_pool_;
    task.env.rendezvous = rendezvous_.get();
    task.env.workers = &workers_;
    task.env.make_session_devices = [make_devices]() -> StatusOr<std::unique_ptr<DeviceSet>> {
      return make_devices();
    };
    task.worker = std::make_unique<LocalWorker>(task.env);
    workers_.Add(task.env.task, task.worker.get());
  }
  if (!options.dump_dir.empty()) {
    StatusOr<std::unique_ptr<GraphDumper>> dumper = GraphDumper::Open(options.dump_dir, &ops_);
    if (!dumper.ok()) Fatal(std::source_location::current(), Message(dumper.status()));
    dumper_ = *std::move(dumper);
  }
  for (auto& task : tasks_) {
    task->master = std::make_shared<Master>(MasterEnv{&task->env, {}, dumper_.get()});
  }
}

TestCluster::~TestCluster() {
  for (auto& task : tasks_) task->master.reset();
  for (auto& task : tasks_) task->worker.reset();
}

std::unique_ptr<ClientSession> TestCluster::NewSession(const pb::GraphDef& graph,
                                                       ClientSession::Options options, int task) {
  StatusOr<std::unique_ptr<ClientSession>> session =
      ClientSession::Create(master(task), graph, std::move(options));
  if (!session.ok()) Fatal(std::source_location::current(), Message(session.status()));
  return *std::move(session);
}

bool WaitUntilOpsBlock(int count) {
  return WaitUntil([count] { return blocked == count; });
}

bool WaitUntilGatesBlock(int count) {
  return WaitUntil([count] { return Gates::All().Closed() == count; });
}

void OpenGates() {
  Gates& gates = Gates::All();
  MutexLock lock(&gates.mu);
  ++gates.openings;
  gates.opened.SignalAll();
}

bool TestCluster::WaitUntilBlocked(int count) { return WaitUntilOpsBlock(count); }

}  // namespace millrace
