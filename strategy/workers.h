// SPDX-License-Identifier: Apache-2.0
// The workers of a cluster that train together, and what each tells the others when it begins.
#ifndef STRATEGY_WORKERS_H_
#define STRATEGY_WORKERS_H_

#include <string>
#include <vector>

#include "millrace/strategy.h"
#include "ranks/exchange.h"
#include "ranks/member_nodes.h"

namespace millrace {

// Chiefs and workers, by rank; of an evaluator itself alone. InvalidArgument unless they are
// numbered without gaps.
StatusOr<std::vector<GroupMember>> WorkersOf(const ResolvedTask& task);
MemberNodes::Group GroupOf(const std::vector<GroupMember>& workers, int rank);

// How many devices each worker has, of which this one has `own`. All of them call it, and wait for
// each other for options.start_timeout, at the server of each's own task. InvalidArgument, at all,
// names those whose options differ in what must be the same.
StatusOr<std::vector<int>> DevicesOfAll(const std::vector<GroupMember>& workers, int rank, int own,
                                        const std::string& target, const StrategyOptions& options);

}  // namespace millrace

#endif  // STRATEGY_WORKERS_H_
