// SPDX-License-Identifier: Apache-2.0
// Tasks numbered by rank, as launchers of processes count them, brought into jobs.
#ifndef CLUSTER_RESOLVERS_RANK_LAYOUT_H_
#define CLUSTER_RESOLVERS_RANK_LAYOUT_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/cluster_resolver.h"
#include "millrace/status.h"

namespace millrace::resolvers {

inline constexpr int kMostTasks = 65'536;

// The variable as a number of `least` to kMostTasks. FailedPrecondition, "<name> not found in
// environment. Not running inside <launcher>?", if it is not set.
StatusOr<int> RequiredNumber(const Environment& environment, const std::string& name, int least,
                             std::string_view launcher);

// Addresses by rank become the tasks of jobs, which are filled in order of their names (empty: all
// are workers), and `rank` is told which one it is. InvalidArgument if there are more or fewer
// addresses than tasks.
StatusOr<ResolvedTask> AssignRanks(const std::map<std::string, int>& jobs,
                                   const std::vector<std::string>& addresses, int rank,
                                   std::string_view source);

// "host:port", an IPv6 address in brackets.
std::string JoinAddress(std::string_view host, int port);

// "ps=2,worker=3". InvalidArgument, naming `variable`, for anything else.
StatusOr<std::map<std::string, int>> ParseJobCounts(std::string_view text,
                                                    std::string_view variable);

}  // namespace millrace::resolvers

#endif  // CLUSTER_RESOLVERS_RANK_LAYOUT_H_
