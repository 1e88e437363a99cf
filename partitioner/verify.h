// Checks what a partitioning must hold, before anything runs.
#ifndef PARTITIONER_VERIFY_H_
#define PARTITIONER_VERIFY_H_

#include <span>

#include "millrace/status.h"
#include "partitioner/partition.h"

namespace millrace {

// Internal, naming the nodes and their parts, if
//   - a send has no receive or a receive no send, or there are several (devices and name
//     make the pair; nodes with client_terminated meet the client instead),
//   - the two disagree about the incarnation or the type,
//   - the parts wait for each other in a circle, edges out of NextIteration left aside.
// `partitions` are all parts of one graph. O(V + E).
Status VerifyPartitions(std::span<const Partition> partitions);

}  // namespace millrace

#endif  // PARTITIONER_VERIFY_H_
