// SPDX-License-Identifier: Apache-2.0
// Numbers of groups: the same at all ranks, and of no other group of the process at its server.
// The keys of a group's collectives follow from its number.
#ifndef RANKS_GROUP_NUMBERS_H_
#define RANKS_GROUP_NUMBERS_H_

#include <chrono>
#include <functional>
#include <span>
#include <string>

#include "millrace/status.h"
#include "ranks/member_nodes.h"

namespace millrace {

// Groups that a process may make at a server.
inline constexpr int kMostGroups = 250;

// The next number of this process at the server `target`, which is the same at all ranks as long as
// they take numbers at the same points. ResourceExhausted at the most.
StatusOr<int> NextGroupNumber(const std::string& target);

// A number for ranks that begin, which may have taken unlike many before: one of them restarted, or
// waited once in vain. `meet` says the first number that is free here to all ranks and gives the
// highest that was said; one thread of the process calls it at a time for a server.
// DeadlineExceeded if others did for all of `limit`.
using MeetOnNumber = std::function<StatusOr<int>(int free, std::chrono::milliseconds limit)>;
StatusOr<int> AgreedGroupNumber(const std::string& target, std::chrono::milliseconds limit,
                                const MeetOnNumber& meet);

// Keys of the group in which the members with these tasks meet, whatever groups they had before:
// its `size`, `rank` and `places` are not set.
MemberNodes::Group MeetingKeys(std::span<const std::string> tasks);

}  // namespace millrace

#endif  // RANKS_GROUP_NUMBERS_H_
