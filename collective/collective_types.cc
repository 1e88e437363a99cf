// SPDX-License-Identifier: Apache-2.0
#include "collective/collective_types.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "device/device_name.h"

namespace millrace {

std::string ReductionName(MergeOp merge, FinalOp final) {
  static constexpr const char* kMerge[] = {"Add", "Mul", "Min", "Max"};
  return StrCat(kMerge[static_cast<int>(merge)], final == FinalOp::kDiv ? "/Div" : "/Id");
}

std::string CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kGather:
      return "gather";
  }
  return StrCat("collective of kind ", static_cast<int32_t>(kind));
}

int CollectiveGroup::RankOf(std::string_view device) const {
  for (int rank = 0; rank < size(); ++rank) {
    if (members[rank].name == device) return rank;
  }
  return -1;
}

StatusOr<std::shared_ptr<const CollectiveGroup>> MakeGroup(int32_t key,
                                                           std::vector<DeviceAttributes> members,
                                                           bool tells_steps) {
  auto group = std::make_shared<CollectiveGroup>();
  group->key = key;
  group->tells_steps = tells_steps;
  if (!members.empty()) group->device_type = members[0].device_type;
  for (const DeviceAttributes& member : members) {
    MR_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(member.name));
    std::string task = TaskName(name);
    if (task.empty()) {
      return errors::InvalidArgument("'", member.name, "' of the collective group ", key,
                                     " is not the full name of a device");
    }
    if (group->tasks.empty() || group->tasks.back() != task) group->devices_per_task.push_back(0);
    ++group->devices_per_task.back();
    group->tasks.push_back(std::move(task));
  }
  group->members = std::move(members);
  return std::shared_ptr<const CollectiveGroup>(std::move(group));
}

}  // namespace millrace
