// SPDX-License-Identifier: Apache-2.0
// The tasks of a cluster as the collectives of one of them know them.
#ifndef COLLECTIVE_KNOWN_TASKS_H_
#define COLLECTIVE_KNOWN_TASKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "collective/collective_manager.h"
#include "collective/collective_types.h"
#include "collective/peer.h"
#include "millrace/status.h"

namespace millrace {

// How to reach the others, the groups that leaders have told of, and timers. Thread-safe.
class KnownTasks {
 public:
  // `local` serves this very task and outlives this.
  KnownTasks(const CollectiveOptions& options, CollectivePeer* local)
      : options_(options), local_(local) {}

  const CollectiveOptions& options() const { return options_; }

  // InvalidArgument if the cluster has no such task.
  StatusOr<CollectivePeer*> Peer(std::string_view task) const;

  // The group of this key that `leader` has told of; null if it has not.
  std::shared_ptr<const CollectiveGroup> FindGroup(const std::string& leader, int32_t key) const;
  void RememberGroup(const std::string& leader, std::shared_ptr<const CollectiveGroup> group);
  // After an error: one of the members may have restarted.
  void ForgetGroup(const std::string& leader, int32_t key);

  // For what a timer calls, which may be late: false, and nothing done, if the task is going down
  // and its peers with it.
  template <typename Use>
  bool WithPeers(const Use& use) {
    if (!Enter()) return false;
    use();
    Leave();
    return true;
  }
  // The task is going down: WithPeers does nothing any more once this has returned. Not from
  // within it.
  void Stop();

  // Runs `what` at that time; calling what it gives back takes it back.
  std::function<void()> At(Deadline deadline, std::function<void()> what) const;

 private:
  bool Enter();
  void Leave();

  const CollectiveOptions& options_;
  CollectivePeer* const local_;
  Mutex stop_mu_;
  CondVar none_using_;
  bool stopped_ ABSL_GUARDED_BY(stop_mu_) = false;
  int using_ ABSL_GUARDED_BY(stop_mu_) = 0;
  mutable Mutex mu_;
  std::map<std::pair<std::string, int32_t>, std::shared_ptr<const CollectiveGroup>> groups_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // COLLECTIVE_KNOWN_TASKS_H_
