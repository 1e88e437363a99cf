// SPDX-License-Identifier: Apache-2.0
#include "worker/function_runtime.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/idle_list.h"
#include "base/status_macros.h"
#include "executor/executor.h"
#include "executor/stats/step_stats.h"
#include "graph/graph_def_io.h"
#include "graph/lowering/function_gradient.h"
#include "graph/lowering/lower_functions.h"
#include "graph/prune.h"
#include "kernels/kernel_registry.h"
#include "placer/placer.h"
#include "rendezvous/device_rendezvous.h"
#include "rendezvous/rendezvous.h"
#include "worker/function_env.h"
#include "worker/placer_kernels.h"

namespace millrace {
namespace {

// Deeper calls would use up the stack of the thread.
constexpr int kMaxCallDepth = 500;

const Tensor* NoArgs() {
  static const auto* const none = new Tensor;
  return none;
}

std::vector<DataType> ValueTypes(std::vector<DataType> types) {
  for (DataType& type : types) type = BaseType(type);
  return types;
}

// The nodes _Retval of a graph that came as data, by index.
StatusOr<std::vector<Node*>> ResultsOf(const DataflowGraph& graph) {
  std::vector<Node*> results;
  for (Node* node : graph.OpNodes()) {
    if (node->type() == "_Arg") {
      return errors::InvalidArgument("the graph takes an argument, ", node->name(),
                                     ": one that is data can have none");
    }
    if (node->type() == "_Retval") results.push_back(node);
  }
  std::vector<Node*> by_index(results.size(), nullptr);
  for (Node* node : results) {
    MR_ASSIGN_OR_RETURN(const int64_t index, node->attrs().Get<int64_t>("index"));
    const bool fits = index >= 0 && index < static_cast<int64_t>(results.size());
    if (!fits || by_index[static_cast<std::size_t>(index)] != nullptr) {
      return errors::InvalidArgument("the graph has ", results.size(), " results, and ",
                                     node->name(), " is number ", index, " of them");
    }
    by_index[static_cast<std::size_t>(index)] = node;
  }
  if (by_index.empty()) {
    return errors::InvalidArgument("the graph gives nothing: it has no node of type _Retval");
  }
  return by_index;
}

}  // namespace

// One call under way; used again and again by its function.
struct FunctionRuntime::Frame {
  struct PartRun {
    Frame* frame = nullptr;
    FunctionEnv env;
    std::optional<StepStatsCollector> stats;
  };
  explicit Frame(const Body* of);
  // Of a PartRun.
  static void EndPart(void* arg, Status status);

  const Body* const body;
  Frame* next_idle = nullptr;
  std::vector<PartRun> runs;  // by part of the body
  RefPtr<Rendezvous> rendezvous;
  std::span<Tensor> results;
  DoneCallback done;
  pb::StepStats* recorded = nullptr;  // null: nobody asked for what the nodes did
  std::atomic<int> pending{0};
  Mutex mu;
  Status error ABSL_GUARDED_BY(mu);
};

class FunctionRuntime::Body final : public RunnableFunction {
 public:
  Body(const FunctionBody& body, std::shared_ptr<WorkerGraph> graph)
      : RunnableFunction(body.name, ValueTypes(body.arg_types()), ValueTypes(body.result_types())),
        graph_(std::move(graph)) {}

  const std::vector<WorkerGraph::Part>& parts() const { return graph_->parts(); }

  Frame* TakeFrame() const {
    Frame* const frame = idle_.Take();
    return frame != nullptr ? frame : new Frame(this);
  }
  void KeepFrame(Frame* frame) const { idle_.Keep(frame); }

  Status Check(std::span<const Tensor> args, std::span<const Tensor> results) const {
    if (args.size() != arg_types().size() || results.size() != result_types().size()) {
      return errors::InvalidArgument(
          "function ", name(), " takes ", arg_types().size(), " arguments and gives ",
          result_types().size(), " results; the call has ", args.size(), " and ", results.size());
    }
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (args[i].dtype() == arg_types()[i]) continue;
      return errors::InvalidArgument("Expects arg[", i, "] of function ", name(), " to be ",
                                     DataTypeName(arg_types()[i]), " but ",
                                     DataTypeName(args[i].dtype()), " is provided");
    }
    return OkStatus();
  }

 private:
  const std::shared_ptr<WorkerGraph> graph_;
  mutable IdleList<Frame, &Frame::next_idle> idle_;
};

FunctionRuntime::Frame::Frame(const Body* of) : body(of), runs(of->parts().size()) {
  for (PartRun& run : runs) run.frame = this;
}

