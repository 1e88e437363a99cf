// Reads of reference variables that must see what was written before their consumer runs.
#ifndef WORKER_LATE_READS_H_
#define WORKER_LATE_READS_H_

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

// TensorFlow's Identity hands the memory of a reference variable on, so a node that waits for
// an update by a control edge sees the updated value even if the Identity ran before it. Old
// programs rely on that: SyncReplicasOptimizer fills its tokens with the new global step this
// way. Our reads are snapshots. So a node with control inputs, its own or those of a constant
// it takes, that also takes a value from such an Identity gets a read of its own, which waits for
// the same nodes. `graph` is the part of one device.
Status ReadLate(DataflowGraph* graph);

}  // namespace millrace

#endif  // WORKER_LATE_READS_H_
