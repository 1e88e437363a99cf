// SPDX-License-Identifier: Apache-2.0
#ifndef COLLECTIVE_STEP_COLLECTIVES_H_
#define COLLECTIVE_STEP_COLLECTIVES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/wait.h"
#include "collective/algorithms.h"
#include "collective/buffer_exchange.h"
#include "collective/collective_executor.h"
#include "collective/known_tasks.h"
#include "collective/step_transport.h"

namespace millrace {

// The collectives of one step of one task. The first error, of whatever it does, ends them all.
class StepCollectives final : public CollectiveExecutor, public WaitLister {
 public:
  StepCollectives(std::shared_ptr<KnownTasks> tasks, std::string leader, int64_t step_id,
                  RefPtr<BufferExchange> exchange)
      : tasks_(tasks),
        leader_(std::move(leader)),
        transport_(MakeRef<StepTransport>(std::move(tasks), step_id, std::move(exchange))) {}
  ~StepCollectives() override { transport_->StopWatching(); }

  void ResolveAsync(const CollectiveParams& params, const Device& device,
                    Resolved resolved) override;
  bool IsCurrent(const ResolvedCollective& resolved) const override;
  void RunAsync(std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                const Tensor& input, const Tensor& output, Done done) override;
  void AgreeAsync(std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                  std::string note, Decide decide, Agreed agreed) override;
  std::shared_ptr<Guard> GuardRun(std::shared_ptr<const ResolvedCollective> resolved,
                                  std::function<void(const Status&)> stop) override;
  void Abort(const Status& reason) override { transport_->Abort(reason); }
  void ListWaits(std::vector<Wait>* waits) const override;

 private:
  struct Resolution;
  struct Timers;
  class RunGuard;
  std::shared_ptr<Timers> StartTimers(const CollectiveParams& params, const char* doing);
  std::shared_ptr<Timers> StartRunTimers(const std::shared_ptr<const ResolvedCollective>& resolved);
  // What moves pieces, and ends with `done`.
  CollectiveRun NewRun(std::shared_ptr<const ResolvedCollective> resolved, std::string key,
                       const Tensor& input, const Tensor& output, Done done);
  void ResolveInstance(const std::shared_ptr<Resolution>& r,
                       std::shared_ptr<const CollectiveGroup> group);
  void FinishResolution(const std::shared_ptr<Resolution>& r, Status status);

  const std::shared_ptr<KnownTasks> tasks_;
  const std::string leader_;
  const RefPtr<StepTransport> transport_;
  mutable Mutex mu_;
  std::set<std::shared_ptr<Resolution>> resolving_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // COLLECTIVE_STEP_COLLECTIVES_H_
