// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "session/rendezvous_manager.h"

namespace millrace {
namespace {

class LocalRendezvousManager : public RendezvousManager {
 public:
  RefPtr<Rendezvous> Find(int64_t step_id) override {
    MutexLock lock(&mu_);
    RefPtr<Rendezvous>& found = steps_[step_id];
    if (!found) found = NewLocalRendezvous();
    return found;
  }

  void Cleanup(int64_t step_id) override {
    RefPtr<Rendezvous> rendezvous;
    {
      MutexLock lock(&mu_);
      const auto it = steps_.find(step_id);
      if (it == steps_.end()) return;
      rendezvous = std::move(it->second);
      steps_.erase(it);
    }
    // Nobody else knows it: nothing to abort, and no text to make.
    if (rendezvous->RefCountIsOne()) return;
    rendezvous->StartAbort(MarkDerived(errors::Aborted("Cleanup ", step_id)));
  }

  void CleanupAll(const Status& status) override {
    absl::flat_hash_map<int64_t, RefPtr<Rendezvous>> steps;
    {
      MutexLock lock(&mu_);
      steps.swap(steps_);
    }
    for (const auto& [step_id, rendezvous] : steps) rendezvous->StartAbort(status);
  }

 private:
  Mutex mu_;
  absl::flat_hash_map<int64_t, RefPtr<Rendezvous>> steps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<RendezvousManager> NewLocalRendezvousManager() {
  return std::make_unique<LocalRendezvousManager>();
}

}  // namespace millrace
