// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/save_bound.h"

#include <algorithm>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "examples/mnist/keeper.h"
#include "examples/mnist/task.h"
#include "millrace/ops.h"
#include "millrace/variables.h"

namespace millrace::mnist {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{2};
constexpr std::chrono::milliseconds kSaveAgain{50};
constexpr std::chrono::seconds kSeldom{1};  // where nobody seems to save

}  // namespace

bool SaveBound::IsNeeded(const Flags& flags) {
  return !flags.sync_replicas && !flags.checkpoint_dir.empty();
}

StatusOr<std::unique_ptr<SaveBound>> SaveBound::Create(const Flags& flags, Graph& graph,
                                                       const Output& global_step, int num_workers) {
  std::unique_ptr<SaveBound> bound(new SaveBound(flags, global_step, num_workers));
  const Scope s = graph.root().ColocateWith(global_step.op()).Named("saved_step");
  bound->value_ = Placeholder(s.WithOpName("value"), kInt64, {});
  const Output handle = ops::VarHandleOp(s.WithOpName("handle"), kInt64, PartialShape({}),
                                         {.shared_name = "mnist_saved_step"});
  bound->is_there_ = ops::VarIsInitializedOp(s, handle);
  bound->read_ = ops::ReadVariableOp(s, handle, kInt64);
  bound->set_ = ops::AssignVariableOp(s, handle, bound->value_);
  MR_RETURN_IF_ERROR(graph.status());
  return bound;
}

SaveBound::SaveBound(const Flags& flags, Output global_step, int num_workers)
    : flags_(flags), global_step_(std::move(global_step)), num_workers_(num_workers) {}

// What a worker knows of the global step is from within its last step: until then that one, and
// one of each other worker, may not have been applied, and afterwards each may begin one more.
int64_t SaveBound::period() const {
  return std::max<int64_t>(1, int64_t{flags_.save_steps} - 2 * num_workers_);
}

Status SaveBound::SetSaved(Session& session, int64_t step) {
  saved_ = step;
  return session.Run({{value_, Tensor::Scalar<int64_t>(step)}}, {}, {set_}).status();
}

Status SaveBound::AwaitRoom(SupervisedSession& session, int64_t global_step, const Save& save) {
  // What is saved only grows: what this worker knows is enough.
  if (global_step <= saved_ + flags_.save_steps - 2 * num_workers_) return OkStatus();
  if (waived_ == saved_ && Clock::now() < next_look_) return OkStatus();
  const int64_t room = std::max<int64_t>(0, int64_t{flags_.save_steps} - num_workers_);
  const std::chrono::seconds limit(flags_.ready_timeout);
  const auto give_up = Clock::now() + limit;
  for (bool told = false; StopSignal() == 0;) {
    const Output fetches[] = {is_there_, global_step_};
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> now, session.Run({}, fetches));
    // The chief knows it itself, even where it could not tell the others.
    if (!save && now[0].scalar<bool>()) {
      MR_ASSIGN_OR_RETURN(const std::vector<Tensor> saved, session.Run({}, std::span(&read_, 1)));
      saved_ = saved[0].scalar<int64_t>();
    }
    const int64_t step = now[1].scalar<int64_t>();
    if (step >= flags_.train_steps || step <= saved_ + room) return OkStatus();
    // The others make no more than a step each meanwhile: there is room for one of the chief.
    if (save && save(step)) return OkStatus();
    const bool is_late = Clock::now() >= give_up;
    if (is_late && waived_ != saved_ && save) {
      Keeper::TellOfWaiver(saved_, limit);
    } else if (is_late && waived_ != saved_) {
      MR_LOG(kWarning, "nothing has been saved since global step ", saved_, " for ",
             flags_.ready_timeout,
             " s (--ready_timeout); training goes on, and more than --save_steps may be lost: is "
             "/job:worker/task:0 there, with the same --checkpoint_dir, and can it save?");
    }
    if (is_late || waived_ == saved_) {
      waived_ = saved_;
      next_look_ = Clock::now() + kSeldom;
      return OkStatus();
    }
    if (save && !told) Keeper::TellOfWait(saved_, limit);
    told = true;
    std::this_thread::sleep_for(save ? kSaveAgain : kLook);
  }
  return OkStatus();
}

}  // namespace millrace::mnist
