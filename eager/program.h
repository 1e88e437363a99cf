// SPDX-License-Identifier: Apache-2.0
// What an eager context runs in this task: a single op, a function, or a part of one, ready to run
// many times.
#ifndef EAGER_PROGRAM_H_
#define EAGER_PROGRAM_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "graph/function_library.h"
#include "graph/functions/function_body.h"
#include "kernels/function_runner.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "ops/attr_map.h"
#include "rendezvous/rendezvous.h"
#include "session/worker_env.h"
#include "worker/function_runtime.h"
#include "worker/worker_graph.h"

namespace millrace {

// What programs are made with. What it points to outlives them.
struct ProgramEnv {
  const WorkerEnv* worker = nullptr;
  std::shared_ptr<SessionResources> resources;
  std::function<Status(const DataflowGraph&)> admit;  // may be null: everything is admitted
};

// Constant once made. Thread-safe.
class EagerProgram {
 public:
  // `body` is placed on devices of the task.
  static StatusOr<std::shared_ptr<const EagerProgram>> Make(const ProgramEnv& env,
                                                            const FunctionBody& body);

  // Of the op or function.
  const std::string& name() const { return function_->name(); }
  const std::vector<DataType>& arg_types() const { return function_->arg_types(); }
  const std::vector<DataType>& result_types() const { return function_->result_types(); }
  // Whether a node may keep something between runs, or in the run's container.
  bool is_stateful() const { return is_stateful_; }
  // Whether its own nodes send or receive.
  bool communicates() const { return communicates_; }
  // The devices it runs on.
  std::span<Device* const> devices() const { return devices_; }

  // As FunctionRuntime::RunPlaced.
  void RunAsync(const FunctionCall& call, Rendezvous* rendezvous, std::span<const Tensor> args,
                std::span<Tensor> results, DoneCallback done,
                pb::StepStats* stats = nullptr) const {
    runtime_->RunPlaced(*function_, call, rendezvous, args, results, done, stats);
  }

 private:
  EagerProgram() = default;

  RefPtr<FunctionRuntime> runtime_;
  std::unique_ptr<RunnableFunction> function_;  // goes before the runtime
  std::vector<Device*> devices_;
  bool is_stateful_ = false;
  bool communicates_ = false;
};

// The body whose one node is the op `name` on `device`, between its arguments and results.
// NotFound: there is no such op; InvalidArgument: attributes that do not fit it.
StatusOr<std::unique_ptr<FunctionBody>> MakeOpBody(
    const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
    const std::string& name, AttrMap attrs, const std::string& device);

}  // namespace millrace

#endif  // EAGER_PROGRAM_H_
