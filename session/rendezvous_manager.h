// SPDX-License-Identifier: Apache-2.0
// The rendezvous of the steps that run, or are about to run, in this task.
#ifndef SESSION_RENDEZVOUS_MANAGER_H_
#define SESSION_RENDEZVOUS_MANAGER_H_

#include <cstdint>
#include <memory>

#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "rendezvous/rendezvous.h"

namespace millrace {

// Thread-safe. The rendezvous it makes serve this task's executors and the peers' requests
// alike: a receive whose source device is in this task meets a local send; one whose source
// is in another task is fetched from there (the distributed implementation) or fails with
// InvalidArgument (the local one).
class RendezvousManager {
 public:
  virtual ~RendezvousManager() = default;
  // The step's rendezvous, made on the first call: a peer may ask before the step starts here.
  virtual RefPtr<Rendezvous> Find(int64_t step_id) = 0;
  // The same for the request of a peer, which ends with PeerDone. A step that nobody has begun here
  // is forgotten with the last request for it. ResourceExhausted if there are too many of them.
  virtual StatusOr<RefPtr<Rendezvous>> FindForPeer(int64_t step_id) { return Find(step_id); }
  virtual void PeerDone(int64_t /*step_id*/, const Rendezvous* /*found*/) {}
  // Forgets the step and aborts its rendezvous with Aborted "Cleanup <step_id>". Not an error
  // if there is none.
  virtual void Cleanup(int64_t step_id) = 0;
  // The same for all steps, with `status`: the task is going down.
  virtual void CleanupAll(const Status& status) = 0;
};

// For a task that has no peers.
std::unique_ptr<RendezvousManager> NewLocalRendezvousManager();

}  // namespace millrace

#endif  // SESSION_RENDEZVOUS_MANAGER_H_