// The last part that ends tells the caller.
void FunctionRuntime::Frame::EndPart(void* arg, Status status) {
  auto* const run = static_cast<Frame::PartRun*>(arg);
  Frame* const owner = run->frame;
  if (!status.ok()) {
    MutexLock lock(&owner->mu);
    // What follows from the first error says less than it does.
    if (owner->error.ok()) owner->error = std::move(status);
  }
  if (owner->pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Status first;
  {
    MutexLock lock(&owner->mu);
    first = std::exchange(owner->error, OkStatus());
  }
  for (std::size_t r = 0; first.ok() && r < owner->results.size(); ++r) {
    if (owner->results[r].dtype() == DataType::kInvalid) {
      first = errors::InvalidArgument("Retval[", r, "] of function ", owner->body->name(),
                                      " does not have value: it lies on a branch that was "
                                      "not taken");
    }
  }
  if (owner->recorded != nullptr) {
    for (PartRun& part : owner->runs) part.stats->MoveTo(owner->recorded);
  }
  owner->rendezvous.reset();
  const DoneCallback finished = owner->done;
  owner->body->KeepFrame(owner);
  finished(std::move(first));
}

FunctionRuntime::FunctionRuntime(const WorkerEnv& env, std::shared_ptr<SessionResources> resources,
                                 std::shared_ptr<const FunctionLibrary> library)
    : env_(env), resources_(std::move(resources)), library_(std::move(library)) {}

FunctionRuntime::~FunctionRuntime() = default;

StatusOr<const RunnableFunction*> FunctionRuntime::Instantiate(const FunctionName& function,
                                                               const Options& options) {
  const std::string key = StrCat(options.device->name(), options.on_one_device ? " one " : " ",
                                 options.gradient ? "d " : "", FunctionKey(function));
  // Nothing that is called from here makes functions itself.
  MutexLock lock(&mu_);
  const auto known = bodies_.find(key);
  if (known != bodies_.end()) return known->second.get();
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Body> made, Make(function, options));
  return bodies_.emplace(key, std::move(made)).first->second.get();
}

StatusOr<std::unique_ptr<FunctionRuntime::Body>> FunctionRuntime::Make(const FunctionName& function,
                                                                       const Options& options) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<FunctionBody> body,
                      options.gradient ? InstantiateGradient(*env_.ops, library_, function)
                                       : InstantiateFunction(*env_.ops, library_, function));
  MR_RETURN_IF_ERROR(LowerBody(nullptr, body.get()));
  const auto in_function = [&](const Status& status) {
    return Annotate(status, StrCat("\n\t In function ", function.name));
  };
  if (const Status placed = Place(body->graph.get(), options); !placed.ok()) {
    return in_function(placed);
  }
  StatusOr<std::unique_ptr<Body>> made = Compile(*body, /*is_part=*/false);
  if (!made.ok()) return in_function(made.status());
  return made;
}

StatusOr<std::unique_ptr<RunnableFunction>> FunctionRuntime::MakePlaced(const FunctionBody& body) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Body> made, Compile(body, /*is_part=*/true));
  return std::unique_ptr<RunnableFunction>(std::move(made));
}

StatusOr<std::unique_ptr<FunctionRuntime::Body>> FunctionRuntime::Compile(const FunctionBody& body,
                                                                          bool is_part) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<WorkerGraph> graph,
                      WorkerGraph::MakeBody(
                          env_, resources_, *body.graph,
                          [this](std::string_view prefix) {
                            return StrCat(prefix, "_F",
                                          next_name_.fetch_add(1, std::memory_order_relaxed));
                          },
                          /*control_flow_added=*/is_part));
  return std::make_unique<Body>(body, std::move(graph));
}

Status FunctionRuntime::Place(DataflowGraph* graph, const Options& options) const {
  const std::string& caller = options.device->name();
  if (options.on_one_device || resources_->devices.size() == 1) {
    for (Node* node : graph->OpNodes()) {
      if (!options.on_one_device && !node->requested_device().empty()) {
        MR_ASSIGN_OR_RETURN(DeviceName wanted, DeviceName::Parse(node->requested_device()));
        wanted.type.reset();  // there is only this one
        wanted.id.reset();
        if (!wanted.IsCompatibleWith(options.device->parsed_name())) {
          return errors::InvalidArgument("{{node ", node->name(), "}} asks for ",
                                         node->requested_device(),
                                         ", but a function that is called while a step runs "
                                         "cannot leave its task, ",
                                         env_.task);
        }
      }
      node->set_assigned_device(caller);
    }
    return OkStatus();
  }
  for (Node* node : graph->OpNodes()) {
    const std::string& type = node->type();
    if (type == "_Arg" || type == "_Retval") node->set_assigned_device(caller);
  }
  PlacerInput input;
  for (const Device* device : resources_->devices) {
    input.devices.push_back({device->name(), device->type(), true});
  }
  SetKernels(env_.kernels, &input);
  input.default_local_device = caller;
  input.allow_soft_placement = true;
  return millrace::Place(graph, input, nullptr);
}

