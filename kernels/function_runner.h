// SPDX-License-Identifier: Apache-2.0
// Running functions from kernels: calls, branches, loops, datasets that map. Implemented by
// session/function_runtime; a step has its runner in StepEnv::functions.
#ifndef KERNELS_FUNCTION_RUNNER_H_
#define KERNELS_FUNCTION_RUNNER_H_

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "kernels/kernel_context.h"
#include "millrace/attr_value.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"

namespace millrace {

namespace pb {
class FunctionDefLibrary;  // proto/function.pb.h
class GraphDef;            // proto/graph.pb.h
}  // namespace pb

// A function that is ready to run: placed, cut and compiled. Constant; lives as long as its
// runner.
class RunnableFunction {
 public:
  virtual ~RunnableFunction() = default;
  const std::string& name() const { return name_; }
  const std::vector<DataType>& arg_types() const { return arg_types_; }
  const std::vector<DataType>& result_types() const { return result_types_; }

 protected:
  RunnableFunction(std::string name, std::vector<DataType> arg_types,
                   std::vector<DataType> result_types)
      : name_(std::move(name)),
        arg_types_(std::move(arg_types)),
        result_types_(std::move(result_types)) {}

 private:
  const std::string name_;
  const std::vector<DataType> arg_types_, result_types_;
};

// What a call gets from whoever makes it; everything outlives the call.
struct FunctionCall {
  // Of the step that the kernel runs in: an error in the function ends the step.
  // `node` is the one that calls.
  static FunctionCall In(const StepEnv& env, std::string_view node) {
    return {
        env.step_id, env.cancellation, env.step_container, env.collective, env.session_state, &env,
        node};
  }

  int64_t step_id = 0;
  // Ends the call early; cancelled too if the function fails, so that all of it ends. A dataset
  // brings one of its own for each call or iterator.
  CancellationManager* cancellation = nullptr;
  std::string_view step_container;  // resources that die with the step
  CollectiveExecutor* collective = nullptr;
  void* session_state = nullptr;
  // Whoever calls, if it runs in a step: so that functions which call each other without end
  // are found out.
  const StepEnv* caller = nullptr;
  std::string_view node;  // of the caller; "" if it does not run in a step
};

// Thread-safe. Reference counted so that what outlives its step, an iterator, can hold on to it:
// RefPtr<FunctionRunner>::Share(ctx.env().functions).
class FunctionRunner : public RefCounted {
 public:
  struct Options {
    Device* device = nullptr;    // of the caller: what asks for no device runs there
    bool on_one_device = false;  // all of it runs there
    bool gradient = false;       // the derivative of the function instead
  };
  // Ready to run, made at the first call with these arguments. Not from the constructor of a
  // kernel. NotFound: there is no such function; InvalidArgument and others: it cannot be made,
  // placed or compiled, with the node.
  virtual StatusOr<const RunnableFunction*> Instantiate(const FunctionName& function,
                                                        const Options& options) = 0;

  // Runs the function in this thread as far as it goes without waiting. `results` are set;
  // they and `args` must stay until `done` was called, which may be before
  // this returns. A warm call of a function on one device allocates nothing. InvalidArgument if
  // the number or types of arguments or results are wrong; ResourceExhausted if functions call
  // each other too deep; else the first error of a node within, with its name.
  virtual void RunAsync(const RunnableFunction& function, const FunctionCall& call,
                        std::span<const Tensor> args, std::span<Tensor> results,
                        DoneCallback done) = 0;
  // Waits for it. Only from threads that may block: never from within ComputeAsync.
  Status Run(const RunnableFunction& function, const FunctionCall& call,
             std::span<const Tensor> args, std::span<Tensor> results);

  // A graph that came as data, made into a function without arguments that gives what its nodes
  // _Retval take, all of it on `device`. With a runner of its own, which has the functions of the
  // graph alone. InvalidArgument and NotFound for what is wrong with the graph; PermissionDenied
  // if the task does not let in what it does.
  struct GraphFunction {
    RefPtr<FunctionRunner> runner;
    const RunnableFunction* function = nullptr;
  };
  virtual StatusOr<GraphFunction> MakeGraph(const pb::GraphDef& graph, Device* device) = 0;
  // Adds the functions that can be reached from these attributes to `library`, the other way.
  virtual void ExportFunctions(const AttrMap& attrs, pb::FunctionDefLibrary* library) const = 0;
  // A device that functions may run on, by its full name; null if there is none.
  virtual Device* FindDevice(std::string_view name) const = 0;
};

// A function that a kernel names in an attribute, found when it is first called: functions may
// call each other in circles, so that a kernel's constructor cannot do it. Only for kernels that
// belong to one graph: all with functions among their attributes do. Thread-safe.
class LazyFunction {
 public:
  LazyFunction() = default;
  explicit LazyFunction(FunctionName function, bool on_one_device = false, bool gradient = false)
      : function_(std::move(function)), on_one_device_(on_one_device), gradient_(gradient) {}
  LazyFunction(LazyFunction&& other) noexcept
      : function_(std::move(other.function_)),
        on_one_device_(other.on_one_device_),
        gradient_(other.gradient_) {}

  // What Instantiate says, kept once it is there. NotFound where there are none.
  StatusOr<const RunnableFunction*> Get(const KernelContext& ctx) const;

 private:
  FunctionName function_;
  bool on_one_device_ = false, gradient_ = false;
  mutable std::atomic<const RunnableFunction*> found_{nullptr};
};

}  // namespace millrace

#endif  // KERNELS_FUNCTION_RUNNER_H_
