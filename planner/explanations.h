// SPDX-License-Identifier: Apache-2.0
// The placer's record, node by node.
#ifndef PLANNER_EXPLANATIONS_H_
#define PLANNER_EXPLANATIONS_H_

#include "placer/placement_log.h"
#include "planner/graph_source.h"

namespace millrace {

// Of every node that was placed. With `chains` also everything that PlacementLog::ToText says of
// it; of a group, the first member has the story, and the others name it. Takes time in
// proportion to the record.
StringMap<Explanation> Explain(const PlacementLog& log, bool chains);

// The member of whose group `chain` says "in the group of", "" if it says no such thing.
std::string GroupOf(const std::string& chain);

}  // namespace millrace

#endif  // PLANNER_EXPLANATIONS_H_
