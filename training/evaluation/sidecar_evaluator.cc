// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/evaluator.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"

namespace millrace {
namespace {

// Whether the job has deleted what was read, meanwhile, or it is damaged, or its disk fails.
bool IsUnreadable(const Status& status, const std::string& checkpoint) {
  if (status.ok()) return false;
  // Of a session, or of another file, these are no matter of the checkpoint.
  if (errors::IsUnavailable(status) || errors::IsPermissionDenied(status)) {
    return status.message().find(checkpoint) != std::string::npos;
  }
  return errors::IsNotFound(status) || errors::IsDataLoss(status) || errors::IsOutOfRange(status) ||
         !CheckpointExists(checkpoint);
}

}  // namespace

StatusOr<SidecarCounts> RunSidecarEvaluator(const SidecarOptions& options,
                                            const EvaluateCheckpoint& evaluate) {
  if (options.directory.empty()) {
    return errors::InvalidArgument("an evaluator needs the directory of the checkpoints");
  }
  CheckpointsIterator checkpoints(options.directory, {.take = options.take,
                                                      .poll = options.poll,
                                                      .timeout = options.timeout,
                                                      .stop = options.stop});
  SidecarCounts counts;
  while (true) {
    const std::string checkpoint = checkpoints.Next();
    counts.skipped = checkpoints.skipped();
    if (checkpoint.empty()) break;
    Status status = evaluate(checkpoint);
    // It may have been written again meanwhile, as the last one of a job may be.
    if (IsUnreadable(status, checkpoint) && CheckpointIsComplete(checkpoint)) {
      status = evaluate(checkpoint);
    }
    if (IsUnreadable(status, checkpoint)) {
      ++counts.unreadable;
      MR_LOG(kWarning, "an error occurred when evaluating ", checkpoint,
             ", the next one is waited for: ", Message(status));
      continue;
    }
    MR_RETURN_IF_ERROR(status);
    ++counts.evaluated;
    counts.last = checkpoint;
    const std::optional<int64_t> number = CheckpointNumber(checkpoint);
    if (options.last_number && number && *number >= *options.last_number) {
      MR_LOG(kInfo, "Last checkpoint evaluated: ", checkpoint);
      return counts;
    }
  }
  if (!options.last_number || PreemptionSignal() != 0 || (options.stop && options.stop())) {
    return counts;
  }
  return errors::DeadlineExceeded(
      "no new checkpoint in ", options.directory, " for ",
      options.timeout ? options.timeout->count() : 0, " ms, while that of number ",
      *options.last_number, " is waited for; the last one ",
      counts.last.empty() ? std::string("has not come") : StrCat("was ", counts.last));
}

}  // namespace millrace
