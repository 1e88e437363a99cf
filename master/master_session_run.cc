// SPDX-License-Identifier: Apache-2.0
// The runs of a session: from a request to a plan, from a plan to a step.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "graph/graph_def_io.h"
#include "master/collective_steps.h"
#include "master/dump/cost_graph.h"
#include "master/feed_fetch.h"
#include "master/master_session.h"
#include "master/run_options.h"
#include "master/step_errors.h"
#include "session/async_join.h"

namespace millrace {
namespace {

// Step ids have 57 bits, as a TensorFlow master's.
constexpr uint64_t kStepMask = (uint64_t{1} << 57) - 1;

// Steele, Lea and Flood's SplitMix64: a bijection, so ids of one session do not repeat.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Whether this step is the one that brings the plan's device parts for the dump.
bool TakesDeviceTurn(const Plan& plan) {
  return plan.dump != nullptr && plan.dump->TakeDeviceTurn();
}

void DumpDeviceParts(Step* step) {
  std::vector<pb::GraphDef> parts;
  for (const Step::Part& part : step->parts()) {
    parts.insert(parts.end(), part.result.partition_graphs.begin(),
                 part.result.partition_graphs.end());
  }
  step->plan().dump->AddDeviceParts(std::move(parts));
}

void CollectMetadata(Step* step, bool partition_graphs, pb::RunMetadata* metadata) {
  for (Step::Part& part : step->parts()) {
    if (part.result.step_stats.dev_stats_size() > 0) {
      metadata->mutable_step_stats()->MergeFrom(part.result.step_stats);
    }
    if (!partition_graphs) continue;
    for (pb::GraphDef& graph : part.result.partition_graphs) {
      *metadata->add_partition_graphs() = std::move(graph);
    }
  }
}

// The graph of the plan as its device runs it, for the metadata and for the dump.
Status ExportDirect(const Plan& plan, bool to_metadata, bool dump, pb::RunMetadata* metadata) {
  pb::GraphDef graph;
  MR_RETURN_IF_ERROR(plan.direct->graph().Export(&graph));
  if (to_metadata) *metadata->add_partition_graphs() = graph;
  if (dump) plan.dump->AddDeviceParts({std::move(graph)});
  return OkStatus();
}

std::vector<std::string> Names(const std::vector<std::pair<std::string, Tensor>>& feeds) {
  std::vector<std::string> names;
  for (const auto& feed : feeds) names.push_back(feed.first);
  return names;
}

}  // namespace

int64_t MasterSession::NewStepId() {
  const uint64_t count = next_step_.fetch_add(0x9e3779b97f4a7815ull, std::memory_order_relaxed);
  return static_cast<int64_t>(Mix(count) & kStepMask);
}

Step::Limits MasterSession::LimitsOf(const CallOptions& options, const pb::RunOptions& run_options,
                                     int64_t request_id) const {
  Step::Limits limits;
  limits.request_id = request_id;
  limits.deadline = options.deadline;
  limits.caller = options.cancellation;
  const int64_t timeout_ms = run_options.timeout_in_ms() > 0 ? run_options.timeout_in_ms()
                                                             : config_.operation_timeout_in_ms();
  if (timeout_ms > 0) {
    const Deadline deadline = StepDeadline(std::chrono::milliseconds(timeout_ms));
    if (deadline <= limits.deadline) {
      limits.deadline = deadline;
      limits.timeout_ms = timeout_ms;
    }
  }
  return limits;
}

bool MasterSession::AddStep(Step* step) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  steps_.insert(step);
  return true;
}

void MasterSession::RemoveStep(Step* step) {
  MutexLock lock(&mu_);
  steps_.erase(step);
}

void MasterSession::GetPlan(const Step::Limits& limits, RunSignature signature,
                            PlanCache::Ready ready) {
  if (dump_ != nullptr) signature.keeps_graphs = true;
  plans_.Get(
      std::move(signature), {limits.deadline, limits.caller, limits.request_id},
      [this](RunSignature wanted, std::shared_ptr<PlanCache::Attempt> attempt,
             PlanCache::Ready built) {
        BuildPlan(std::move(wanted), std::move(attempt), std::move(built));
      },
      std::move(ready));
}

