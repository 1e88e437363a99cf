// SPDX-License-Identifier: Apache-2.0
#include "eager/eager_run.h"

#include <utility>

#include "base/errors.h"
#include "eager/context.h"

namespace millrace {

EagerRun::EagerRun(std::shared_ptr<EagerContext> context,
                   std::shared_ptr<const EagerProgram> program, std::vector<Tensor> args)
    : context_(std::move(context)),
      program_(std::move(program)),
      args_(std::move(args)),
      results_(program_->result_types().size()) {}

void EagerRun::Start(const CallOptions& options, int64_t step_id, RefPtr<Rendezvous> rendezvous,
                     std::string container, Done done, std::shared_ptr<EagerStep> step) {
  rendezvous_ = std::move(rendezvous);
  container_ = std::move(container);
  done_ = std::move(done);
  if (Status entered = context_->Enter(this, program_->name()); !entered.ok()) {
    return done_(std::move(entered), results_);
  }
  Ref();  // dropped by Ended
  step_ = std::move(step);
  const bool records = step_ != nullptr && step_->PartBegins(context_->task());
  if (!container_.empty()) context_->handles()->Hold(container_, program_->devices());
  Link(options.cancellation);
  FunctionCall call;
  call.step_id = step_id;
  call.cancellation = get();
  call.step_container = container_;
  if (context_->memory_quota()) memory_ = MakeRef<MemoryTracker>(0, context_->memory_quota());
  const MemoryTracker::Scope scope(memory_.get());
  program_->RunAsync(call, rendezvous_.get(), args_, results_, {&EagerRun::Ended, this},
                     records ? &stats_ : nullptr);
}

void EagerRun::Ended(void* arg, Status status) {
  auto* const run = static_cast<EagerRun*>(arg);
  run->Unlink();
  if (run->step_ != nullptr) run->step_->PartEnds(run->context_->task(), &run->stats_);
  const Done done = std::exchange(run->done_, nullptr);
  done(std::move(status), run->results_);
  if (!run->container_.empty()) run->context_->handles()->LetGo(run->container_);
  run->context_->Leave(run);
  run->Unref();
}

}  // namespace millrace
