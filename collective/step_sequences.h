// SPDX-License-Identifier: Apache-2.0
// Step ids that several masters agree on.
#ifndef COLLECTIVE_STEP_SEQUENCES_H_
#define COLLECTIVE_STEP_SEQUENCES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/cancellation.h"
#include "base/mutex.h"
#include "collective/pending.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"

namespace millrace {

// By graph key: the id that a step should have, which is one more after every good end.
// Thread-safe.
class StepSequences {
 public:
  using Done = std::function<void(StatusOr<int64_t>)>;
  // The leader is asked as long as the answer is wanted: until the cancellation.
  using Wanted = std::shared_ptr<CancellationManager>;
  // Asks the leader for the id of a key; null for the leader itself.
  using Refresh = std::function<void(Done, const Wanted& wanted)>;
  // Keys that are kept: more than a cluster has graphs with collectives.
  static constexpr std::size_t kMostKeys = 65536;

  // Waits for the end of the step under way, if there is one.
  void Next(int64_t graph_key, const Refresh& refresh, CancellationManager* cancellation,
            Done done);
  void Retire(int64_t graph_key, int64_t step_id, bool succeeded);
  // For the members: as a leader.
  // ResourceExhausted if there are too many keys.
  StatusOr<int64_t> Peek(int64_t graph_key);

 private:
  struct Waiter {
    RefPtr<Pending<StatusOr<int64_t>>> pending;
    Refresh refresh;
    Wanted wanted;
  };
  struct Sequence {
    int64_t next = 0;  // 0: not known
    bool running = false;
    std::vector<Waiter> waiters;  // the oldest first
  };
  // Null if there are too many.
  Sequence* Find(int64_t graph_key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Grant(int64_t graph_key, Waiter waiter);
  void GrantNext(int64_t graph_key);

  Mutex mu_;
  absl::flat_hash_map<int64_t, Sequence> sequences_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // COLLECTIVE_STEP_SEQUENCES_H_
