// SPDX-License-Identifier: Apache-2.0
// Functions at a worker: what kernels see as a FunctionRunner.
#ifndef WORKER_FUNCTION_RUNTIME_H_
#define WORKER_FUNCTION_RUNTIME_H_

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "base/mutex.h"
#include "base/string_map.h"
#include "graph/function_library.h"
#include "graph/functions/function_body.h"
#include "kernels/function_runner.h"
#include "millrace/status.h"
#include "session/worker_env.h"
#include "worker/worker_graph.h"

namespace millrace {

namespace pb {
class StepStats;  // proto/step_stats.pb.h
}  // namespace pb

// The functions that one registered graph can reach, made when they are first called: body,
// inlining, placement among the devices of the session, kernels (each function has its own),
// programs. They live as long as this object. Thread-safe.
class FunctionRuntime final : public FunctionRunner {
 public:
  // What `env` points to must outlive this object. `library` may be null.
  FunctionRuntime(const WorkerEnv& env, std::shared_ptr<SessionResources> resources,
                  std::shared_ptr<const FunctionLibrary> library);
  ~FunctionRuntime() override;

  StatusOr<const RunnableFunction*> Instantiate(const FunctionName& function,
                                                const Options& options) override;
  void RunAsync(const RunnableFunction& function, const FunctionCall& call,
                std::span<const Tensor> args, std::span<Tensor> results,
                DoneCallback done) override;
  StatusOr<GraphFunction> MakeGraph(const pb::GraphDef& graph, Device* device) override;
  void ExportFunctions(const AttrMap& attrs, pb::FunctionDefLibrary* library) const override;
  Device* FindDevice(std::string_view name) const override;

  // A body that is no function of the library, each of its nodes placed on a device of the session:
  // a part of a function that spans tasks, or a single op. It must be gone before this object.
  StatusOr<std::unique_ptr<RunnableFunction>> MakePlaced(const FunctionBody& body);
  // As RunAsync, with what the sends and receives of such a body meet in; null: with one of its
  // own. An error aborts it. What its nodes did is added to `stats`, which may be null, before
  // `done` is called.
  void RunPlaced(const RunnableFunction& function, const FunctionCall& call, Rendezvous* rendezvous,
                 std::span<const Tensor> args, std::span<Tensor> results, DoneCallback done,
                 pb::StepStats* stats = nullptr);

 private:
  class Body;    // a function that is ready to run
  struct Frame;  // one call of it

  StatusOr<std::unique_ptr<Body>> Make(const FunctionName& function, const Options& options);
  Status Place(DataflowGraph* graph, const Options& options) const;
  StatusOr<std::unique_ptr<Body>> Compile(const FunctionBody& body, bool is_part);

  const WorkerEnv env_;
  const std::shared_ptr<SessionResources> resources_;
  const std::shared_ptr<const FunctionLibrary> library_;
  std::atomic<int64_t> next_name_{0};
  Mutex mu_;
  StringMap<std::unique_ptr<Body>> bodies_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Body> graph_;  // what MakeGraph made this runtime for; null for others
};

}  // namespace millrace

#endif  // WORKER_FUNCTION_RUNTIME_H_
