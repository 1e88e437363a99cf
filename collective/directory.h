// SPDX-License-Identifier: Apache-2.0
// The tables of a leader: who is in which group, and what its members say that they compute.
#ifndef COLLECTIVE_DIRECTORY_H_
#define COLLECTIVE_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/wait.h"
#include "collective/collective_types.h"
#include "collective/peer.h"
#include "collective/pending.h"

namespace millrace {

// Thread-safe; never blocks. Requests may be repeated.
class CollectiveDirectory {
 public:
  // Ends when `group_size` different devices have asked. Internal for members that disagree about
  // size or device type: every member of such a group is told once, and then it is begun anew. So
  // is the group of a device that comes with another incarnation: its task has restarted.
  // Internal for a device that a complete group does not have.
  void JoinGroup(const GroupRequest& request, CancellationManager* cancellation,
                 CollectivePeer::GroupDone done);

  // The rank of the source of a broadcast, when all members have asked; -1 at once for other
  // kinds. Internal for kinds, types and reductions that differ and for none or two sources,
  // InvalidArgument for shapes that differ; FailedPrecondition if the group is not known here. What
  // was agreed on without a step stands until a member that took part comes with something else, or
  // again after an error.
  void JoinInstance(const InstanceRequest& request, CancellationManager* cancellation,
                    CollectivePeer::InstanceDone done);

  // Adds groups and instances that are waited for: who has come to them.
  void ListWaits(std::vector<Wait>* waits) const;

  // Drops what nobody waits for within a step that is over here.
  void ForgetStep(int64_t step_id);

 private:
  using GroupWaiter = Pending<StatusOr<std::shared_ptr<const CollectiveGroup>>>;
  using InstanceWaiter = Pending<StatusOr<int>>;
  struct Group {
    int32_t size = 0;
    bool tells_steps = true;  // all that joined
    std::map<std::string, DeviceAttributes, std::less<>> joined;
    std::shared_ptr<const CollectiveGroup> complete;
    absl::flat_hash_map<std::string, int> ranks;  // of those of the complete group
    Status error;
    absl::flat_hash_set<std::string> told;  // members that know of the error
    std::vector<RefPtr<GroupWaiter>> waiters;

    void Complete(std::shared_ptr<const CollectiveGroup> with);
    // -1 if the device is no member.
    int RankOf(const std::string& device) const;
  };
  using InstanceId = std::tuple<int64_t, int32_t, int32_t>;  // step, group, instance
  struct Instance {
    InstanceRequest first;
    std::vector<bool> joined;  // by rank
    int num_joined = 0;
    int source_rank = -1;
    Status error;
    std::vector<RefPtr<InstanceWaiter>> waiters;
  };

  // The error that the request makes, and whether it spoils the group for all.
  static Status CheckJoin(const Group& group, const GroupRequest& request, bool* spoils);
  static Status CheckSame(const Instance& instance, const InstanceRequest& request);

  void ListInstanceWaits(std::vector<Wait>* waits) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  absl::flat_hash_map<int32_t, Group> groups_ ABSL_GUARDED_BY(mu_);
  std::map<InstanceId, Instance> instances_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // COLLECTIVE_DIRECTORY_H_
