// SPDX-License-Identifier: Apache-2.0
#include "worker/step_waits.h"

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"
#include "executor/stats/running_nodes.h"
#include "session/wait_report.h"

namespace millrace {
namespace {

// Adds op, device and line to waits that know their node's name only.
void Locate(const WorkerGraph& graph, std::vector<Wait>* waits) {
  std::multimap<std::string_view, Wait*> by_node;
  for (Wait& wait : *waits) {
    if (!wait.node.empty() && wait.op.empty()) by_node.emplace(wait.node, &wait);
  }
  if (by_node.empty()) return;
  for (const WorkerGraph::Part& part : graph.parts()) {
    const std::vector<CompiledNode>& nodes = part.program->nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kernel == nullptr) continue;
      const auto [begin, end] = by_node.equal_range(nodes[i].kernel->name());
      for (auto it = begin; it != end; ++it) {
        it->second->op = nodes[i].kernel->def().name();
        it->second->device = part.device->name();
        it->second->origin = part.program->origin(static_cast<int32_t>(i));
      }
    }
  }
}

// When something began that has taken so long, or, if that is not known, its step.
int64_t Since(int64_t now, std::chrono::nanoseconds elapsed, int64_t begun_nanos) {
  return elapsed.count() < 0 ? begun_nanos : now - elapsed.count();
}

Wait Running(const RunningNode& node, int64_t now, int64_t begun_nanos) {
  Wait wait;
  wait.node = node.node;
  wait.op = node.op;
  wait.device = node.device;
  wait.origin = node.origin;
  wait.since_nanos = Since(now, node.elapsed, begun_nanos);
  const std::string thread = StrCat("in thread ", node.thread, " (", node.thread_id, ")");
  if (!node.loop.empty()) {
    wait.kind = Wait::Kind::kLoop;
    wait.name = node.loop;
    wait.since_nanos = Since(now, node.loop_elapsed, begun_nanos);
    wait.text = StrCat("it goes round the loop '", node.loop, "'",
                       node.rounds < 0 ? "" : StrCat(", iteration ", node.rounds), ", ", thread);
  } else {
    wait.kind = Wait::Kind::kKernel;
    wait.text = StrCat("it runs a kernel, ", thread);
  }
  if (node.caller.empty()) return wait;
  // Which node of its function runs right now says less than which kernel does not return.
  const std::string within = StrCat("{{node ", node.node, "}} of a function that it calls");
  wait.text = node.loop.empty() ? StrCat("it runs a kernel, now at ", within, ", ", thread)
                                : StrCat(wait.text, ", at ", within);
  wait.node = node.caller;
  wait.op = node.caller_op;
  wait.origin = node.caller_origin.empty() ? node.origin : node.caller_origin;
  wait.since_nanos = Since(now, node.caller_elapsed, begun_nanos);
  return wait;
}

}  // namespace

void AddStepWaits(int64_t step_id, int64_t begun_nanos, const WorkerGraph& graph,
                  const CancellationManager& cancellation, std::vector<Wait> others,
                  pb::TaskWaits* waits) {
  waits->add_step_id(step_id);
  std::vector<Wait> all = std::move(others);
  for (const std::string& description : cancellation.DescribeWaits()) {
    all.push_back(DecodeWait(description));
  }
  Locate(graph, &all);
  const int64_t now = SteadyNanos();
  for (const RunningNode& node : FindRunningNodes(&cancellation)) {
    all.push_back(Running(node, now, begun_nanos));
  }
  if (all.empty()) {
    all.emplace_back().text =
        "no thread runs a kernel of it: it has not begun, or an asynchronous kernel has not said "
        "that it is done";
  }
  for (const Wait& wait : all) AddWait(wait, step_id, now, waits);
}

}  // namespace millrace
