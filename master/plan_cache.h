// SPDX-License-Identifier: Apache-2.0
// From what a client asks for to the plan that computes it.
#ifndef MASTER_PLAN_CACHE_H_
#define MASTER_PLAN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/string_map.h"
#include "master/plan.h"
#include "millrace/ref_ptr.h"
#include "millrace/tensor.h"

namespace millrace {

// "n" and "n:0" are the same tensor; the second is its canonical name.
std::string CanonicalTensorName(std::string_view name);

// A request as the client worded it, and where its feeds and fetches are in the plan.
struct Binding {
  std::vector<std::string> feed_names, fetch_names, target_names;  // as given
  std::vector<int> feeds, fetches;  // position in the request -> index in the plan's signature
  std::shared_ptr<Plan> plan;       // null until it is built
};

// The plan's signature of a request: canonical names, fetches and targets sorted without
// repetition. InvalidArgument for no fetch and no target, and for a tensor fed more than once
// or both fed and fetched. `binding` gets the names and positions.
StatusOr<RunSignature> MakeSignature(std::vector<std::string> feeds,
                                     std::vector<std::string> fetches,
                                     std::vector<std::string> targets, Binding* binding);

// Thread-safe.
class PlanCache {
 public:
  using Ready = std::function<void(StatusOr<std::shared_ptr<Plan>>)>;
  // One attempt to build a plan, as its builder sees it.
  struct Attempt {
    // When nobody waits any more.
    CancellationManager cancellation;
    // Tasks that have been asked to take their part and have not answered; for those who leave.
    Mutex mu;
    std::vector<std::string> asked ABSL_GUARDED_BY(mu);
    std::string WaitsFor();
  };
  // Builds and registers a plan; calls back once, soon after the cancellation if there is one.
  using Builder = std::function<void(RunSignature, std::shared_ptr<Attempt>, Ready)>;
  // How long a caller waits for a plan.
  struct Patience {
    Deadline deadline = kNoDeadline;
    CancellationManager* caller = nullptr;
    int64_t request_id = 0;  // the step's, for the log
  };

  // `session` is whom log lines are about.
  explicit PlanCache(std::string session = "") : session_(std::move(session)) {}

  // The binding of a request that was seen before, word for word; else null. No allocation.
  std::shared_ptr<const Binding> Find(std::span<const std::pair<std::string, Tensor>> feeds,
                                      std::span<const std::string> fetches,
                                      std::span<const std::string> targets,
                                      int64_t collective_graph_key = 0) const;
  void Remember(std::shared_ptr<const Binding> binding);

  // The plan of a signature, built by `build` if nobody has or does. A plan that fails is
  // forgotten: all that wait for it get the error. Each waits as long as it said, and no longer
  // (DeadlineExceeded, Cancelled); when the last one has left, the building is cancelled. The cache
  // must live until the last callback.
  void Get(RunSignature signature, const Patience& patience, const Builder& build, Ready ready);
  std::vector<std::shared_ptr<Plan>> All() const;

 private:
  class Waiter;
  struct Building : Attempt {
    std::string key;
    std::vector<RefPtr<Waiter>> waiters;  // guarded by mu_
  };
  struct Entry {
    std::shared_ptr<Plan> plan;          // null while it is built
    std::shared_ptr<Building> building;  // null when it is
  };
  void Built(const std::shared_ptr<Building>& building, StatusOr<std::shared_ptr<Plan>> plan);
  void GiveUp(const std::shared_ptr<Building>& building, Waiter* waiter, Status why);
  // Log line, empty most of the time, for whoever asks for another plan in most of his runs.
  std::string NoticeOf(const RunSignature& signature) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string session_;
  mutable Mutex mu_;
  StringMap<Entry> plans_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<size_t, std::vector<std::shared_ptr<const Binding>>> bindings_
      ABSL_GUARDED_BY(mu_);
  // Requests that were known, and that were not.
  mutable int64_t known_ ABSL_GUARDED_BY(mu_) = 0, unknown_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_notice_ ABSL_GUARDED_BY(mu_) = 16;  // unknown ones
  RunSignature last_ ABSL_GUARDED_BY(mu_);         // for which a plan was made
};

}  // namespace millrace

#endif  // MASTER_PLAN_CACHE_H_
