// SPDX-License-Identifier: Apache-2.0
// Whether threads would gain anything on a graph of cheap nodes: its work (all of it on one thread)
// against its span (its longest path). With greedy scheduling p threads take at most work / p +
// span (Graham, Bounds on Multiprocessing Timing Anomalies, 1969).
#ifndef EXECUTOR_ENGINE_WORK_SPAN_H_
#define EXECUTOR_ENGINE_WORK_SPAN_H_

#include <cstdint>

namespace millrace {

class CompiledGraph;

// In processor cycles, as measured; what was never measured costs nothing. The last two with what
// it costs to hand nodes from thread to thread.
struct WorkSpan {
  uint64_t alone = 0;  // the work, where one thread runs the flat program
  uint64_t work = 0;   // the work, where several share it
  uint64_t span = 0;   // the longest path, where several share it
};

// Of a graph without loops that one thread can run (`graph.sequential()` is not null). O(V + E).
WorkSpan EstimateWorkSpan(const CompiledGraph& graph);

// True if two threads would save much: a fifth of the time, and more than it takes to wake one.
bool GainsFromThreads(const WorkSpan& estimate);

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_WORK_SPAN_H_