// All that wait may have left before it is over: it is a call of its own.
void MasterSession::BuildPlan(RunSignature signature, std::shared_ptr<PlanCache::Attempt> attempt,
                              PlanCache::Ready built_plan) {
  if (!Enter()) return built_plan(ClosedError());
  const CancellationManager::Token token = closing_.NextToken();
  const bool closes = !closing_.RegisterCallback(
      token, [this, attempt] { attempt->cancellation.StartCancel(closing_.reason()); });
  if (closes) attempt->cancellation.StartCancel(ClosedError());
  PlanCache::Ready ready = [this, self = shared_from_this(), token,
                            built_plan =
                                std::move(built_plan)](StatusOr<std::shared_ptr<Plan>> plan) {
    // Not the waiting form: this may be running inside of that cancellation.
    (void)closing_.TryDeregisterCallback(token);
    built_plan(std::move(plan));
    Leave();
  };
  if (attempt->cancellation.IsCancelled()) return ready(attempt->cancellation.reason());
  std::unique_ptr<DataflowGraph> graph;
  graph_->Read([&](const DataflowGraph& full) { graph = CopyForRun(signature, full); });
  StatusOr<std::shared_ptr<Plan>> built =
      millrace::BuildPlan(std::move(graph), plan_context_, std::move(signature));
  if (!built.ok()) return ready(built.status());
  std::shared_ptr<Plan> plan = *std::move(built);
  plan->session_handle = handle_;
  auto join = AsyncJoin::Make(
      static_cast<int>(plan->parts.size()),
      [this, plan, ready = std::move(ready)](const Status& status) {
        if (status.ok()) {
          FindDirectGraph(plan.get());
          return ready(plan);
        }
        for (const PlanPart& part : plan->parts) {
          if (part.graph_handle.empty()) continue;
          part.worker->DeregisterGraphAsync(
              {.deadline = DeadlineAfter(std::chrono::seconds(10))}, handle_, part.graph_handle,
              [](const Status&) {});  // the first error is told, and the session goes on
        }
        ready(status);
      });
  for (PlanPart& part : plan->parts) {
    RegisterGraphArgs args;
    if (RunsDirectly(*plan, part)) {
      args.direct = DirectIo{plan->signature.feeds, plan->signature.fetches};
    }
    args.session_handle = handle_;
    args.graph = std::move(part.graph);
    args.graph_options = config_.graph_options();
    args.config = config_;
    args.keep_graph = plan->signature.keeps_graphs;
    args.collective_graph_key = plan->collective_graph_key;
    {
      MutexLock lock(&attempt->mu);
      attempt->asked.push_back(part.task);
    }
    part.worker->RegisterGraphAsync({.cancellation = &attempt->cancellation}, std::move(args),
                                    &part.graph_handle,
                                    [join, attempt, task = part.task](Status status) {
                                      {
                                        MutexLock lock(&attempt->mu);
                                        std::erase(attempt->asked, task);
                                      }
                                      join->Done(std::move(status));
                                    });
  }
}

bool MasterSession::RunsDirectly(const Plan& plan, const PlanPart& part) const {
  return plan.parts.size() == 1 && part.task == cluster_.client_task && !plan.signature.partial &&
         plan.collective_graph_key == 0 && part.worker->OffersDirectGraphs();
}

void MasterSession::FindDirectGraph(Plan* plan) {
  if (plan->parts.size() != 1 || !RunsDirectly(*plan, plan->parts[0])) return;
  const PlanPart& part = plan->parts[0];
  auto graph = part.worker->FindDirectGraph(handle_, part.graph_handle);
  if (graph == nullptr) return;
  plan->direct = std::make_shared<DirectPlan>(part.task, std::move(graph));
}

