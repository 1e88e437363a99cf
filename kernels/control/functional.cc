// SPDX-License-Identifier: Apache-2.0
// Calls, branches and loops that were not put into the graph that makes them: they run their
// functions through the step's runner.
#include "kernels/control/functional.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "kernels/function_runner.h"
#include "kernels/kernel_context.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

// True if a value counts as true: a scalar that is not zero or empty, another tensor that has
// elements.
StatusOr<bool> IsTrue(const Tensor& value) {
  if (value.shape().rank() > 0) return value.num_elements() > 0;
  switch (value.dtype()) {
    case DataType::kBool:
      return value.scalar<bool>();
    case DataType::kString:
      return !value.scalar<std::string>().empty();
    case DataType::kFloat:
      return value.scalar<float>() != 0;
    case DataType::kDouble:
      return value.scalar<double>() != 0;
    case DataType::kInt8:
      return value.scalar<int8_t>() != 0;
    case DataType::kUint8:
      return value.scalar<uint8_t>() != 0;
    case DataType::kInt16:
      return value.scalar<int16_t>() != 0;
    case DataType::kUint16:
      return value.scalar<uint16_t>() != 0;
    case DataType::kInt32:
      return value.scalar<int32_t>() != 0;
    case DataType::kInt64:
      return value.scalar<int64_t>() != 0;
    default:
      return errors::InvalidArgument("a value of type ", DataTypeName(value.dtype()),
                                     " is neither true nor false");
  }
}

class ToBoolKernel final : public Kernel {
 public:
  explicit ToBoolKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const bool value, IsTrue(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->data<bool>()[0] = value;
    return OkStatus();
  }
};

// In the branch of If that takes other arguments: never read.
class FakeParamKernel final : public Kernel {
 public:
  explicit FakeParamKernel(KernelConstruction& c) : Kernel(c) {
    const PartialShape wanted = c.attr<PartialShape>("shape");
    Dims dims;
    for (int i = 0; wanted.has_rank() && i < wanted.rank(); ++i) {
      dims.push_back(std::max<int64_t>(wanted.dim(i), 0));
    }
    StatusOr<Tensor> made = Tensor::Allocate(HostAllocator(), c.output_types()[0], Shape(dims));
    if (!made.ok()) {
      c.SetError(made.status());
      return;
    }
    value_ = *std::move(made);
    if (value_.num_elements() > 0 && value_.dtype() != kString && value_.dtype() != kResource &&
        value_.dtype() != kVariant) {
      std::memset(value_.raw_data(), 0, value_.num_bytes());
    }
  }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, value_);
    return OkStatus();
  }

 private:
  Tensor value_;
};

// A call under way; used again and again by its kernel.
struct Call {
  explicit Call(Kernel* owner) : kernel(owner) {}

  Kernel* const kernel;
  KernelContext* ctx = nullptr;
  DoneCallback done;
  std::vector<Tensor> args, results;
  std::atomic<int> progress{0};  // of loops, see LoopKernel
  bool evaluates_condition = false;
  const RunnableFunction* condition = nullptr;
  const RunnableFunction* body = nullptr;
  Status status;
};

