#include "executor/executor.h"

#include <utility>

#include "base/notification.h"
#include "executor/flat_step.h"
#include "executor/framed_step.h"
#include "executor/step_state.h"

namespace millrace {

void Executor::RunAsync(const ExecutorArgs& args, DoneCallback done) const {
  if (graph_->has_frames()) {
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
