// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/trace_nodes.h"

#include <algorithm>
#include <iterator>

#include "base/strings.h"
#include "executor/stats/step_trace.h"

namespace millrace {
namespace {

bool BeginsWithOneOf(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(),
                     [op](std::string_view name) { return op.starts_with(name); });
}

// Ops that run a function of the graph in their own task.
bool IsCall(std::string_view op) {
  static constexpr std::string_view kCalls[] = {
      "Case",          "For",         "If",    "PartitionedCall", "StatefulPartitionedCall",
      "StatelessCase", "StatelessIf", "While", "StatelessWhile",  "SymbolicGradient",
  };
  return std::find(std::begin(kCalls), std::end(kCalls), op) != std::end(kCalls);
}

}  // namespace

bool IsSend(std::string_view op) { return op == "_Send" || op == "_HostSend"; }
bool IsReceive(std::string_view op) { return op == "_Recv" || op == "_HostRecv"; }
bool IsInput(std::string_view op) {
  return BeginsWithOneOf(op, {"Iterator", "Reader"}) || op == "ReadFile";
}
bool IsCollective(std::string_view op) {
  return BeginsWithOneOf(op, {"Collective", "Nccl", "_Nccl"});
}
bool IsWait(std::string_view op) {
  return IsReceive(op) || IsCollective(op) || op == "RemoteCall" || op == "MutexLock" ||
         BeginsWithOneOf(
             op, {"QueueDequeue", "QueueEnqueue", "AccumulatorTake", "SparseAccumulatorTake",
                  "ResourceAccumulatorTake", "BarrierTake", "Stage", "Unstage", "MapStage",
                  "MapUnstage", "MapPeek", "OrderedMapStage", "OrderedMapUnstage", "OrderedMapPeek",
                  "_Staleness"});
}

std::set<const pb::NodeExecStats*> CallsOf(const pb::TracedPart& part) {
  std::set<const pb::NodeExecStats*> calls;
  ForEachNode(part, [&](const pb::DeviceStepStats&, const pb::NodeExecStats& node) {
    if (IsCall(OpOf(node))) calls.insert(&node);
  });
  if (calls.empty()) return calls;
  // Nodes of a body are named after the call.
  std::set<std::string_view> scopes;
  ForEachNode(part, [&](const pb::DeviceStepStats&, const pb::NodeExecStats& node) {
    const std::string_view name = node.node_name();
    for (std::size_t at = 0; (at = name.find('/', at)) != std::string_view::npos; ++at) {
      scopes.insert(name.substr(0, at));
    }
  });
  std::erase_if(calls, [&](const pb::NodeExecStats* call) {
    return !scopes.contains(std::string_view(call->node_name()));
  });
  return calls;
}

StepWindow WindowOf(const pb::TracedStep& step) {
  StepWindow window;
  for (const pb::TracedPart& part : step.part()) {
    const bool is_first = window.end == 0;
    window.begin = is_first ? part.sent_nanos() : std::min(window.begin, part.sent_nanos());
    window.end = std::max(window.end, part.answered_nanos());
  }
  return window;
}

}  // namespace millrace
