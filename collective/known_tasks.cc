// SPDX-License-Identifier: Apache-2.0
#include "collective/known_tasks.h"

#include "base/errors.h"

namespace millrace {

StatusOr<CollectivePeer*> KnownTasks::Peer(std::string_view task) const {
  if (task == options_.task) return local_;
  CollectivePeer* const peer = options_.peer == nullptr ? nullptr : options_.peer(task);
  if (peer == nullptr) {
    return errors::InvalidArgument("the cluster has no task '", task, "' for collectives");
  }
  return peer;
}

std::shared_ptr<const CollectiveGroup> KnownTasks::FindGroup(const std::string& leader,
                                                             int32_t key) const {
  MutexLock lock(&mu_);
  const auto it = groups_.find({leader, key});
  return it == groups_.end() ? nullptr : it->second;
}

void KnownTasks::RememberGroup(const std::string& leader,
                               std::shared_ptr<const CollectiveGroup> group) {
  MutexLock lock(&mu_);
  const int32_t key = group->key;
  groups_[{leader, key}] = std::move(group);
}

void KnownTasks::ForgetGroup(const std::string& leader, int32_t key) {
  MutexLock lock(&mu_);
  groups_.erase({leader, key});
}

void KnownTasks::Stop() {
  MutexLock lock(&stop_mu_);
  stopped_ = true;
  while (using_ > 0) none_using_.Wait(&stop_mu_);
}

bool KnownTasks::Enter() {
  MutexLock lock(&stop_mu_);
  if (stopped_) return false;
  ++using_;
  return true;
}

void KnownTasks::Leave() {
  MutexLock lock(&stop_mu_);
  if (--using_ == 0) none_using_.SignalAll();
}

std::function<void()> KnownTasks::At(Deadline deadline, std::function<void()> what) const {
  if (options_.at == nullptr) return [] {};
  return options_.at(deadline, std::move(what));
}

}  // namespace millrace