// What the kernels that run functions share: idle calls, so that a warm one allocates nothing.
class CallingKernel : public Kernel {
 public:
  explicit CallingKernel(const KernelConstruction& c)
      : Kernel(c), is_gradient_(c.def().name() == "SymbolicGradient") {
    for (const DataType type : c.output_types()) output_types_.push_back(BaseType(type));
  }
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    return errors::Internal("a call of a function is asynchronous");
  }

 protected:
  bool is_gradient() const { return is_gradient_; }

  // With the inputs from `first_input` on as arguments.
  Call* Begin(KernelContext& ctx, int first_input, DoneCallback done) {
    Call* call = nullptr;
    {
      MutexLock lock(&mu_);
      if (!idle_.empty()) {
        call = idle_.back().release();
        idle_.pop_back();
      }
    }
    if (call == nullptr) call = new Call(this);
    call->ctx = &ctx;
    call->done = done;
    call->args.resize(static_cast<std::size_t>(ctx.num_inputs() - first_input));
    for (std::size_t i = 0; i < call->args.size(); ++i) {
      call->args[i] = ctx.input(first_input + static_cast<int>(i));
    }
    return call;
  }

  // The results become the outputs if all went well.
  void End(Call* call, Status status, std::vector<Tensor>* outputs) {
    if (status.ok()) {
      for (std::size_t i = 0; i < outputs->size(); ++i) {
        call->ctx->SetOutput(static_cast<int>(i), std::move((*outputs)[i]));
      }
    }
    // Tensors that stay would keep memory.
    for (Tensor& arg : call->args) arg = Tensor();
    for (Tensor& result : call->results) result = Tensor();
    const DoneCallback done = call->done;
    {
      MutexLock lock(&mu_);
      idle_.emplace_back(call);
    }
    done(std::move(status));
  }

  // Calls `function` with the inputs from `first_input` on.
  void CallOnce(KernelContext& ctx, const LazyFunction& function, int first_input,
                DoneCallback done) {
    const StatusOr<const RunnableFunction*> found = function.Get(ctx);
    if (!found.ok()) return done(found.status());
    CallFound(ctx, **found, first_input, done);
  }
  void CallFound(KernelContext& ctx, const RunnableFunction& found, int first_input,
                 DoneCallback done) {
    Call* const call = Begin(ctx, first_input, done);
    call->results.resize(found.result_types().size());
    if (found.result_types() != output_types_) [[unlikely]] {
      return End(call, DoNotFit(found), nullptr);
    }
    ctx.env().functions->RunAsync(
        found, FunctionCall::In(ctx.env(), name()), call->args, call->results,
        {[](void* arg, Status status) {
           auto* const self = static_cast<Call*>(arg);
           static_cast<CallingKernel*>(self->kernel)->End(self, std::move(status), &self->results);
         },
         call});
  }

 private:
  Status DoNotFit(const RunnableFunction& function) const {
    const std::size_t given = function.result_types().size();
    if (is_gradient_ && given != output_types_.size()) {
      return errors::InvalidArgument("SymGrad expects to return ", output_types_.size(),
                                     " tensor(s), but get ", given, " tensor(s) instead.");
    }
    const auto text = [](const std::vector<DataType>& types) {
      std::vector<std::string> names;
      for (const DataType type : types) names.emplace_back(DataTypeName(type));
      return StrJoin(names, ", ");
    };
    return errors::InvalidArgument("function ", function.name(), " gives (",
                                   text(function.result_types()), "), but the node's outputs are (",
                                   text(output_types_), ")");
  }

  const bool is_gradient_;
  std::vector<DataType> output_types_;
  Mutex mu_;
  std::vector<std::unique_ptr<Call>> idle_ ABSL_GUARDED_BY(mu_);
};

// Attributes that only tell where the body of a call runs; see graph/lowering/lower_functions.h.
bool OnOneDevice(const KernelConstruction& c) {
  return c.attrs().GetOr<bool>("_on_one_device", false);
}

class CallKernel final : public CallingKernel {
 public:
  explicit CallKernel(KernelConstruction& c)
      : CallingKernel(c), function_(c.attr<FunctionName>("f"), OnOneDevice(c), is_gradient()) {}
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    CallOnce(ctx, function_, 0, done);
  }

 private:
  const LazyFunction function_;
};

// A call on the device that input 0 names, of this task.
class RemoteCallKernel final : public CallingKernel {
 public:
  explicit RemoteCallKernel(KernelConstruction& c)
      : CallingKernel(c), function_(c.attr<FunctionName>("f")) {}
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<const RunnableFunction*> found = Find(ctx);
    if (!found.ok()) return done(found.status());
    CallFound(ctx, **found, 1, done);
  }

 private:
  StatusOr<const RunnableFunction*> Find(const KernelContext& ctx) const {
    const Tensor& target = ctx.input(0);
    FunctionRunner* const runner = ctx.env().functions;
    if (target.num_elements() != 1 || runner == nullptr) {
      return errors::InvalidArgument("target of ", name(), " must be a scalar: a device's name");
    }
    const std::string& asked = target.data<std::string>()[0];
    MR_ASSIGN_OR_RETURN(const std::string device,
                        CanonicalDeviceName(asked, ctx.device()->parsed_name()));
    FunctionRunner::Options options;
    options.device = runner->FindDevice(device);
    options.on_one_device = true;
    if (options.device != nullptr) return runner->Instantiate(function_, options);
    return errors::InvalidArgument(
        "target of ", name(), " is ", asked, ", which is no device of the task of ",
        ctx.device()->name(),
        ": a function that is called while a step runs cannot leave its task");
  }

  const FunctionName function_;
};

// If: input 0 says which of else and then. Case: it is the number of the branch; any other
// number means the last one.
class BranchKernel final : public CallingKernel {
 public:
  explicit BranchKernel(KernelConstruction& c)
      : CallingKernel(c), is_case_(c.attrs().Has("branches")) {
    if (is_case_) {
      for (FunctionName& function : c.attr<std::vector<FunctionName>>("branches")) {
        branches_.emplace_back(std::move(function));
      }
    } else {
      branches_.emplace_back(c.attr<FunctionName>("else_branch"));
      branches_.emplace_back(c.attr<FunctionName>("then_branch"));
    }
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<std::size_t> branch = Choose(ctx.input(0));
    if (!branch.ok()) return done(branch.status());
    CallOnce(ctx, branches_[*branch], 1, done);
  }

