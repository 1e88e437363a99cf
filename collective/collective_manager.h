// SPDX-License-Identifier: Apache-2.0
// The collectives of one task: its steps', those that other tasks ask for, and the tables that it
// keeps as a leader.
#ifndef COLLECTIVE_COLLECTIVE_MANAGER_H_
#define COLLECTIVE_COLLECTIVE_MANAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.h"
#include "base/notification.h"
#include "base/thread_pool.h"
#include "collective/collective_executor.h"
#include "collective/peer.h"
#include "device/device.h"
#include "millrace/status.h"

namespace millrace {

struct CollectiveOptions {
  std::string task;  // "/job:J/replica:R/task:T"
  std::vector<DeviceAttributes> devices;
  // The task that keeps the tables where neither the session nor its master says which: "" for
  // the step's own default.
  std::string leader;
  // Another task, null if the cluster has no such one. What it gives outlives the manager.
  std::function<CollectivePeer*(std::string_view task)> peer;
  ThreadPool* pool = nullptr;  // for arithmetic on large pieces
  // Runs a function at a time; calling what it gives back takes it back.
  std::function<std::function<void()>(Deadline, std::function<void()>)> at;
  // A collective that takes longer looks after the tasks of its members from then on.
  std::chrono::milliseconds patience{1000};
};

// Thread-safe. Steps that run keep it alive.
class CollectiveManager {
 public:
  virtual ~CollectiveManager() = default;

  // What serves the other tasks, and this one where it is the leader.
  virtual CollectivePeer* local() = 0;
  // The leader of a session whose configuration names `configured` (may be "") and whose master
  // is at `master_task` (may be ""): the first of them that is known, of all else this task.
  virtual std::string ChooseLeader(std::string_view configured,
                                   std::string_view master_task) const = 0;

  // The collectives of a step that begins here; others may have asked for its pieces already.
  virtual RefPtr<CollectiveExecutor> NewStep(int64_t step_id, const std::string& leader) = 0;
  // When the step is over. One that failed is remembered for a while, so that members that come
  // late learn why.
  virtual void Cleanup(int64_t step_id) = 0;
  virtual void CleanupAll(const Status& reason) = 0;

  // The id of the next step with this graph key; RetireStepId must follow. One at a time: a
  // second step with the key waits for the first one's end. `done` may run before it returns.
  virtual void NextStepId(const std::string& leader, int64_t graph_key,
                          CancellationManager* cancellation,
                          std::function<void(StatusOr<int64_t>)> done) = 0;
  // After an error the leader is asked for another sequence.
  virtual void RetireStepId(int64_t graph_key, int64_t step_id, bool succeeded) = 0;
};

std::shared_ptr<CollectiveManager> NewCollectiveManager(CollectiveOptions options);

}  // namespace millrace

#endif  // COLLECTIVE_COLLECTIVE_MANAGER_H_
