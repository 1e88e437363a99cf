// SPDX-License-Identifier: Apache-2.0
#include "worker/direct_graph.h"

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "executor/executor.h"
#include "executor/stats/step_stats.h"
#include "graph/graph_def_io.h"
#include "kernels/common/variant_codec.h"
#include "kernels/kernel_context.h"
#include "session/inter_op_pools.h"
#include "worker/overdue.h"
#include "worker/step_waits.h"

namespace millrace {
namespace {

// A warm one allocates nothing.
class WorkerDirectRun final : public DirectRun {
 public:
  WorkerDirectRun(const WorkerGraph* graph, const WorkerEnv* env) : graph_(*graph), worker_(*env) {}

  void Start(const Step& step, const pb::RunOptions& options, Done done) override {
    env_.step_id = step.id;
    env_.cancellation = step.cancellation;
    env_.session_state = graph_.session_state();
    env_.call_args = step.feeds;
    env_.call_results = step.fetches;
    if (part().has_state) {
      env_.step_container.clear();
      StrAppend(&env_.step_container, "__per_step_", step.id);
    }
    if (options.trace_level() != pb::RunOptions::NO_TRACE) stats_.emplace(part().device->name());
    ExecutorArgs args;
    args.env = &env_;
    args.pool = InterOpPool(worker_, options.inter_op_thread_pool());
    args.may_yield = true;
    env_.inter_op_pool = args.pool;
    args.stats = stats_ ? &*stats_ : nullptr;
    const int64_t limit = graph_.memory_limit();
    const RefPtr<MemoryQuota>& quota = graph_.memory_quota();
    if (limit > 0 || quota || stats_ || options.report_tensor_allocations_upon_oom()) {
      memory_ = MakeRef<MemoryTracker>(limit, quota);
      args.memory = memory_.get();
    }
    if (graph_.updates() != nullptr) [[unlikely]]
      graph_.updates()->Begin(step.id);
    begun_.store(true, std::memory_order_release);
    for (std::size_t i = 0; i < step.feeds.size(); ++i) {
      if (step.feeds[i].dtype() != kVariant) continue;
      if (Status decoded = Decode(step.feeds, i); !decoded.ok()) {
        return done.call(done.owner, std::move(decoded));
      }
    }
    Executor(part().program.get()).RunAsync(args, {done.call, done.owner});
  }

  void Finish(bool failed) override {
    if (part().has_state) part().device->resource_manager()->Cleanup(env_.step_container);
    if (graph_.updates() != nullptr) [[unlikely]]
      graph_.updates()->End(env_.step_id, failed);
  }

  void MoveStats(pb::RunMetadata* metadata) override {
    if (stats_) stats_->MoveTo(metadata->mutable_step_stats());
  }

  void Clear() override {
    begun_.store(false, std::memory_order_relaxed);
    stats_.reset();
    memory_.reset();
    decoded_feeds_.clear();
  }

  void ListWaits(pb::TaskWaits* waits) const override {
    if (!begun_.load(std::memory_order_acquire)) return;
    AddStepWaits(env_.step_id, /*begun_nanos=*/0, graph_, *env_.cancellation, {}, waits);
  }
  std::string DescribeOverdue() const override {
    return millrace::DescribeOverdue(env_.cancellation);
  }
  void LogOverdue(int64_t request_id, const std::string& description) const override {
    millrace::LogOverdue(env_.step_id, request_id, description);
  }

 private:
  // Clients give objects of variants in the form that they have in messages.
  Status Decode(std::span<const Tensor> feeds, std::size_t i) {
    if (decoded_feeds_.empty()) decoded_feeds_.assign(feeds.begin(), feeds.end());
    MR_ASSIGN_OR_RETURN(decoded_feeds_[i], DecodedObjects(feeds[i]));
    env_.call_args = decoded_feeds_;
    return OkStatus();
  }

  const WorkerGraph::Part& part() const { return graph_.parts()[0]; }

  const WorkerGraph& graph_;
  const WorkerEnv& worker_;
  StepEnv env_;
  std::vector<Tensor> decoded_feeds_;  // all, if one is a variant
  std::atomic<bool> begun_{false};     // all above is set
  std::optional<StepStatsCollector> stats_;
  RefPtr<MemoryTracker> memory_;
};

class WorkerDirectGraph final : public DirectGraph {
 public:
  WorkerDirectGraph(std::shared_ptr<WorkerGraph> graph, const WorkerEnv* env)
      : graph_(std::move(graph)), env_(env) {}

  const DirectIo& io() const override { return *graph_->direct(); }
  std::unique_ptr<DirectRun> NewRun() const override {
    return std::make_unique<WorkerDirectRun>(graph_.get(), env_);
  }
  std::shared_ptr<UseCount> step_count() const override { return graph_->step_count(); }
  Status Export(pb::GraphDef* graph) const override {
    return ExportGraphDef(*graph_->parts()[0].graph, {}, graph);
  }

 private:
  const std::shared_ptr<WorkerGraph> graph_;
  const WorkerEnv* const env_;
};

}  // namespace

std::shared_ptr<DirectGraph> MakeDirectGraph(std::shared_ptr<WorkerGraph> graph,
                                             const WorkerEnv* env) {
  return std::make_shared<WorkerDirectGraph>(std::move(graph), env);
}

}  // namespace millrace
