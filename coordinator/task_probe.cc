// SPDX-License-Identifier: Apache-2.0
#include "coordinator/task_probe.h"

#include <utility>

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/ops.h"
#include "millrace/variables.h"

namespace millrace {

using std::chrono::milliseconds;

bool MayBeALostTask(const Status& status) {
  return errors::IsUnavailable(status) || errors::IsAborted(status) ||
         errors::IsCancelled(status) || errors::IsDeadlineExceeded(status) ||
         // A variable without a value, and what else a new process does not know.
         errors::IsFailedPrecondition(status) || errors::IsNotFound(status) ||
         errors::IsInternal(status) || errors::IsUnknown(status) ||
         status.GetPayload(kWorkerRestartedPayload).has_value();
}

TaskProbe::TaskProbe(std::string task, std::string target, const std::string& id)
    : task_(std::move(task)), target_(std::move(target)) {
  const Scope scope = graph_.root().WithDevice(task_);
  const Variable mark =
      MakeVariable(scope, StrCat("coordinator/", id), Constant(scope, Tensor::Scalar(true)),
                   {.trainable = false, .use_resource = true});
  has_mark_ = ops::VarIsInitializedOp(scope, mark.handle);
  set_mark_ = mark.initializer;
  remove_mark_ = ops::DestroyResourceOp(scope, mark.handle);
}

TaskProbe::~TaskProbe() {
  MutexLock lock(&mu_);
  if (!session_ || !answered_) return;
  const StatusOr<Callable> remove =
      session_->MakeCallable({}, {}, std::span(&remove_mark_, 1), {.timeout = milliseconds(500)});
  if (remove.ok()) remove->Run({}, {.timeout = milliseconds(500)}).IgnoreError();
}

Status TaskProbe::Open(milliseconds limit) {
  look_ = Callable();
  session_.reset();
  SessionOptions options;
  options.target = target_;
  options.device_filters = {task_};
  options.start_timeout = limit;
  options.step_timeout = limit;
  MR_ASSIGN_OR_RETURN(session_, Session::Create(graph_, options));
  MR_ASSIGN_OR_RETURN(look_, session_->MakeCallable({}, std::span(&has_mark_, 1)));
  return OkStatus();
}

StatusOr<bool> TaskProbe::HasMark(milliseconds limit) {
  // A limit of its own for the call: the session's leaves a task time to tell why it is late.
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, look_.Run({}, {.timeout = limit}));
  return values[0].scalar<bool>();
}

TaskProbe::Report TaskProbe::Look(milliseconds limit) {
  const Deadline deadline = DeadlineAfter(limit);
  MutexLock lock(&mu_);
  answered_ = false;
  for (bool again = session_.has_value();; again = false) {
    const milliseconds left = std::max(
        std::chrono::duration_cast<milliseconds>(deadline - SteadyClock::now()), milliseconds(1));
    if (!again) {
      const Status opened = Open(left);
      if (!opened.ok()) {
        session_.reset();
        return {opened, process_};
      }
    }
    const StatusOr<bool> marked = HasMark(left);
    if (marked.ok() && *marked) break;
    if (marked.ok()) {
      const Status set = session_->Run({}, {}, std::span(&set_mark_, 1)).status();
      if (!set.ok()) return {set, process_};
      ++process_;
      break;
    }
    const bool silent =
        errors::IsUnavailable(marked.status()) || errors::IsDeadlineExceeded(marked.status());
    if (silent || !again) return {marked.status(), process_};
    // The session is gone: perhaps with its process, perhaps it was idle for too long.
  }
  answered_ = true;
  return {OkStatus(), process_};
}

}  // namespace millrace
