// SPDX-License-Identifier: Apache-2.0
#include "worker/overdue.h"

#include <algorithm>
#include <cmath>

#include "base/calls/request_text.h"
#include "base/engine_thread.h"
#include "base/log.h"
#include "base/strings.h"
#include "executor/stats/running_nodes.h"

namespace millrace {
namespace {

// In tenths of a second. Where the beginning was not noted the grace is known to have passed.
std::string For(std::chrono::nanoseconds elapsed) {
  const bool known = elapsed.count() >= 0;
  const double seconds =
      std::chrono::duration<double>(known ? elapsed : std::chrono::nanoseconds(kOverdueGrace))
          .count();
  return StrCat("for ", std::floor(seconds * 10) / 10, known ? " s" : " s or more");
}

}  // namespace

std::string DescribeOverdue(const CancellationManager* step) {
  const std::vector<RunningNode> nodes = FindRunningNodes(step);
  if (nodes.empty()) {
    return "no thread runs a kernel of it: an asynchronous one has not said that it is done";
  }
  std::string text = "it still runs ";
  for (const RunningNode& node : nodes) {
    StrAppend(&text, &node == nodes.data() ? "" : "; ", "{{node ", node.node, "}}, op ", node.op,
              " on ", node.device, ", in thread ", node.thread, " (", node.thread_id, "), ",
              For(node.elapsed));
  }
  return text;
}

void LogOverdue(int64_t step_id, int64_t request_id, const std::string& description) {
  const LogRequest named(request_id);
  MR_LOG(kWarning, "step ", step_id, RequestText(request_id),
         " did not end when it was cancelled at its deadline: ", description,
         ". What it holds, its threads among them, is freed when it ends; a call whose own thread "
         "runs it returns then");
}

}  // namespace millrace
