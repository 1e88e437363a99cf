// SPDX-License-Identifier: Apache-2.0
#include "executor/test_graph.h"

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/control/control_flow.h"
#include "kernels/control/send_recv.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace::test {
namespace {

constexpr OpSpec kOps[] = {
    {"Null", "", "", ""},
    {"Work", "", "", "expensive: bool = true"},
    {"Value", "", "y: float", "value: float"},
    {"Sum", "a: float, b: float", "y: float", "expensive: bool = false"},
    {"InPlace", "x: float", "y: float", ""},
    {"Below", "x: float, limit: float", "y: bool", ""},
    {"Later", "x: float", "y: float", ""},
    {"Now", "x: float", "y: float", ""},
    {"Stuck", "", "", ""},
    {"Fail", "", "", "code: int"},
    {"Throw", "", "", "async: bool = false"},
    {"Wrong", "", "y: float", ""},
    {"Silent", "", "y: float", ""},
    {"Variable", "", "v: Ref(float)", ""},
    {"Look", "v: Ref(float)", "", "", nullptr, kUninitializedInput},
    {"Use", "v: Ref(float)", "", ""},
    {"Keep", "x: float", "", "index: int = 0"},
};

// Kernels reach their test through the registry's factory, which takes no argument; tests
// build and run one graph at a time per thread.
thread_local TestGraph* t_graph = nullptr;

class TestKernel : public Kernel {
 public:
  explicit TestKernel(KernelConstruction& c) : Kernel(c), test_(*t_graph) {}
  bool IsExpensive() const override { return false; }

 protected:
  void Jitter() const {
    if (test_.jitter) test_.jitter();
  }

  TestGraph& test_;
};

class NullKernel : public TestKernel {
 public:
  using TestKernel::TestKernel;
  Status Compute(KernelContext&) override { return OkStatus(); }
};

class WorkKernel : public TestKernel {
 public:
  explicit WorkKernel(KernelConstruction& c)
      : TestKernel(c), expensive_(c.attr<bool>("expensive")) {}
  bool IsExpensive() const override { return expensive_; }
  Status Compute(KernelContext& ctx) override {
    ++test_.runs;
    if (test_.hook) test_.hook(ctx.node_name());
    return OkStatus();
  }

 private:
  const bool expensive_;
};

class ValueKernel : public TestKernel {
 public:
  explicit ValueKernel(KernelConstruction& c) : TestKernel(c), value_(c.attr<float>("value")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    *out->data<float>() = value_;
    return OkStatus();
  }

 private:
  const float value_;
};

class SumKernel : public TestKernel {
 public:
  explicit SumKernel(KernelConstruction& c)
      : TestKernel(c), expensive_(c.attr<bool>("expensive")) {}
  bool IsExpensive() const override { return expensive_; }
  Status Compute(KernelContext& ctx) override {
    Jitter();
    const float sum = ctx.input(0).scalar<float>() + ctx.input(1).scalar<float>();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0, 1}, 0, Shape()));
    *out->data<float>() = sum;
    return OkStatus();
  }

 private:
  const bool expensive_;
};

class InPlaceKernel : public TestKernel {
 public:
  using TestKernel::TestKernel;
  Status Compute(KernelContext& ctx) override {
    Jitter();
    const void* before = ctx.input(0).raw_data();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, Shape()));
    *out->data<float>() = ctx.input(0).scalar<float>() + 1;
    test_.in_place_forwarded = before == out->raw_data();
    return OkStatus();
  }
};

class BelowKernel : public TestKernel {
 public:
  using TestKernel::TestKernel;
  Status Compute(KernelContext& ctx) override {
    Jitter();
    ctx.SetOutput(
        0, Tensor::Scalar<bool>(ctx.input(0).scalar<float>() < ctx.input(1).scalar<float>()));
    return OkStatus();
  }
};

class AsyncKernel : public TestKernel {
 public:
  using TestKernel::TestKernel;
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override { return errors::Internal("called synchronously"); }
};

class LaterKernel : public AsyncKernel {
 public:
  using AsyncKernel::AsyncKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    test_.helpers.Schedule([this, &ctx, done] {
      Jitter();
      if (test_.hook) test_.hook(ctx.node_name());
      ctx.SetOutput(0, ctx.input(0));
      done(OkStatus());
    });
  }
};

class NowKernel : public AsyncKernel {
 public:
  using AsyncKernel::AsyncKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ctx.SetOutput(0, ctx.input(0));
    done(OkStatus());
  }
};

class StuckKernel : public AsyncKernel {
 public:
  using AsyncKernel::AsyncKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    CancellationManager* cancellation = ctx.cancellation();
    if (!cancellation->RegisterCallback(cancellation->NextToken(),
                                        [done] { done(errors::Cancelled("was stuck")); })) {
      done(errors::Cancelled("came too late"));
    }
  }
};

class FailKernel : public TestKernel {
 public:
  explicit FailKernel(KernelConstruction& c)
      : TestKernel(c), code_(static_cast<int>(c.attr<int64_t>("code"))) {}
  Status Compute(KernelContext&) override {
    return MakeStatus(static_cast<StatusCode>(code_), "it broke");
  }

 private:
  const int code_;
};