MasterSession::Done MasterSession::WithCosts(RunStepArgs* args, RunStepResult* result, Done done) {
  pb::RunOptions& options = args->options;
  const bool traces = options.trace_level() != pb::RunOptions::NO_TRACE;
  const bool gives_graphs = options.output_partition_graphs();
  if (!traces) options.set_trace_level(pb::RunOptions::SOFTWARE_TRACE);
  options.set_output_partition_graphs(true);
  return [result, traces, gives_graphs, done = std::move(done)](Status status) {
    AddCostGraph(&result->metadata);
    if (!traces) result->metadata.clear_step_stats();
    if (!gives_graphs) result->metadata.clear_partition_graphs();
    done(std::move(status));
  };
}

void MasterSession::Run(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                        Done done) {
  if (!args->partial_run_handle.empty()) return RunPart(options, args, result, std::move(done));
  if (Status status = CheckRunOptions(args->options, config_, *task_); !status.ok())
    return done(std::move(status));
  if (config_.graph_options().build_cost_model() > 0 &&
      WantsCosts(config_.graph_options(), num_runs_.fetch_add(1, std::memory_order_relaxed))) {
    done = WithCosts(args, result, std::move(done));
  }
  if (!Enter()) return done(ClosedError());
  const Step::Limits limits = LimitsOf(options, args->options, args->request_id);
  const auto feed = [args](int i) -> const Tensor& { return args->feeds[i].second; };
  const bool keeps_graphs = args->options.output_partition_graphs();
  const int64_t graph_key = args->options.experimental().collective_graph_key();
  if (auto known = keeps_graphs
                       ? nullptr
                       : plans_.Find(args->feeds, args->fetches, args->targets, graph_key)) {
    return StartStep(std::move(known), limits, args->options, feed, result, std::move(done));
  }
  auto binding = std::make_shared<Binding>();
  StatusOr<RunSignature> signature =
      MakeSignature(Names(args->feeds), args->fetches, args->targets, binding.get());
  if (!signature.ok()) {
    done(signature.status());
    return Leave();
  }
  signature->keeps_graphs = keeps_graphs;
  signature->collective_graph_key = graph_key;
  GetPlan(limits, *std::move(signature),
          [this, self = shared_from_this(), binding, limits, args, feed, result, keeps_graphs,
           done = std::move(done)](StatusOr<std::shared_ptr<Plan>> plan) {
            if (!plan.ok()) {
              done(plan.status());
              return Leave();
            }
            binding->plan = *std::move(plan);
            if (!keeps_graphs) plans_.Remember(binding);
            StartStep(binding, limits, args->options, feed, result, done);
          });
}

template <typename Feed>
void MasterSession::StartStep(std::shared_ptr<const Binding> binding, const Step::Limits& limits,
                              const pb::RunOptions& run_options, const Feed& feed,
                              RunStepResult* result, Done done) {
  if (binding->plan->direct != nullptr) {
    return StartDirect(std::move(binding), limits, run_options, feed, result, std::move(done));
  }
  RefPtr<Step> step = binding->plan->NewStep();
  for (size_t i = 0; i < binding->feeds.size(); ++i) {
    step->SetFeed(binding->feeds[i], feed(static_cast<int>(i)));
  }
  const bool partition_graphs = run_options.output_partition_graphs();
  const bool dump = TakesDeviceTurn(*binding->plan);
  for (Step::Part& part : step->parts()) {
    // As TensorFlow's masters and workers understand it: costs are what the host sees.
    part.args.record_timeline = run_options.trace_level() >= pb::RunOptions::HARDWARE_TRACE;
    part.args.record_costs = run_options.trace_level() == pb::RunOptions::SOFTWARE_TRACE;
    part.args.record_partition_graphs = partition_graphs || dump;
    part.args.inter_op_thread_pool = run_options.inter_op_thread_pool();
  }
  if (!AddStep(step.get())) {
    done(ClosedError());
    return Leave();
  }
  Step* const running = step.get();
  const int64_t graph_key = binding->plan->collective_graph_key;
  if (graph_key != 0 && task_->collectives == nullptr) {
    RemoveStep(running);
    done(errors::Unimplemented("collectives, by the master at ", cluster_.client_task));
    return Leave();
  }
  const Done failed = graph_key == 0 ? Done() : done;
  auto finished = [this, self = shared_from_this(), running, result, binding = std::move(binding),
                   partition_graphs, dump, done = std::move(done)](Status status) {
    result->fetches.clear();
    if (status.ok()) {
      for (int i : binding->fetches) result->fetches.push_back(running->fetch(i));
    }
    if (dump) DumpDeviceParts(running);
    CollectMetadata(running, partition_graphs, &result->metadata);
    RemoveStep(running);
    const Plan& plan = running->plan();
    const int64_t step_id = running->step_id();
    // One task: its cleanup is a call, not a message, and comes before the answer.
    const bool alone = plan.parts.size() == 1 && plan.parts[0].task == cluster_.client_task;
    if (alone) plan.CleanupStep(step_id);
    if (plan.collective_graph_key != 0) {
      task_->collectives->RetireStepId(plan.collective_graph_key, step_id, status.ok());
    }
    done(TellAddresses(task_->workers, std::move(status)));
    if (!alone) plan.CleanupStep(step_id);
    Leave();
  };
  if (graph_key == 0) return running->Run(NewStepId(), limits, std::move(finished));
  AgreeOnStepId(task_->collectives, CollectiveLeader(), graph_key, limits, &closing_,
                [this, self = shared_from_this(), step, limits, finished = std::move(finished),
                 failed = std::move(failed)](StatusOr<int64_t> id) {
                  if (id.ok()) return step->Run(*id, limits, finished);
                  RemoveStep(step.get());
                  failed(TellAddresses(task_->workers, id.status()));
                  Leave();
                });
}

