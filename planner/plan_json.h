// SPDX-License-Identifier: Apache-2.0
// A placed graph, with the reasons, as JSON that can be read again.
#ifndef PLANNER_PLAN_JSON_H_
#define PLANNER_PLAN_JSON_H_

#include <string>
#include <string_view>

#include "planner/graph_source.h"

namespace millrace {

inline constexpr char kPlanFormat[] = "millrace plan 1";

// {"format": "millrace plan 1", "nodes": [{"node", "op", "device", "inputs", "attrs", ...}]}:
// nodes in the order of `graph`, attributes as message text by name. The same text for the same
// arguments. Without `with_chains` only the rule and the reason of each decision are kept.
std::string PlanToJson(const pb::GraphDef& graph, const StringMap<Explanation>& explanations,
                       bool with_chains);

// If the text is meant to be the above.
bool LooksLikePlanJson(std::string_view text);
// InvalidArgument, naming the node, if it is not.
StatusOr<GraphSource> ParsePlanJson(std::string_view text);

}  // namespace millrace

#endif  // PLANNER_PLAN_JSON_H_
