// SPDX-License-Identifier: Apache-2.0
// Checks what a partitioning must hold, before anything runs.
#ifndef PARTITIONER_VERIFY_H_
#define PARTITIONER_VERIFY_H_

#include <span>

#include "millrace/status.h"
#include "partitioner/partition.h"

namespace millrace {

// Done for every plan before it is registered. Internal, naming the nodes and their parts, if
//   - a send has no receive or a receive no send, or there are several (devices and name
//     make the pair; nodes with client_terminated meet the client instead, and those that no
//     cut made meet whatever their author had in mind),
//   - the two disagree about the incarnation or the type,
//   - the parts wait for each other in a circle, edges out of NextIteration left aside.
// `partitions` are all parts of one graph. O(V + E).
Status VerifyPartitions(std::span<const Partition> partitions);

// Checks the counts of synchronous training in a graph that is about to be cut. Where gradients
// are taken from accumulators and tokens put into a queue afterwards, InvalidArgument if
//   - the accumulators wait for different numbers of gradients,
//   - a step hands out fewer tokens than the next one needs gradients.
// Counts that are not constants of the graph are not looked at.
Status VerifySyncCounts(const DataflowGraph& graph);

}  // namespace millrace

#endif  // PARTITIONER_VERIFY_H_