 private:
  StatusOr<std::size_t> Choose(const Tensor& chosen) const {
    if (!is_case_) {
      MR_ASSIGN_OR_RETURN(const bool value, IsTrue(chosen));
      return value ? 1 : 0;
    }
    if (chosen.num_elements() != 1) {
      return errors::InvalidArgument("branch_index must be a scalar, but has shape ",
                                     chosen.shape().DebugString());
    }
    const int32_t number = chosen.data<int32_t>()[0];
    const auto last = static_cast<int32_t>(branches_.size()) - 1;
    return static_cast<std::size_t>(number < 0 || number > last ? last : number);
  }

  const bool is_case_;
  std::vector<LazyFunction> branches_;
};

// Calls functions one after the other. A call that ends at once is gone on with in a loop, not
// from within its callback: the stack must not grow with the number of iterations.
class IteratingKernel : public CallingKernel {
 public:
  using CallingKernel::CallingKernel;

 protected:
  // `args` holds what the next call is given.
  void GoOn(Call* call) {
    for (;;) {
      call->progress.store(kRunning, std::memory_order_relaxed);
      Start(call);
      if (call->progress.exchange(kReturned, std::memory_order_acq_rel) != kCompleted) return;
      if (!Completed(call)) return;
    }
  }
  // The function of the next call.
  virtual const RunnableFunction& Next(const Call& call) const = 0;
  // Takes the results of a call that went well; false if it was the last one, which has ended
  // the call of the kernel.
  virtual StatusOr<bool> Take(Call* call) = 0;

 private:
  enum Progress : int { kRunning, kReturned, kCompleted };

  void Start(Call* call) {
    const StepEnv& env = call->ctx->env();
    const RunnableFunction& function = Next(*call);
    call->results.resize(function.result_types().size());
    env.functions->RunAsync(function, FunctionCall::In(env, call->kernel->name()), call->args,
                            call->results, {&OnDone, call});
  }

  static void OnDone(void* arg, Status status) {
    auto* const call = static_cast<Call*>(arg);
    call->status = std::move(status);
    if (call->progress.exchange(kCompleted, std::memory_order_acq_rel) == kRunning) return;
    auto* const self = static_cast<IteratingKernel*>(call->kernel);
    if (self->Completed(call)) self->GoOn(call);
  }

  // False if the loop has ended; the call is gone then.
  bool Completed(Call* call) {
    Status status = std::exchange(call->status, OkStatus());
    CancellationManager* const cancellation = call->ctx->cancellation();
    if (status.ok() && cancellation != nullptr && cancellation->IsCancelled()) {
      status = errors::Cancelled("the loop was cancelled");
    }
    if (status.ok()) {
      const StatusOr<bool> goes_on = Take(call);
      if (goes_on.ok()) return *goes_on;
      status = goes_on.status();
    }
    End(call, std::move(status), nullptr);
    return false;
  }
};

// While: its condition and its body take turns.
class LoopKernel final : public IteratingKernel {
 public:
  explicit LoopKernel(KernelConstruction& c)
      : IteratingKernel(c),
        condition_(c.attr<FunctionName>("cond")),
        body_(c.attr<FunctionName>("body")) {}

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<const RunnableFunction*> condition = condition_.Get(ctx);
    if (!condition.ok()) return done(condition.status());
    const StatusOr<const RunnableFunction*> body = body_.Get(ctx);
    if (!body.ok()) return done(body.status());
    Call* const call = Begin(ctx, 0, done);
    call->condition = *condition;
    call->body = *body;
    call->evaluates_condition = true;
    const Status fits = Check(*call);
    if (!fits.ok()) return End(call, fits, nullptr);
    GoOn(call);
  }

 private:
  static Status Check(const Call& call) {
    if (call.condition->result_types().size() != 1) {
      return errors::InvalidArgument(
          "Expected a single scalar return value from WhileOp cond, got ",
          call.condition->result_types().size(), " tensors. The condition is function ",
          call.condition->name());
    }
    if (call.body->result_types().size() != call.body->arg_types().size()) {
      return errors::InvalidArgument("While loop body returned ", call.body->result_types().size(),
                                     " arguments. Expected: ", call.body->arg_types().size(),
                                     ". The body is function ", call.body->name());
    }
    if (call.body->result_types() != call.body->arg_types()) {
      return errors::InvalidArgument("the body of a loop gives what it takes, but function ",
                                     call.body->name(), " does not");
    }
    return OkStatus();
  }

  const RunnableFunction& Next(const Call& call) const override {
    return call.evaluates_condition ? *call.condition : *call.body;
  }
  StatusOr<bool> Take(Call* call) override {
    if (call->evaluates_condition) {
      MR_ASSIGN_OR_RETURN(const bool goes_on, IsTrue(call->results[0]));
      if (!goes_on) {
        End(call, OkStatus(), &call->args);
        return false;
      }
    } else {
      call->args.swap(call->results);
    }
    call->evaluates_condition = !call->evaluates_condition;
    return true;
  }

  const LazyFunction condition_, body_;
};