std::string MasterSession::CollectiveLeader() const {
  return task_->collectives->ChooseLeader(config_.experimental().collective_group_leader(),
                                          cluster_.client_task);
}

template <typename Feed>
void MasterSession::StartDirect(std::shared_ptr<const Binding> binding, const Step::Limits& limits,
                                const pb::RunOptions& run_options, const Feed& feed,
                                RunStepResult* result, Done done) {
  RefPtr<DirectStep> step = DirectPlan::NewStep(binding->plan->direct);
  for (size_t i = 0; i < binding->feeds.size(); ++i) {
    step->feeds()[binding->feeds[i]] = feed(static_cast<int>(i));
  }
  step->SetLimits(limits);
  bool closed;
  {
    MutexLock lock(&mu_);
    closed = closed_;
    if (!closed) AddDirect(step.get());
  }
  if (closed) {
    done(ClosedError());
    return Leave();
  }
  const Plan& plan = *binding->plan;
  Status exported;
  if (const bool dump = TakesDeviceTurn(plan); dump || run_options.output_partition_graphs()) {
    exported = ExportDirect(plan, run_options.output_partition_graphs(), dump, &result->metadata);
  }
  step->request() = {shared_from_this(), std::move(binding), result, std::move(done)};
  if (!exported.ok()) return DirectStepEnded(step.get(), std::move(exported));
  step->Run(NewStepId(), run_options, this);
}

void MasterSession::DirectStepEnded(DirectStep* step, Status status) {
  const std::shared_ptr<void> session = std::move(step->request().session);
  RunStepResult* const result = step->request().result;
  result->fetches.clear();
  if (status.ok()) {
    for (int i : step->request().binding->fetches) result->fetches.push_back(step->fetches()[i]);
  }
  {
    MutexLock lock(&mu_);
    RemoveDirect(step);
  }
  const Done done = std::move(step->request().done);
  done(std::move(status));
  Leave();
}

void MasterSession::AddDirect(DirectStep* step) {
  step->previous = nullptr;
  step->next = direct_steps_;
  if (direct_steps_ != nullptr) direct_steps_->previous = step;
  direct_steps_ = step;
  if (step->deadline() < direct_watch_) WatchDirect(step->deadline());
}

void MasterSession::RemoveDirect(DirectStep* step) {
  if (step->next != nullptr) step->next->previous = step->previous;
  (step->previous != nullptr ? step->previous->next : direct_steps_) = step->next;
}

void MasterSession::WatchDirect(Deadline deadline) {
  DeadlineTimer::Global().Cancel(direct_timer_);
  direct_watch_ = deadline;
  direct_timer_ = DeadlineTimer::Global().Schedule(deadline, [session = weak_from_this()] {
    if (const auto self = session.lock()) self->ExpireDirect();
  });
}

