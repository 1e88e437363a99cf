// SPDX-License-Identifier: Apache-2.0
// One call of a function whose parts run in several tasks.
#ifndef EAGER_PLAN_RUN_H_
#define EAGER_PLAN_RUN_H_

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/linked_cancellation.h"
#include "base/mutex.h"
#include "eager/context.h"
#include "eager/operation.h"

namespace millrace {

// Keeps itself until all parts have ended. The first error that is not derived from another one is
// that of the call; it ends the other parts.
class PlanRun : public LinkedCancellation {
 public:
  // `operation` and `answer` must stay valid until `done`.
  PlanRun(std::shared_ptr<EagerContext> context, std::shared_ptr<const FunctionPlan> plan,
          const pb::Operation& operation, pb::QueueResponse* answer, EagerDone done);

  void Start(const CallOptions& options);

 private:
  void StartPart(RemotePart* part);
  void RunPart(RemotePart* part, const std::shared_ptr<EagerPeer>& peer);
  void StartOwn(std::vector<Tensor> args);
  Status TakeOwnResults(std::span<Tensor> results);
  void PartEnded(Status status);
  void Finish();

  const std::shared_ptr<EagerContext> context_;
  const std::shared_ptr<const FunctionPlan> plan_;
  const pb::Operation& operation_;
  pb::QueueResponse* const answer_;
  EagerDone done_;
  int64_t step_id_ = 0;
  std::shared_ptr<EagerStep> step_;  // null: nobody watches
  RefPtr<Rendezvous> rendezvous_;    // null if all of it runs here
  std::vector<pb::TensorShapeProto> shapes_;
  std::atomic<int> pending_{0};
  Mutex mu_;
  Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // EAGER_PLAN_RUN_H_