StatusOr<FunctionRunner::GraphFunction> FunctionRuntime::MakeGraph(const pb::GraphDef& graph,
                                                                   Device* device) {
  FunctionBody body;
  body.name = "a graph that is data";
  body.graph = std::make_unique<DataflowGraph>(env_.ops);
  MR_RETURN_IF_ERROR(ImportGraphDef({.internal_names = true}, graph, body.graph.get()));
  if (env_.admit != nullptr) MR_RETURN_IF_ERROR(env_.admit(*body.graph));
  MR_ASSIGN_OR_RETURN(body.results, ResultsOf(*body.graph));
  PruneTo(body.results, body.graph.get());
  body.graph->FixSourceAndSink();
  const std::shared_ptr<const FunctionLibrary> library = body.graph->library();
  MR_RETURN_IF_ERROR(LowerBody(nullptr, &body));
  MR_RETURN_IF_ERROR(Place(body.graph.get(), {.device = device, .on_one_device = true}));
  auto made = MakeRef<FunctionRuntime>(env_, resources_, library);
  MR_ASSIGN_OR_RETURN(made->graph_, made->Compile(body, /*is_part=*/false));
  const RunnableFunction* const function = made->graph_.get();
  return GraphFunction{std::move(made), function};
}

void FunctionRuntime::ExportFunctions(const AttrMap& attrs, pb::FunctionDefLibrary* library) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : attrs) AddMentioned(value, &names);
  const auto reached = library_ == nullptr ? nullptr : library_->Reachable(names);
  if (reached != nullptr) reached->ToProto(library);
}

Device* FunctionRuntime::FindDevice(std::string_view name) const {
  return resources_->FindDevice(name);
}

void FunctionRuntime::RunAsync(const RunnableFunction& function, const FunctionCall& call,
                               std::span<const Tensor> args, std::span<Tensor> results,
                               DoneCallback done) {
  RunPlaced(function, call, nullptr, args, results, done);
}

void FunctionRuntime::RunPlaced(const RunnableFunction& function, const FunctionCall& call,
                                Rendezvous* rendezvous, std::span<const Tensor> args,
                                std::span<Tensor> results, DoneCallback done,
                                pb::StepStats* stats) {
  const auto& body = static_cast<const Body&>(function);
  if (Status status = body.Check(args, results); !status.ok()) return done(std::move(status));
  const auto* const caller = static_cast<const FunctionEnv*>(call.caller);
  const int depth = caller != nullptr ? caller->depth + 1 : 1;
  if (depth > kMaxCallDepth) {
    return done(errors::ResourceExhausted("functions call each other more than ", kMaxCallDepth,
                                          " deep; the last one is ", body.name()));
  }
  const std::vector<WorkerGraph::Part>& parts = body.parts();
  if (parts.empty()) return done(OkStatus());
  for (Tensor& result : results) result = Tensor();
  Frame* const frame = body.TakeFrame();
  frame->results = results;
  frame->done = done;
  frame->recorded = stats;
  frame->pending.store(static_cast<int>(parts.size()), std::memory_order_relaxed);
  // An accelerator passes values between its own memory and the host's by it, too.
  DeviceWork* const work = call.caller == nullptr ? nullptr : WorkOf(call.caller->rendezvous);
  if (rendezvous != nullptr) {
    frame->rendezvous = RefPtr<Rendezvous>::Share(rendezvous);
  } else if (work != nullptr) {
    frame->rendezvous =
        MakeRef<DeviceRendezvous>(NewLocalRendezvous(), RefPtr<DeviceWork>::Share(work));
  } else if (parts.size() > 1) {
    frame->rendezvous = NewLocalRendezvous();
  }
  ThreadPool* const pool = call.caller != nullptr ? call.caller->inter_op_pool : env_.inter_op_pool;
  const bool has_threads = pool != nullptr && pool->num_threads() > 0;
  // Nothing of the frame is touched after the last part was started: the call may have ended.
  const std::size_t num_parts = parts.size();
  for (std::size_t i = 0; i < num_parts; ++i) {
    Frame::PartRun& run = frame->runs[i];
    FunctionEnv& env = run.env;
    env.step_id = call.step_id;
    env.rendezvous = frame->rendezvous.get();
    env.cancellation = call.cancellation;
    env.step_container = call.step_container;
    env.collective = call.collective;
    env.functions = this;
    env.inter_op_pool = pool;
    env.call_args = args.data() != nullptr ? args : std::span(NoArgs(), 0);
    env.call_results = results;
    env.session_state = call.session_state;
    env.depth = depth;
    env.stats = nullptr;
    if (stats != nullptr) {
      env.stats = &run.stats.emplace(parts[i].device->name());
    } else if (caller != nullptr && caller->stats != nullptr) {
      env.stats = &run.stats.emplace(caller->stats, call.node, parts[i].device->name());
    }
    ExecutorArgs executor;
    executor.stats = env.stats;
    executor.env = &env;
    executor.pool = pool;
    executor.memory = MemoryTracker::Current();  // of the step that the caller runs in
    executor.caller_runs = i + 1 == num_parts || !has_threads;
    Executor(parts[i].program.get()).RunAsync(executor, {&Frame::EndPart, &run});
  }
}

}  // namespace millrace