void MasterSession::ExpireDirect() {
  const Deadline now = SteadyClock::now();
  std::vector<RefPtr<DirectStep>> expired;
  {
    MutexLock lock(&mu_);
    direct_timer_ = DeadlineTimer::kNone;
    direct_watch_ = kNoDeadline;
    Deadline first = kNoDeadline;
    for (DirectStep* step = direct_steps_; step != nullptr; step = step->next) {
      if (step->deadline() <= now) {
        step->HoldDevices();
        expired.push_back(RefPtr<DirectStep>::Share(step));
      } else {
        first = std::min(first, step->deadline());
      }
    }
    if (first != kNoDeadline) WatchDirect(first);
  }
  for (const RefPtr<DirectStep>& step : expired) step->Expire();
}

void MasterSession::ListDirectWaits(pb::TaskWaits* waits) {
  std::vector<RefPtr<DirectStep>> steps;
  {
    MutexLock lock(&mu_);
    for (DirectStep* step = direct_steps_; step != nullptr; step = step->next) {
      step->HoldDevices();
      steps.push_back(RefPtr<DirectStep>::Share(step));
    }
  }
  for (const RefPtr<DirectStep>& step : steps) step->ListWaits(waits);
}

void MasterSession::MakeCallable(const CallOptions& options, MakeCallableArgs args,
                                 int64_t* callable, Done done) {
  const pb::CallableOptions& wanted = args.options;
  if (!wanted.feed_devices().empty() || !wanted.fetch_devices().empty()) {
    return done(errors::Unimplemented("feeds and fetches that stay on a device"));
  }
  if (Status status = CheckRunOptions(wanted.run_options(), config_, *task_); !status.ok()) {
    return done(std::move(status));
  }
  auto made = std::make_shared<Callable>();
  made->options = wanted.run_options();
  StatusOr<RunSignature> signature = MakeSignature(
      {wanted.feed().begin(), wanted.feed().end()}, {wanted.fetch().begin(), wanted.fetch().end()},
      {wanted.target().begin(), wanted.target().end()}, &made->binding);
  if (!signature.ok()) return done(signature.status());
  for (const pb::TensorConnection& connection : wanted.tensor_connection()) {
    std::string to = CanonicalTensorName(connection.to_tensor());
    const bool fed_twice =
        std::binary_search(signature->feeds.begin(), signature->feeds.end(), to) ||
        std::any_of(signature->connections.begin(), signature->connections.end(),
                    [&](const auto& other) { return other.second == to; });
    if (fed_twice) {
      return done(errors::InvalidArgument("Endpoint \"", to, "\" fed more than once."));
    }
    signature->connections.emplace_back(CanonicalTensorName(connection.from_tensor()),
                                        std::move(to));
  }
  signature->keeps_graphs = wanted.run_options().output_partition_graphs();
  signature->collective_graph_key = wanted.run_options().experimental().collective_graph_key();
  if (!Enter()) return done(ClosedError());
  GetPlan(LimitsOf(options, wanted.run_options()), *std::move(signature),
          [this, self = shared_from_this(), made, callable,
           done = std::move(done)](StatusOr<std::shared_ptr<Plan>> plan) {
            if (plan.ok()) {
              made->binding.plan = *std::move(plan);
              MutexLock lock(&mu_);
              *callable = next_callable_++;
              callables_[*callable] = made;
            }
            done(plan.status());
            Leave();
          });
}