// For: the body is given a number from `start` to before `limit`, by `delta`, and the variables.
class ForKernel final : public IteratingKernel {
 public:
  explicit ForKernel(KernelConstruction& c)
      : IteratingKernel(c), body_(c.attr<FunctionName>("body")) {}

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<Numbers> numbers = NumbersOf(ctx);
    if (!numbers.ok()) return done(numbers.status());
    const StatusOr<const RunnableFunction*> body = body_.Get(ctx);
    if (!body.ok()) return done(body.status());
    Call* const call = Begin(ctx, kFirstVariable - 1, done);
    call->body = *body;
    call->args[0] = Tensor::Scalar<int32_t>(numbers->start);
    const std::size_t expected = call->args.size() - 1;
    if ((*body)->result_types().size() != expected) {
      return End(call,
                 errors::InvalidArgument("For loop body returned ", (*body)->result_types().size(),
                                         " arguments. Expected: ", expected),
                 nullptr);
    }
    const std::vector<DataType>& types = (*body)->arg_types();
    if (!std::equal((*body)->result_types().begin(), (*body)->result_types().end(),
                    types.begin() + (types.empty() ? 0 : 1), types.end())) {
      return End(call,
                 errors::InvalidArgument("the body of a loop gives what it takes, but function ",
                                         (*body)->name(), " does not"),
                 nullptr);
    }
    if (!numbers->Includes(numbers->start)) return Finish(call);
    GoOn(call);
  }

 private:
  static constexpr int kFirstVariable = 3;
  struct Numbers {
    int64_t start, limit, delta;
    bool Includes(int64_t number) const { return delta > 0 ? number < limit : number > limit; }
  };

  static StatusOr<Numbers> NumbersOf(const KernelContext& ctx) {
    int64_t numbers[kFirstVariable];
    const char* const names[kFirstVariable] = {"start", "limit", "delta"};
    for (int i = 0; i < kFirstVariable; ++i) {
      const Tensor& input = ctx.input(i);
      if (input.rank() != 0) {
        return errors::InvalidArgument(names[i], " must be a scalar, but ",
                                       input.shape().DebugString());
      }
      numbers[i] = input.scalar<int32_t>();
    }
    const auto [start, limit, delta] = numbers;
    const bool leads_there =
        delta > 0 ? start <= limit : (delta < 0 ? start >= limit : start == limit);
    if (leads_there) return Numbers{start, limit, delta};
    return errors::InvalidArgument("Invalid start/limit/delta: ", start, " ", limit, " ", delta);
  }

  void Finish(Call* call) {
    std::vector<Tensor> variables(call->args.begin() + 1, call->args.end());
    End(call, OkStatus(), &variables);
  }
  const RunnableFunction& Next(const Call& call) const override { return *call.body; }
  StatusOr<bool> Take(Call* call) override {
    MR_ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(*call->ctx));
    const int64_t next = call->args[0].scalar<int32_t>() + numbers.delta;
    std::move(call->results.begin(), call->results.end(), call->args.begin() + 1);
    if (!numbers.Includes(next)) {
      Finish(call);
      return false;
    }
    call->args[0] = Tensor::Scalar<int32_t>(static_cast<int32_t>(next));
    return true;
  }

  const LazyFunction body_;
};

}  // namespace

void RegisterFunctionalKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("RemoteCall"), MakeKernel<RemoteCallKernel>);
  for (const char* op : {"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"}) {
    registry.Register(KernelDef(op), MakeKernel<CallKernel>);
  }
  for (const char* op : {"If", "StatelessIf", "Case", "StatelessCase"}) {
    registry.Register(KernelDef(op), MakeKernel<BranchKernel>);
  }
  for (const char* op : {"While", "StatelessWhile"}) {
    registry.Register(KernelDef(op), MakeKernel<LoopKernel>);
  }
  registry.Register(KernelDef("For"), MakeKernel<ForKernel>);
  registry.Register(KernelDef("ToBool"), MakeKernel<ToBoolKernel>);
  registry.Register(KernelDef("FakeParam"), MakeKernel<FakeParamKernel>);
  RegisterMapDefunKernel(registry);
}

}  // namespace millrace
