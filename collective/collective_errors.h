// SPDX-License-Identifier: Apache-2.0
// How errors of collectives are told: which collective, and whose error ended it.
#ifndef COLLECTIVE_COLLECTIVE_ERRORS_H_
#define COLLECTIVE_COLLECTIVE_ERRORS_H_

#include <string>
#include <string_view>

#include "collective/collective_executor.h"
#include "millrace/status.h"

namespace millrace {

// What the message of an error begins with that came from another member.
inline constexpr std::string_view kCollectiveAbortedBy = "Collective ops is aborted by: ";

// What the others get of the first error.
Status CollectiveAbortedBy(const Status& reason);
bool TellsOfAbort(const Status& status);

std::string Describe(const CollectiveParams& params);
std::string Describe(const ResolvedCollective& collective);

}  // namespace millrace

#endif  // COLLECTIVE_COLLECTIVE_ERRORS_H_
