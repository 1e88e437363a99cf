// SPDX-License-Identifier: Apache-2.0
#include "master/step_errors.h"

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "session/wait_report.h"

namespace millrace {
namespace {

// Long errors arrive whole; what tasks say of each other has an end all the same.
constexpr size_t kMaxText = size_t{16} << 20;

std::string Located(const TaskError& error) {
  return StrCat("From ", error.task, ":\n", Message(error.status));
}

Status Finish(const Status& status, std::string text) {
  if (text.size() > kMaxText) {
    text.resize(kMaxText);
    text.append("...");
  }
  return WithMessage(status, text);
}

// "/job:worker/replica:0/task:1" is not in "/job:worker/replica:0/task:12".
bool Names(std::string_view text, std::string_view task) {
  for (size_t at = text.find(task); at != text.npos; at = text.find(task, at + 1)) {
    const size_t end = at + task.size();
    if (end == text.size() || text[end] < '0' || text[end] > '9') return true;
  }
  return false;
}

}  // namespace

Status SummarizeErrors(std::span<const TaskError> errors) {
  std::vector<const TaskError*> roots;
  for (const TaskError& error : errors) {
    if (IsDerived(error.status)) continue;
    const bool repeated = std::any_of(roots.begin(), roots.end(), [&](const TaskError* seen) {
      // A task that cannot be reached is noticed by its master and by its peers.
      return seen->status.message() == error.status.message() ||
             (errors::IsUnavailable(seen->status) && errors::IsUnavailable(error.status));
    });
    if (!repeated) roots.push_back(&error);
  }
  if (roots.empty()) {
    return errors.empty() ? OkStatus() : Finish(errors.front().status, Located(errors.front()));
  }
  if (roots.size() == 1) return Finish(roots.front()->status, Located(*roots.front()));
  std::string text = StrCat(roots.size(), " root error(s) found.");
  for (const TaskError* root : roots) {
    StrAppend(&text, "\n=====================\n", StatusCodeName(root->status.code()), ": ",
              Located(*root));
  }
  return Finish(roots.front()->status, std::move(text));
}

Status SummarizeTimeout(std::string_view reason, std::span<const TaskError> errors,
                        const pb::WaitReport& report) {
  constexpr std::size_t kMostWaitsTold = 16;
  std::string lines = WaitLines(report, kMostWaitsTold);
  for (const TaskError& error : errors) {
    const bool said =
        std::any_of(report.wait().begin(), report.wait().end(), [&](const pb::Wait& wait) {
          return wait.task() == error.task &&
                 (wait.kind() != pb::Wait::OTHER || !wait.node().empty());
        });
    if (said && IsDerived(error.status)) continue;
    StrAppend(&lines, "\n  ", error.task, ": ", Message(error.status));
  }
  std::string text(reason);
  if (!lines.empty()) StrAppend(&text, "; it was waiting for:", lines);
  return WithWaitReport(Finish(errors::DeadlineExceeded(""), std::move(text)), report);
}

Status TellAddresses(const WorkerCache* workers, Status status) {
  constexpr size_t kMostSearched = size_t{64} << 10, kMostTold = 16;
  if (workers == nullptr || !(errors::IsDeadlineExceeded(status) || errors::IsUnavailable(status) ||
                              errors::IsAborted(status) || errors::IsCancelled(status) ||
                              status.GetPayload(kWorkerRestartedPayload).has_value())) {
    return status;
  }
  const std::string_view text = Message(status).substr(0, kMostSearched);
  std::vector<std::string> told;
  for (const std::string& task : workers->ListWorkers()) {
    const std::string address = workers->Address(task);
    if (address.empty() || !Names(text, task) || text.find(address) != text.npos) continue;
    told.push_back(StrCat(task, " is at ", address));
    if (told.size() == kMostTold) break;
  }
  return told.empty() ? status : Annotate(status, StrCat("\n  (", StrJoin(told, ", "), ")"));
}

}  // namespace millrace
