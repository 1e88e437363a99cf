// SPDX-License-Identifier: Apache-2.0
// Which tasks' receives can be waited for before anything is sent from there.
#ifndef PARTITIONER_EARLY_RECEIVES_H_
#define PARTITIONER_EARLY_RECEIVES_H_

#include <vector>

#include "partitioner/partition.h"

namespace millrace {

// Sets kEarlyReceive (ops/early_receive.h) in the parts of a graph that was cut by task, where a
// part has nodes on a device that is no CPU. What one op that may wait, or has a state other than a
// variable, was given, any other such op of the step may have waited for: queues of one task are
// used by others. O(tasks with such devices * (V + E)).
void MarkEarlyReceives(std::vector<Partition>* parts);

}  // namespace millrace

#endif  // PARTITIONER_EARLY_RECEIVES_H_
