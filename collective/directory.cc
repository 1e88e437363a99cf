// SPDX-License-Identifier: Apache-2.0
#include "collective/directory.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/errors.h"

namespace millrace {
namespace {

// More steps than can be under way; what a crashed master left is dropped by then.
constexpr std::size_t kMaxInstances = 100'000;

template <typename Waiters>
void DropClaimed(Waiters* waiters) {
  std::erase_if(*waiters, [](const auto& waiter) { return waiter->claimed(); });
}

// Looks for those that have gone as seldom as room has to be made: all members of a large group
// wait here.
template <typename Waiters, typename Waiter>
void AddWaiter(Waiters* waiters, Waiter waiter) {
  if (waiters->size() == waiters->capacity()) DropClaimed(waiters);
  waiters->push_back(std::move(waiter));
}

template <typename Waiters>
bool AnyWaits(const Waiters& waiters) {
  return std::any_of(waiters.begin(), waiters.end(),
                     [](const auto& waiter) { return !waiter->claimed(); });
}

template <typename Waiters, typename Answer>
void FinishAll(const Waiters& waiters, const Answer& answer) {
  for (const auto& waiter : waiters) {
    if (waiter->Claim()) waiter->Finish(answer);
  }
}

}  // namespace

void CollectiveDirectory::Group::Complete(std::shared_ptr<const CollectiveGroup> with) {
  for (int rank = 0; rank < with->size(); ++rank) ranks.emplace(with->members[rank].name, rank);
  complete = std::move(with);
}

int CollectiveDirectory::Group::RankOf(const std::string& device) const {
  const auto rank = ranks.find(device);
  return rank == ranks.end() ? -1 : rank->second;
}

Status CollectiveDirectory::CheckJoin(const Group& group, const GroupRequest& request,
                                      bool* spoils) {
  *spoils = false;
  const auto known = group.joined.find(request.device.name);
  if (group.complete != nullptr && known == group.joined.end()) {
    return errors::Internal("device ", request.device.name, " wants to join the collective group ",
                            request.group_key, ", which is complete without it: its ", group.size,
                            " members begin with ", group.joined.begin()->first);
  }
  if (request.group_size != group.size) {
    *spoils = group.complete == nullptr;
    return errors::Internal("Device ", request.device.name, " is joining a group with size ",
                            request.group_size, ", but that group has size ", group.size,
                            " (group_key=", request.group_key, ", first member ",
                            group.joined.begin()->first, ")");
  }
  const std::string& type = group.joined.begin()->second.device_type;
  if (request.device.device_type != type) {
    *spoils = group.complete == nullptr;
    return errors::Internal("Device ", request.device.name, " is joining a group with device type ",
                            request.device.device_type, ", but that group has device type ", type,
                            " (group_key=", request.group_key, ")");
  }
  return OkStatus();
}

void CollectiveDirectory::JoinGroup(const GroupRequest& request, CancellationManager* cancellation,
                                    CollectivePeer::GroupDone done) {
  if (request.group_size < 1) {
    return done(errors::InvalidArgument("a collective group needs at least one member, not ",
                                        request.group_size, " (group_key=", request.group_key,
                                        ")"));
  }
  const std::string& name = request.device.name;
  auto waiter = MakeRef<GroupWaiter>(std::move(done));
  waiter->Watch(cancellation, [this, key = request.group_key](const GroupWaiter::Done& give_up) {
    std::string there;
    int32_t size = 0;
    {
      MutexLock lock(&mu_);
      const auto it = groups_.find(key);
      if (it != groups_.end()) {
        size = it->second.size;
        for (const auto& [member, attributes] : it->second.joined) {
          StrAppend(&there, there.empty() ? "" : ", ", member);
        }
      }
    }
    give_up(errors::Cancelled("the collective group ", key, " of ", size,
                              " members was not complete; there were: ", there));
  });
  std::vector<RefPtr<GroupWaiter>> waiters;
  std::vector<RefPtr<InstanceWaiter>> outdated;
  StatusOr<std::shared_ptr<const CollectiveGroup>> answer = errors::Internal("no answer");
  {
    MutexLock lock(&mu_);
    Group* group = &groups_[request.group_key];
    const auto begin_anew = [&] {
      *group = Group();
      group->size = request.group_size;
    };
    if (!group->error.ok() && group->told.contains(name)) begin_anew();
    const auto known = group->joined.find(name);
    if (known != group->joined.end() && known->second.incarnation != request.device.incarnation &&
        group->error.ok()) {
      // Those that wait go on waiting: with the device as it is now.
      std::vector<RefPtr<GroupWaiter>> waiting = std::move(group->waiters);
      auto joined = std::move(group->joined);
      const bool was_complete = group->complete != nullptr, told_steps = group->tells_steps;
      begin_anew();
      group->waiters = std::move(waiting);
      if (!was_complete) {
        group->joined = std::move(joined);
        group->tells_steps = told_steps;
      }
      group->joined.erase(name);
    }
    if (group->joined.empty() && group->error.ok()) group->size = request.group_size;
    if (!group->error.ok()) {
      group->told.insert(name);
      answer = group->error;
    } else {
      bool spoils = false;
      Status status = group->joined.empty() ? OkStatus() : CheckJoin(*group, request, &spoils);
      if (status.ok()) {
        group->joined.try_emplace(name, request.device);
        group->tells_steps = group->tells_steps && request.tells_steps;
        if (group->complete == nullptr &&
            static_cast<int32_t>(group->joined.size()) == group->size) {
          std::vector<DeviceAttributes> members;
          for (const auto& [member, attributes] : group->joined) members.push_back(attributes);
          auto made = MakeGroup(request.group_key, std::move(members), group->tells_steps);
          if (made.ok()) group->Complete(*made);
          // Ranks may be others than those of its predecessor.
          for (auto it = instances_.begin(); it != instances_.end();) {
            const bool of_group = std::get<1>(it->first) == request.group_key;
            if (of_group)
              std::move(it->second.waiters.begin(), it->second.waiters.end(),
                        std::back_inserter(outdated));
            it = of_group ? instances_.erase(it) : std::next(it);
          }
          status = made.status();
          spoils = !status.ok();
        }
      }
      if (!status.ok()) {
        answer = status;
        if (spoils) {
          group->error = status;
          group->told.insert(name);
          for (const auto& [member, attributes] : group->joined) group->told.insert(member);
          waiters.swap(group->waiters);
        }
      } else if (group->complete == nullptr) {
        AddWaiter(&group->waiters, std::move(waiter));
        return;
      } else {
        answer = group->complete;
        waiters.swap(group->waiters);
      }
    }
  }
  FinishAll(outdated, StatusOr<int>(errors::Aborted("the collective group ", request.group_key,
                                                    " was formed anew")));
  if (waiter->Claim()) waiter->Finish(answer);
  FinishAll(waiters, answer);
}

Status CollectiveDirectory::CheckSame(const Instance& instance, const InstanceRequest& request) {
  const InstanceRequest& first = instance.first;
  const auto which = [&] {
    return StrCat(" (group_key=", request.group_key, ", instance_key=", request.instance_key,
                  "; node ", request.node, " at ", request.device, ", node ", first.node, " at ",
                  first.device, ")");
  };
  if (request.kind != first.kind) {
    return errors::Internal("Collective ", request.instance_key, " of group ", request.group_key,
                            " is a ", CollectiveKindName(request.kind), " for ", request.device,
                            ", but a ", CollectiveKindName(first.kind), " for ", first.device,
                            which());
  }
  if (request.dtype != first.dtype) {
    return errors::Internal("Collective instance ", request.instance_key, " is of type ",
                            DataTypeName(request.dtype), " for ", request.device, ", but of type ",
                            DataTypeName(first.dtype), " for ", first.device, which());
  }
  if (!request.reduction.empty() && !first.reduction.empty() &&
      request.reduction != first.reduction) {
    return errors::Internal("Collective instance ", request.instance_key, " computes ",
                            request.reduction, " (merge_op/final_op) for ", request.device,
                            ", but ", first.reduction, " for ", first.device, which());
  }
  if (request.shape != first.shape) {
    return errors::InvalidArgument(
        "Shape mismatch in the collective instance ", request.instance_key, ". Op at device ",
        request.device, " expected shape ", request.shape.DebugString(), " but the member at ",
        first.device, " expected shape ", first.shape.DebugString(), which());
  }
  return OkStatus();
}

void CollectiveDirectory::JoinInstance(const InstanceRequest& request,
                                       CancellationManager* cancellation,
                                       CollectivePeer::InstanceDone done) {
  auto waiter = MakeRef<InstanceWaiter>(std::move(done));
  const InstanceId id{request.step_id, request.group_key, request.instance_key};
  waiter->Watch(cancellation, [this, id](const InstanceWaiter::Done& give_up) {
    int joined = 0;
    std::size_t size = 0;
    {
      MutexLock lock(&mu_);
      const auto it = instances_.find(id);
      if (it != instances_.end()) {
        joined = it->second.num_joined;
        size = it->second.joined.size();
      }
    }
    give_up(errors::Cancelled("the collective instance ", std::get<2>(id), " of group ",
                              std::get<1>(id), " was not complete: ", joined, " of ", size,
                              " members had come to it"));
  });
  std::vector<RefPtr<InstanceWaiter>> waiters, dropped;
  StatusOr<int> answer = -1;
  {
    MutexLock lock(&mu_);
    const auto found = groups_.find(request.group_key);
    const CollectiveGroup* group = found == groups_.end() ? nullptr : found->second.complete.get();
    const int rank = group == nullptr ? -1 : found->second.RankOf(request.device);
    if (group == nullptr) {
      answer = errors::FailedPrecondition(
          "group ", request.group_key,
          " not found. This normally means the server has restarted (its members will form it "
          "anew at their next step)");
    } else if (rank < 0) {
      answer = errors::Internal("device ", request.device, " of node ", request.node,
                                " is no member of the collective group ", request.group_key);
    } else {
      if (instances_.size() >= kMaxInstances && !instances_.contains(id)) {
        dropped.swap(instances_.begin()->second.waiters);
        instances_.erase(instances_.begin());
      }
      Instance& instance = instances_[id];
      if (instance.joined.empty()) {
        instance.first = request;
        instance.joined.resize(group->size());
      }
      bool again = instance.joined[rank];
      const bool changed = !instance.error.ok() || !CheckSame(instance, request).ok() ||
                           (instance.source_rank == rank) != request.is_source;
      if (again && changed && request.step_id == 0) {
        dropped.swap(instance.waiters);
        instance = Instance();
        instance.first = request;
        instance.joined.resize(group->size());
        again = false;
      }
      if (instance.error.ok()) instance.error = CheckSame(instance, request);
      if (instance.error.ok() && request.is_source) {
        if (instance.source_rank >= 0 && instance.source_rank != rank) {
          instance.error =
              errors::Internal("Instance ", request.instance_key, " already has source ",
                               instance.source_rank, ", received second claim from ", rank,
                               " (node ", request.node, " at ", request.device, ")");
        }
        instance.source_rank = rank;
      }
      if (!again) {
        instance.joined[rank] = true;
        ++instance.num_joined;
      }
      const bool all = instance.num_joined == static_cast<int>(instance.joined.size());
      if (instance.error.ok() && all && request.kind == CollectiveKind::kBroadcast &&
          instance.source_rank < 0) {
        instance.error = errors::Internal("Instance ", request.instance_key,
                                          " found no source for broadcast.  This could mean that "
                                          "there were group_size=",
                                          group->size(), " BcastRecvs but no BcastSend.");
      }
      if (instance.error.ok() && !all && request.kind == CollectiveKind::kBroadcast) {
        AddWaiter(&instance.waiters, std::move(waiter));
        return;
      }
      if (!instance.error.ok()) {
        answer = instance.error;
      } else {
        answer = instance.source_rank;
      }
      if (all || !instance.error.ok()) waiters.swap(instance.waiters);
      if (all && request.step_id != 0) instances_.erase(id);
    }
  }
  if (waiter->Claim()) waiter->Finish(answer);
  FinishAll(waiters, answer);
  FinishAll(dropped, StatusOr<int>(errors::Aborted("the collective was begun anew, or too many ",
                                                   "wait for their members")));
}

void CollectiveDirectory::ListWaits(std::vector<Wait>* waits) const {
  MutexLock lock(&mu_);
  for (const auto& [key, group] : groups_) {
    if (group.complete != nullptr || !AnyWaits(group.waiters)) continue;
    std::string there;
    for (const auto& [member, attributes] : group.joined) {
      StrAppend(&there, there.empty() ? "" : ", ", member);
    }
    Wait& wait = waits->emplace_back();
    wait.kind = Wait::Kind::kCollective;
    wait.name = StrCat(key);
    wait.text = StrCat("the collective group ", key, " of ", group.size,
                       " members is not complete here, at its leader; there are: ", there);
  }
  ListInstanceWaits(waits);
}

void CollectiveDirectory::ListInstanceWaits(std::vector<Wait>* waits) const {
  for (const auto& [id, instance] : instances_) {
    const int32_t group_key = std::get<1>(id);
    const auto group = groups_.find(group_key);
    if (!AnyWaits(instance.waiters) || group == groups_.end()) continue;
    const CollectiveGroup* const members = group->second.complete.get();
    if (members == nullptr || members->size() != static_cast<int>(instance.joined.size())) continue;
    std::string missing, task;
    for (int rank = 0; rank < members->size(); ++rank) {
      if (instance.joined[rank]) continue;
      if (task.empty()) task = members->tasks[rank];
      StrAppend(&missing, missing.empty() ? "" : ", ", "rank ", rank, ", ",
                members->members[rank].name);
    }
    Wait& wait = waits->emplace_back();
    wait.kind = Wait::Kind::kCollective;
    wait.node = instance.first.node;
    wait.name = StrCat(group_key, "/", std::get<2>(id));
    wait.peer = task;
    wait.text = StrCat("the collective instance ", std::get<2>(id), " of group ", group_key,
                       " is not complete here, at its leader: ", instance.num_joined, " of ",
                       members->size(), " members have come to it; there lack: ", missing);
  }
}

void CollectiveDirectory::ForgetStep(int64_t step_id) {
  MutexLock lock(&mu_);
  auto it = instances_.lower_bound({step_id, INT32_MIN, INT32_MIN});
  while (it != instances_.end() && std::get<0>(it->first) == step_id) {
    // Members of another group may still be about to begin.
    DropClaimed(&it->second.waiters);
    it = it->second.waiters.empty() ? instances_.erase(it) : std::next(it);
  }
}

}  // namespace millrace
