// SPDX-License-Identifier: Apache-2.0
// Runs a compiled graph: one step per call, as many at once as wanted.
#ifndef EXECUTOR_EXECUTOR_H_
#define EXECUTOR_EXECUTOR_H_

#include "base/thread_pool.h"
#include "executor/compiled_graph.h"
#include "executor/memory/memory_tracker.h"
#include "executor/stats/step_stats.h"
#include "kernels/kernel_context.h"
#include "millrace/status.h"

namespace millrace {

// Everything pointed to must stay valid until the step is done.
struct ExecutorArgs {
  // Rendezvous and cancellation manager may be null in graphs whose kernels need none.
  StepEnv* env = nullptr;
  // Runs expensive nodes and what follows asynchronous ones. Null or without threads:
  // everything runs in the calling thread and in those that complete asynchronous nodes.
  ThreadPool* pool = nullptr;
  StepStatsCollector* stats = nullptr;
  // Counts, and limits, the memory of kernels. With `stats` they tell of it.
  MemoryTracker* memory = nullptr;
  // True: the calling thread takes part, and RunAsync returns when it has nothing left to
  // do. False: RunAsync only starts the step on the pool (needs one with threads).
  bool caller_runs = true;
  // True: a step that has kept a thread of the engine for some milliseconds may go on later, behind
  // what waits for the pool. False for whoever waits for the step on such a thread.
  bool may_yield = false;
};

// Thread-safe. The compiled graph must outlive every step.
class Executor {
 public:
  explicit Executor(const CompiledGraph* graph) : graph_(graph) {}

  // Calls `done` once, possibly before this returns, when nothing of the step runs any more.
  // The status is the step's first error, as the kernel gave it, with "[[{{node NAME}}]]" and a
  // line "(op OP on DEVICE, made at FILE:LINE)" appended; that error has then aborted the
  // rendezvous and cancelled the step. Cancelled and Aborted that followed a cancellation are
  // marked derived; Unavailable from an op that does not communicate becomes Internal.
  void RunAsync(const ExecutorArgs& args, DoneCallback done) const;
  // Waits for it.
  Status Run(const ExecutorArgs& args) const;

 private:
  const CompiledGraph* const graph_;
};

}  // namespace millrace

#endif  // EXECUTOR_EXECUTOR_H_
