// SPDX-License-Identifier: Apache-2.0
// Traced steps of several tasks as one picture over time, and what it shows.
#ifndef DISTRIBUTED_RUNTIME_PAGES_CLUSTER_TRACE_H_
#define DISTRIBUTED_RUNTIME_PAGES_CLUSTER_TRACE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "proto/observe.pb.h"

namespace millrace {

// By how many nanoseconds the clock of each task is ahead of that of the first trace's task, as far
// as the steps tell: no task has begun before it was called, none has ended after its master had
// the answer, and no value was there before it was sent. Where they leave room, the middle of it.
// A task that is bound to no other one is taken to be right.
std::map<std::string, int64_t> AlignClocks(std::span<const pb::TraceResponse> traces);

// Sets the clocks of all tasks to that of the first one.
void SetClocks(const std::map<std::string, int64_t>& ahead, std::vector<pb::TraceResponse>* traces);

// A value that went from one task to another within a step.
struct TracedTransfer {
  std::string from_task, to_task;
  const pb::NodeExecStats* send = nullptr;
  const pb::NodeExecStats* receive = nullptr;
};
// Sends with their receives, told by the names that the master gave them. Whoever is missing a
// partner is left out.
std::vector<TracedTransfer> FindTransfers(const pb::TracedStep& step);

// Where a task's time went, of the time of its steps; they add up to 1 with the rest, in which none
// of its nodes ran.
struct TimeShares {
  std::string task;
  double seconds = 0;  // of all steps
  double compute = 0;
  double input = 0;     // only nodes that read data ran
  double transfer = 0;  // only values of other tasks were on their way that had been sent
  // Only values of other tasks were waited for that nobody had sent yet, or queues, accumulators,
  // barriers, turns and locks were.
  double wait = 0;
  // A collective waits until the last task has joined, and transfers then.
  double rest() const { return 1 - compute - input - transfer - wait; }
};
// By task, with clocks that are set.
std::vector<TimeShares> ShareTime(std::span<const pb::TraceResponse> traces);
// What dominates, and what to try.
std::string Advice(const TimeShares& shares);

// The node that took longest, first; those that only waited come after all that worked. A call of a
// function, a branch or a loop is shown by the nodes of its body.
struct NodeTime {
  std::string node, op, device;
  int64_t calls = 0;
  double seconds = 0;
  bool waits = false;
};
std::vector<NodeTime> TopNodes(std::span<const pb::TraceResponse> traces, std::size_t most);

// The task whose own work made the critical path of a step longest, and what that cost: how much
// more it was than the work of the median of the other tasks. Own are its nodes, but for those that
// waited (a receive, a queue, an accumulator), and the time between them: a task that waits for a
// late one is none. With clocks that are set. "" for a step of one task, or if none stands out.
std::string Straggler(const pb::TracedStep& step, int64_t* cost_nanos);

// What a step was as long as: the node that ended last, before it the one that it waited for (the
// sender of what it received, or what ran before it on its device), and so on; in order of time.
// With clocks that are set.
struct CriticalNode {
  std::string task;
  const pb::NodeExecStats* node = nullptr;
};
std::vector<CriticalNode> CriticalPath(const pb::TracedStep& step);

// JSON in the trace event format, with clocks that are set: all that ChromeTrace shows of each
// device, an arrow for every transfer between tasks, and rows with the steps, each with its
// straggler, and their critical paths.
std::string ClusterTrace(std::span<const pb::TraceResponse> traces);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_CLUSTER_TRACE_H_