void MasterSession::RunCallable(const CallOptions& options, RunCallableArgs* args,
                                RunStepResult* result, Done done) {
  std::shared_ptr<const Callable> callable;
  {
    MutexLock lock(&mu_);
    if (closed_) return done(ClosedError());
    const auto it = callables_.find(args->callable);
    if (it == callables_.end()) {
      return done(args->callable >= 0 && args->callable < next_callable_
                      ? errors::InvalidArgument(
                            "Attempted to run callable after handle was released: ", args->callable)
                      : errors::InvalidArgument("No such callable handle: ", args->callable));
    }
    callable = it->second;
    ++running_;
  }
  if (args->feeds.size() != callable->binding.feeds.size()) {
    done(WrongNumberOfFeeds(callable->binding, args->feeds.size()));
    return Leave();
  }
  args->trace = args->trace && callable->options.trace_level() == pb::RunOptions::NO_TRACE;
  if (args->trace) {
    auto traced = std::make_shared<Callable>(*callable);
    traced->options.set_trace_level(pb::RunOptions::FULL_TRACE);
    callable = std::move(traced);
  }
  StartStep(
      std::shared_ptr<const Binding>(callable, &callable->binding),
      LimitsOf(options, callable->options, args->request_id), callable->options,
      [args](int i) -> const Tensor& { return args->feeds[i]; }, result, std::move(done));
}

Status MasterSession::ReleaseCallable(int64_t callable) {
  std::shared_ptr<const Callable> released;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto it = callables_.find(callable);
  if (it == callables_.end()) {
    if (callable >= 0 && callable < next_callable_) return OkStatus();
    return errors::InvalidArgument("No such callable handle: ", callable);
  }
  released = std::move(it->second);
  callables_.erase(it);
  return OkStatus();
}

void MasterSession::PartialRunSetup(const CallOptions& options, PartialRunSetupArgs args,
                                    std::string* partial_run_handle, Done done) {
  Binding binding;
  StatusOr<RunSignature> signature = MakeSignature(std::move(args.feeds), std::move(args.fetches),
                                                   std::move(args.targets), &binding);
  if (!signature.ok()) return done(signature.status());
  signature->partial = true;
  if (!Enter()) return done(ClosedError());
  GetPlan(LimitsOf(options, {}), *std::move(signature),
          [this, self = shared_from_this(), partial_run_handle,
           done = std::move(done)](StatusOr<std::shared_ptr<Plan>> plan) {
            if (plan.ok()) {
              *partial_run_handle = Hex16(RandomId());
              auto run = std::make_shared<PartialRun>(*partial_run_handle, *plan, NewStepId());
              MutexLock lock(&mu_);
              partial_runs_[*partial_run_handle] = std::move(run);
            }
            done(plan.status());
            Leave();
          });
}

void MasterSession::RunPart(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                            Done done) {
  if (!Enter()) return done(ClosedError());
  std::shared_ptr<PartialRun> run;
  {
    MutexLock lock(&mu_);
    const auto it = partial_runs_.find(args->partial_run_handle);
    if (it != partial_runs_.end()) run = it->second;
  }
  StatusOr<PartialRun::Round> begun =
      run == nullptr
          ? errors::InvalidArgument(
                "Must run PartialRunSetup before performing partial runs! No run has the "
                "handle ",
                args->partial_run_handle)
          : run->Begin(args->feeds, args->fetches);
  if (begun.ok() && !AddStep(begun->step.get())) {
    (void)run->End(begun->step.get(), ClosedError());
    begun = ClosedError();
  }
  if (!begun.ok()) {
    done(begun.status());
    return Leave();
  }
  Step* const round = begun->step.get();
  const bool dump = TakesDeviceTurn(round->plan());
  for (Step::Part& part : round->parts()) part.args.record_partition_graphs = dump;
  round->Run(run->step_id(), LimitsOf(options, args->options, args->request_id),
             [this, self = shared_from_this(), run, round, result, fetches = begun->fetches, dump,
              done = std::move(done)](Status status) {
               result->fetches.clear();
               if (status.ok()) {
                 for (const Plan::Slot slot : fetches) {
                   result->fetches.push_back(round->parts()[slot.part].result.recvs[slot.index]);
                 }
               }
               if (dump) DumpDeviceParts(round);
               CollectMetadata(round, /*partition_graphs=*/false, &result->metadata);
               RemoveStep(round);
               EndPart(run.get(), round, status);
               done(std::move(status));
               Leave();
             });
}

void MasterSession::EndPart(PartialRun* run, Step* round, const Status& status) {
  if (!run->End(round, status)) return;
  {
    MutexLock lock(&mu_);
    partial_runs_.erase(run->handle());
  }
  run->Cleanup();
}

}  // namespace millrace