// Asks for more than there is.
class ThrowKernel : public TestKernel {
 public:
  explicit ThrowKernel(KernelConstruction& c) : TestKernel(c), async_(c.attr<bool>("async")) {}
  bool IsAsync() const override { return async_; }
  Status Compute(KernelContext&) override { throw std::bad_alloc(); }
  void ComputeAsync(KernelContext&, DoneCallback) override { std::vector<char>().resize(SIZE_MAX); }

 private:
  const bool async_;
};

class WrongKernel : public TestKernel {
 public:
  using TestKernel::TestKernel;
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(1));
    return OkStatus();
  }
};

class VariableKernel : public TestKernel {
 public:
  using TestKernel::TestKernel;
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutputRef(0, &test_.variable_mu, &test_.variable);
    return OkStatus();
  }
};

class KeepKernel : public TestKernel {
 public:
  explicit KeepKernel(KernelConstruction& c) : TestKernel(c), index_(c.attr<int64_t>("index")) {}
  Status Compute(KernelContext& ctx) override {
    ++test_.kept_runs;
    test_.kept[index_] = ctx.input(0);
    return OkStatus();
  }

 private:
  const int64_t index_;
};

void RegisterTestKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("Null"), MakeKernel<NullKernel>);
  registry.Register(KernelDef("Work"), MakeKernel<WorkKernel>);
  registry.Register(KernelDef("Value"), MakeKernel<ValueKernel>);
  registry.Register(KernelDef("Sum"), MakeKernel<SumKernel>);
  registry.Register(KernelDef("InPlace"), MakeKernel<InPlaceKernel>);
  registry.Register(KernelDef("Below"), MakeKernel<BelowKernel>);
  registry.Register(KernelDef("Later"), MakeKernel<LaterKernel>);
  registry.Register(KernelDef("Now"), MakeKernel<NowKernel>);
  registry.Register(KernelDef("Stuck"), MakeKernel<StuckKernel>);
  registry.Register(KernelDef("Fail"), MakeKernel<FailKernel>);
  registry.Register(KernelDef("Throw"), MakeKernel<ThrowKernel>);
  registry.Register(KernelDef("Wrong"), MakeKernel<WrongKernel>);
  registry.Register(KernelDef("Silent"), MakeKernel<NullKernel>);
  registry.Register(KernelDef("Variable"), MakeKernel<VariableKernel>);
  registry.Register(KernelDef("Look"), MakeKernel<NullKernel>);
  registry.Register(KernelDef("Use"), MakeKernel<NullKernel>);
  registry.Register(KernelDef("Keep"), MakeKernel<KeepKernel>);
}

}  // namespace

TestGraph::TestGraph() : kept(16), graph(&ops) {
  MR_CHECK(RegisterControlOps(ops).ok());
  MR_CHECK(RegisterCommOps(ops).ok());
  MR_CHECK(RegisterOps(ops, kOps).ok());
  RegisterControlFlowKernels(registry);
  RegisterCallKernels(registry);
  RegisterSendRecvKernels(registry);
  RegisterTestKernels(registry);
  device = NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, &resources);
}

TestGraph::~TestGraph() = default;

Node* TestGraph::Add(std::string_view op, std::vector<Node*> inputs, AttrMap attrs) {
  return AddNamed(graph.NewName(op), op, std::move(inputs), std::move(attrs));
}

Node* TestGraph::AddNamed(std::string_view name, std::string_view op, std::vector<Node*> inputs,
                          AttrMap attrs) {
  StatusOr<Node*> node = graph.AddNode(name, op, std::move(attrs));
  if (!node.ok()) MR_LOG(kError, Message(node.status()));
  MR_CHECK(node.ok());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Connect(inputs[i], 0, *node, static_cast<int>(i));
  }
  return *node;
}

void TestGraph::Connect(Node* src, int output, Node* dst, int input) {
  auto edge = graph.AddEdge(src, output, dst, input);
  if (!edge.ok()) MR_LOG(kError, Message(edge.status()));
  MR_CHECK(edge.ok());
}

AttrMap TestGraph::Attr(std::string_view name, AttrValue value) {
  AttrMap attrs;
  attrs.Set(name, std::move(value));
  return attrs;
}

AttrMap TestGraph::Edge(std::string_view name, bool is_recv) {
  AttrMap attrs;
  attrs.Set(is_recv ? "tensor_type" : "T", kFloat);
  attrs.Set("tensor_name", name);
  attrs.Set("send_device", "/job:localhost/replica:0/task:0/device:CPU:0");
  attrs.Set("send_device_incarnation", int64_t{1});
  attrs.Set("recv_device", "/job:localhost/replica:0/task:0/device:CPU:0");
  return attrs;
}

StatusOr<std::unique_ptr<CompiledGraph>> TestGraph::Compile() {
  return CompiledGraph::Compile(graph, device.get(), [this](const Node& n) -> StatusOr<Kernel*> {
    t_graph = this;
    auto kernel = registry.Create(device.get(), &n.op(), n.name(), n.attrs(), n.input_types(),
                                  n.output_types());
    if (!kernel.ok()) return kernel.status();
    kernels.push_back(*std::move(kernel));
    return kernels.back().get();
  });
}

}  // namespace millrace::test
