// SPDX-License-Identifier: Apache-2.0
#include "executor/executor.h"

#include <utility>

#include "base/notification.h"
#include "executor/engine/flat_step.h"
#include "executor/engine/framed_step.h"
#include "executor/engine/sequential_step.h"
#include "executor/engine/step_state.h"

namespace millrace {

namespace {

// One thread is enough where there is no other, or nothing that is worth one. Statistics are
// kept by the other two.
bool RunsSequentially(const CompiledGraph& graph, const ExecutorArgs& args) {
  if (graph.sequential() == nullptr || args.stats != nullptr) return false;
  const bool has_threads = args.pool != nullptr && args.pool->num_threads() > 0;
  return !has_threads || !graph.MayUseThreads();
}

}  // namespace

void Executor::RunAsync(const ExecutorArgs& args, DoneCallback done) const {
  if (RunsSequentially(*graph_, args)) {
    RunSequentialStep(*graph_, args, done);
  } else if (graph_->has_frames()) {
    RunFramedStep(*graph_, args, done);
  } else {
    RunFlatStep(*graph_, args, done);
  }
}

Status Executor::Run(const ExecutorArgs& args) const {
  struct Waiter {
    Notification done;
    Status status;
  } waiter;
  RunAsync(args, {[](void* arg, Status status) {
                    auto* w = static_cast<Waiter*>(arg);
                    w->status = std::move(status);
                    w->done.Notify();
                  },
                  &waiter});
  if (!waiter.done.HasBeenNotified()) {
    RunKeptCompletions();
    DeferScope::RunDeferred();
    waiter.done.Wait();
  }
  return std::move(waiter.status);
}

}  // namespace millrace
