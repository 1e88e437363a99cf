// SPDX-License-Identifier: Apache-2.0
// Nodes of traced steps: when they ran, and which of them only waited.
#ifndef DISTRIBUTED_RUNTIME_PAGES_TRACE_NODES_H_
#define DISTRIBUTED_RUNTIME_PAGES_TRACE_NODES_H_

#include <cstdint>
#include <set>
#include <string_view>

#include "proto/observe.pb.h"

namespace millrace {

inline int64_t StartOf(const pb::NodeExecStats& node) { return node.all_start_nanos(); }
inline int64_t EndOf(const pb::NodeExecStats& node) {
  return node.all_start_nanos() + node.all_end_rel_nanos();
}

// Kinds of ops.
bool IsSend(std::string_view op);
bool IsReceive(std::string_view op);
bool IsInput(std::string_view op);
bool IsCollective(std::string_view op);
// Whether a node of that op does nothing but wait: for a value of another task, an element or room
// in a queue, a barrier or a staging area, gradients of an accumulator, a turn, a lock.
bool IsWait(std::string_view op);

// Calls visit(device, node) for each node that a part ran.
template <typename Visit>
void ForEachNode(const pb::TracedPart& part, const Visit& visit) {
  for (const pb::DeviceStepStats& device : part.stats().dev_stats()) {
    for (const pb::NodeExecStats& node : device.node_stats()) visit(device, node);
  }
}

// Calls of functions, branches and loops of a part whose bodies' nodes were recorded as well: their
// time is that of the bodies, waiting included.
std::set<const pb::NodeExecStats*> CallsOf(const pb::TracedPart& part);

// From the first call of a step's tasks to the last answer, by its master's clock.
struct StepWindow {
  int64_t begin = 0, end = 0;
  int64_t nanos() const { return end - begin; }
};
StepWindow WindowOf(const pb::TracedStep& step);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_TRACE_NODES_H_
