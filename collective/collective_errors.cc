// SPDX-License-Identifier: Apache-2.0
#include "collective/collective_errors.h"

#include "base/errors.h"

namespace millrace {

Status CollectiveAbortedBy(const Status& reason) {
  if (Message(reason).find(kCollectiveAbortedBy) != std::string_view::npos)
    return MarkDerived(reason);
  return MarkDerived(WithMessage(reason, StrCat(kCollectiveAbortedBy, Message(reason))));
}

bool TellsOfAbort(const Status& status) {
  return Message(status).find(kCollectiveAbortedBy) != std::string_view::npos;
}

std::string Describe(const CollectiveParams& params) {
  return StrCat("collective ", CollectiveKindName(params.kind), " {{node ", params.node,
                "}} (group_key=", params.group_key, ", instance_key=", params.instance_key, ")");
}

std::string Describe(const ResolvedCollective& collective) {
  return StrCat("rank ", collective.rank, " of ", collective.group->size(), ", ", collective.device,
                ", in ", Describe(collective.params));
}

}  // namespace millrace
