// SPDX-License-Identifier: Apache-2.0
// Steps of a worker that are fed and fetched in several RunGraph calls.
#ifndef WORKER_PARTIAL_STEPS_H_
#define WORKER_PARTIAL_STEPS_H_

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "session/worker_interface.h"
#include "worker/worker_session.h"

namespace millrace {

// Thread-safe. The executors of a step start with its first call and wait for what later
// calls feed; a call returns as soon as its own fetches are there, the last one when the
// executors have ended.
class PartialSteps {
 public:
  // One RunGraph call with is_partial set.
  void Run(const CallOptions& options, const std::shared_ptr<WorkerSession>& session,
           const std::shared_ptr<WorkerGraph>& graph, RunGraphArgs* args, RunGraphResult* result,
           WorkerInterface::Done done);
  // The step will not be continued. Its rendezvous must be aborted, to end its executors.
  void Forget(int64_t step_id);

 private:
  struct Entry;
  // Null, and `status` set, if the session is closed.
  std::shared_ptr<Entry> FindOrStart(const std::shared_ptr<WorkerSession>& session,
                                     const std::shared_ptr<WorkerGraph>& graph,
                                     const RunGraphArgs& args, Status* status);

  Mutex mu_;
  absl::flat_hash_map<int64_t, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // WORKER_PARTIAL_STEPS_H_
