// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/why_waiting.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/async_join.h"
#include "session/wait_report.h"

namespace millrace {

void AskWhyWaiting(WorkerCache* workers, const CallOptions& options,
                   std::function<void(pb::WaitReport)> done) {
  const std::vector<std::string> tasks = workers->ListWorkers();
  const auto answers = std::make_shared<std::vector<TaskAnswer>>(tasks.size());
  const auto join = AsyncJoin::Make(
      static_cast<int>(tasks.size()),
      [answers, done = std::move(done)](Status) { done(MakeWaitReport(*answers)); });
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    TaskAnswer* const answer = &(*answers)[i];
    answer->task = tasks[i];
    workers->GetWorker(tasks[i])->ListWaitsAsync(options, std::nullopt, &answer->waits,
                                                 [join, answers, answer](const Status& status) {
                                                   answer->status = status;
                                                   join->Done(OkStatus());
                                                 });
  }
}

}  // namespace millrace
