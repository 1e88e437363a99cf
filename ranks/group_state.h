// SPDX-License-Identifier: Apache-2.0
// What the parts of a process group share.
#ifndef RANKS_GROUP_STATE_H_
#define RANKS_GROUP_STATE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "millrace/collectives.h"
#include "ranks/exchange.h"
#include "ranks/member_nodes.h"
#include "ranks/own_server.h"

namespace millrace {

// All ranks of a cluster, as one of them sees it.
struct World {
  std::vector<GroupMember> members{};  // by rank; empty if there is one without a cluster
  int size = 1, rank = 0, local_rank = 0, local_size = 1;
  std::string device{};  // of nodes, in full; "": any
  CommunicationOptions communication{};
  SessionTarget server{};
};

struct GroupState {
  GroupState(std::shared_ptr<const World> of, int index, std::vector<int> members);

  // Opens the session by which tensors are exchanged, unless there is nobody to exchange them with.
  Status Open(std::chrono::milliseconds limit);
  // Waits for all members to make `call`, in a group of their own for it: the highest number that
  // is free at any, given the one that is here. At most kMostGroups.
  StatusOr<int> MeetOn(int free, const RankCall& call, std::chrono::milliseconds limit) const;
  // What all members call, once compared. FailedPrecondition at a rank that is no member.
  StatusOr<std::vector<RankCall>> Agree(const RankCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  StatusOr<std::vector<RankCall>> Agree(const RankCall& call, std::chrono::milliseconds limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  StatusOr<std::vector<std::string>> Gather(std::string_view bytes, std::span<const RankCall> calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  StatusOr<Tensor> Reduce(ReduceOp op, const Tensor& vector) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  int size() const { return static_cast<int>(ranks.size()); }

  const std::shared_ptr<const World> world;
  const int index;  // 0 is the first group of all ranks
  const std::vector<int> ranks;
  const int rank;  // -1: not a member
  const std::chrono::milliseconds limit;
  Mutex mu;                            // one call at a time
  std::unique_ptr<Exchange> exchange;  // constant once opened; null: nobody else, or no member
  MemberNodes nodes ABSL_GUARDED_BY(mu);

 private:
  StatusOr<std::unique_ptr<Exchange>> OpenExchange(const MemberNodes::Group& group,
                                                   std::chrono::milliseconds limit) const;
};

// What graphs of ranks are built with beyond the public interface.
class GroupParts {
 public:
  static GroupState& Of(ProcessGroup& group) { return *group.state_; }

  // As ProcessGroup's, of values with names (none, or one for each), which are compared too.
  // `packs`, unless it is null, gets what was made.
  static std::vector<Output> Reduce(GroupState& group, const Scope& scope, ReduceOp op,
                                    std::span<const Output> values,
                                    std::span<const std::string> labels, std::string_view name,
                                    std::source_location where,
                                    std::vector<ReducePack>* packs = nullptr);
  static std::vector<Output> Broadcast(GroupState& group, const Scope& scope,
                                       std::span<const Output> values,
                                       std::span<const std::string> labels, int root,
                                       std::string_view name, std::source_location where);
};

}  // namespace millrace

#endif  // RANKS_GROUP_STATE_H_
