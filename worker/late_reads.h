// SPDX-License-Identifier: Apache-2.0
// Reads of reference variables that must see what was written before their consumer runs.
#ifndef WORKER_LATE_READS_H_
#define WORKER_LATE_READS_H_

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

// TensorFlow's Identity hands the memory of a reference variable on, so a node that runs after
// an update sees the updated value even if the Identity ran before it, and so does one within a
// loop or branch to which Enter or Switch brought that memory. Old programs rely on that:
// SyncReplicasOptimizer fills its tokens with the new global step this way, and loops assign to
// variables that were read before them. Our reads are snapshots. So a node that takes such a value
// gets a read of its own, which waits for
//   * the node's control inputs, and those of a constant it takes, if nothing lies between the
//     Identity and the node;
//   * those of its inputs, of either kind, that come after an update of the same variable.
// `graph` is the part of one device: what updates a variable by reference is in it.
Status ReadLate(DataflowGraph* graph);

}  // namespace millrace

#endif  // WORKER_LATE_READS_H_
