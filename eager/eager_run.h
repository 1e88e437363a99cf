// SPDX-License-Identifier: Apache-2.0
// One run of a program in a context.
#ifndef EAGER_EAGER_RUN_H_
#define EAGER_EAGER_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/linked_cancellation.h"
#include "eager/observer.h"
#include "eager/program.h"
#include "executor/memory/memory_tracker.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "session/worker_interface.h"

namespace millrace {

class EagerContext;  // eager/context.h

// Keeps itself and its context until it has ended. The context can end it, and so can its caller.
class EagerRun : public LinkedCancellation {
 public:
  using Done = std::function<void(Status status, std::span<Tensor> results)>;

  EagerRun(std::shared_ptr<EagerContext> context, std::shared_ptr<const EagerProgram> program,
           std::vector<Tensor> args);

  // Once. What sends and receives meet in `rendezvous`, which may be null for programs that have
  // none; an error aborts it. What the program keeps in its container goes when no handle of the
  // context names it. `done` may be called before this returns; Aborted if the context is closed.
  // `step`, which may be null, is told of the run as a part of it.
  void Start(const CallOptions& options, int64_t step_id, RefPtr<Rendezvous> rendezvous,
             std::string container, Done done, std::shared_ptr<EagerStep> step = nullptr);

 private:
  static void Ended(void* arg, Status status);

  const std::shared_ptr<EagerContext> context_;
  const std::shared_ptr<const EagerProgram> program_;
  const std::vector<Tensor> args_;
  std::vector<Tensor> results_;
  RefPtr<Rendezvous> rendezvous_;
  std::string container_;
  Done done_;
  std::shared_ptr<EagerStep> step_;
  pb::StepStats stats_;
  RefPtr<MemoryTracker> memory_;  // null: the context has no quota
};

}  // namespace millrace

#endif  // EAGER_EAGER_RUN_H_
