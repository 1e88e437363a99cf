// SPDX-License-Identifier: Apache-2.0
// A step that is fed and fetched in several calls.
#ifndef MASTER_PARTIAL_RUN_H_
#define MASTER_PARTIAL_RUN_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "master/plan_cache.h"
#include "master/step.h"

namespace millrace {

// Thread-safe.
class PartialRun {
 public:
  PartialRun(std::string handle, std::shared_ptr<Plan> plan, int64_t step_id);

  const std::string& handle() const { return handle_; }
  int64_t step_id() const { return step_id_; }

  // One call of the run.
  struct Round {
    RefPtr<Step> step;                // ready to run under step_id()
    std::vector<Plan::Slot> fetches;  // of the call, in its order
    bool is_last = false;             // everything has been fed and fetched after it
  };
  // InvalidArgument for a feed or fetch that was not announced or was used before, and for a
  // fetch that needs what has not been fed yet; nothing has happened then.
  StatusOr<Round> Begin(std::span<const std::pair<std::string, Tensor>> feeds,
                        std::span<const std::string> fetches);
  // True if the run is over: this was its last round, or `status` is an error, which ends the
  // other rounds too.
  bool End(Step* round, const Status& status);
  // Frees what the workers hold for the step.
  void Cleanup();

 private:
  Status CheckFetches(const std::vector<int>& fetches) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string handle_;
  const std::shared_ptr<Plan> plan_;
  const int64_t step_id_;
  Mutex mu_;
  std::vector<bool> fed_ ABSL_GUARDED_BY(mu_), fetched_ ABSL_GUARDED_BY(mu_);
  std::vector<RefPtr<Step>> rounds_ ABSL_GUARDED_BY(mu_);  // that run now
  bool last_begun_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace

#endif  // MASTER_PARTIAL_RUN_H_
