// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/rounds.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "examples/mnist/task.h"
#include "millrace/attr_value.h"
#include "millrace/ops.h"
#include "millrace/variables.h"

namespace millrace::mnist {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{10};        // how often
constexpr std::chrono::milliseconds kPause{200};      // after what may pass
constexpr std::chrono::milliseconds kSignals{100};    // between those of a job's tasks
constexpr std::chrono::milliseconds kSilence{1'000};  // before it is told for whom a chief waits

Status CheckSignal() {
  if (StopSignal() == 0) return OkStatus();
  return errors::Cancelled("stopped by signal ", StopSignal());
}

}  // namespace

bool Rounds::AreNeeded(const Flags& flags, int num_workers) {
  return flags.sync_replicas && !flags.checkpoint_dir.empty() &&
         (flags.replicas_to_aggregate <= 0 || flags.replicas_to_aggregate == num_workers);
}

bool Rounds::IsOver(const Status& status) {
  return errors::IsAborted(status) || errors::IsUnavailable(status) ||
         errors::IsCancelled(status) || errors::IsDeadlineExceeded(status) ||
         // A queue that is closed or gone, a variable without a value.
         errors::IsOutOfRange(status) || errors::IsNotFound(status) ||
         errors::IsFailedPrecondition(status);
}

bool Rounds::IsStop(const Status& status) {
  const auto deadline = Clock::now() + kSignals;
  while (StopSignal() == 0 && errors::IsOutOfRange(status) && Clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
  }
  return StopSignal() != 0;
}

StatusOr<std::unique_ptr<Rounds>> Rounds::Create(const Flags& flags, Graph& graph,
                                                 const Output& global_step, int num_workers) {
  std::unique_ptr<Rounds> rounds(new Rounds(flags, graph, global_step, num_workers));
  rounds->Build();
  MR_RETURN_IF_ERROR(graph.status());
  return rounds;
}

Rounds::Rounds(const Flags& flags, Graph& graph, Output global_step, int num_workers)
    : flags_(flags),
      graph_(graph),
      global_step_(std::move(global_step)),
      num_workers_(num_workers) {}

void Rounds::Build() {
  const Scope s = graph_.root().WithDevice("/job:ps/task:0/cpu:0").Named("round");
  value_ = Placeholder(s.WithOpName("value"), kInt64, {});
  const auto number = [&](const std::string& name) {
    const Output handle = ops::VarHandleOp(s.WithOpName(name), kInt64, PartialShape({}),
                                           {.shared_name = StrCat("mnist_round/", name)});
    return Number{ops::VarIsInitializedOp(s, handle), ops::ReadVariableOp(s, handle, kInt64),
                  ops::AssignVariableOp(s, handle, value_)};
  };
  begun_ = number("begun");
  open_ = number("open");
  for (int i = 0; i < num_workers_; ++i) joined_.push_back(number(StrCat("joined_", i)));
  std::vector<Operation> close, destroy;
  for (const Operation& op : graph_.operations()) {
    const bool is_queue = op.type() == "FIFOQueueV2";
    if (!is_queue && op.type() != "ResourceConditionalAccumulator") continue;
    const Scope beside = graph_.root().ColocateWith(op);
    destroy.push_back(ops::DestroyResourceOp(beside, op.output(0)));
    const bool has_waiters =
        op.name().ends_with("sync_token_q") || op.name().ends_with("workers_may_evaluate");
    if (is_queue && has_waiters) {
      close.push_back(ops::QueueCloseV2(beside, op.output(0), {.cancel_pending_enqueues = true}));
    }
  }
  end_ = Group(s.WithOpName("end"), close);
  clear_ = Group(s.WithOpName("clear"), destroy);
}

StatusOr<std::vector<int64_t>> Rounds::Look(Session& session,
                                            const std::vector<const Number*>& numbers) {
  std::vector<Output> are_there, reads;
  for (const Number* number : numbers) are_there.push_back(number->is_there);
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> there,
                      session.Run({}, std::span<const Output>(are_there)));
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!there[i].scalar<bool>()) continue;
    reads.push_back(numbers[i]->read);
    places.push_back(i);
  }
  std::vector<int64_t> values(numbers.size(), 0);
  if (reads.empty()) return values;
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> read,
                      session.Run({}, std::span<const Output>(reads)));
  for (std::size_t i = 0; i < places.size(); ++i) values[places[i]] = read[i].scalar<int64_t>();
  return values;
}

Status Rounds::Set(Session& session, const Number& number, int64_t value) {
  return session.Run({{value_, Tensor::Scalar<int64_t>(value)}}, {}, {number.set}).status();
}

Status Rounds::End(Session& session) { return session.RunTargets({end_}); }

StatusOr<int64_t> Rounds::Begin(const SupervisedSessionOptions& options, Keeper* keeper) {
  // Waits for the other tasks, and initialises nothing.
  SupervisedSessionOptions waiting;
  waiting.session = options.session;
  waiting.ready_timeout = options.ready_timeout;
  waiting.on_wait = options.on_wait;
  // The chief may have to wait itself first.
  const auto deadline = Clock::now() + (keeper != nullptr ? 1 : 2) * options.ready_timeout;
  while (true) {
    const auto attempt = [&]() -> StatusOr<int64_t> {
      MR_ASSIGN_OR_RETURN(const auto session, SupervisedSession::Create(graph_, waiting));
      MR_ASSIGN_OR_RETURN(const int64_t step, keeper != nullptr
                                                  ? Lead(session->session(), options, *keeper)
                                                  : Follow(session->session(), options));
      MR_RETURN_IF_ERROR(session->Stop());
      return step;
    };
    StatusOr<int64_t> step = attempt();
    MR_RETURN_IF_ERROR(CheckSignal());
    if (step.ok() || !IsOver(step.status()) || errors::IsDeadlineExceeded(step.status()) ||
        Clock::now() >= deadline) {
      return step;
    }
    std::this_thread::sleep_for(kPause);
  }
}

// The order matters: whoever waits is woken, and all have no step under way, before anything that
// steps change is changed.
StatusOr<int64_t> Rounds::Lead(Session& session, const SupervisedSessionOptions& options,
                               Keeper& keeper) {
  MR_ASSIGN_OR_RETURN(const Tensor missing, session.Eval(options.not_ready));
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> seen, Look(session, {&begun_, &open_}));
  // Of a round that was not opened the values may be half restored.
  if (missing.num_elements() == 0 && seen[0] != 0 && seen[0] == seen[1]) {
    MR_ASSIGN_OR_RETURN(const Tensor step, session.Eval(global_step_));
    if (step.scalar<int64_t>() >= flags_.train_steps) return step.scalar<int64_t>();
  }
  const int64_t round = static_cast<int64_t>(RandomId() >> 2) + 1;
  MR_RETURN_IF_ERROR(Set(session, begun_, round));
  MR_RETURN_IF_ERROR(End(session));
  // Workers that find all steps made have left, and make none.
  const bool is_end = keeper.NewestStep() >= flags_.train_steps;
  if (!is_end) MR_RETURN_IF_ERROR(AwaitWorkers(session, round, options));
  MR_RETURN_IF_ERROR(session.RunTargets({clear_}));
  MR_ASSIGN_OR_RETURN(const bool restored, keeper.Restore(session));
  if (!restored) MR_RETURN_IF_ERROR(session.RunTargets({options.init_op}));
  MR_RETURN_IF_ERROR(Set(session, open_, round));
  MR_ASSIGN_OR_RETURN(const Tensor step, session.Eval(global_step_));
  return step.scalar<int64_t>();
}

Status Rounds::AwaitWorkers(Session& session, int64_t round,
                            const SupervisedSessionOptions& options) {
  std::vector<const Number*> others;
  for (int i = 1; i < num_workers_; ++i) others.push_back(&joined_[static_cast<std::size_t>(i)]);
  const auto begin = Clock::now();
  for (bool told = false;;) {
    std::vector<std::string> absent;
    if (!others.empty()) {
      MR_ASSIGN_OR_RETURN(const std::vector<int64_t> joined, Look(session, others));
      for (std::size_t i = 0; i < joined.size(); ++i) {
        if (joined[i] != round) absent.push_back(StrCat("/job:worker/task:", i + 1));
      }
    }
    if (absent.empty()) return OkStatus();
    MR_RETURN_IF_ERROR(CheckSignal());
    const std::string reason =
        StrCat("waiting for ", StrJoin(absent, ", "), " to begin together from a checkpoint");
    const auto waited = Clock::now() - begin;
    if (waited >= options.ready_timeout) {
      return errors::DeadlineExceeded("gave up ", reason,
                                      " within --ready_timeout=", flags_.ready_timeout,
                                      ": is it there, with the same --checkpoint_dir?");
    }
    if (waited >= kSilence && !told && options.on_wait) {
      told = true;
      options.on_wait(reason);
    }
    std::this_thread::sleep_for(kLook);
  }
}

StatusOr<int64_t> Rounds::Follow(Session& session, const SupervisedSessionOptions& options) {
  const Number& mine = joined_[static_cast<std::size_t>(flags_.task_index)];
  const auto begin = Clock::now();
  int64_t joined = 0;  // here
  int64_t ended = 0;   // by this worker
  for (bool told = false;;) {
    MR_ASSIGN_OR_RETURN(const std::vector<int64_t> seen, Look(session, {&begun_, &open_, &mine}));
    const int64_t round = seen[0];
    if (round != 0 && seen[1] == round) {
      MR_ASSIGN_OR_RETURN(const Tensor step, session.Eval(global_step_));
      const int64_t global_step = step.scalar<int64_t>();
      if (joined == round || global_step >= flags_.train_steps) return global_step;
      // The process before this one, or this one in a session that it has lost, had a part in it.
      if (ended != round) MR_RETURN_IF_ERROR(End(session));
      ended = round;
    } else if (round != 0) {
      // Before the round is open nobody has had a part in it, whoever joined.
      if (seen[2] != round) MR_RETURN_IF_ERROR(Set(session, mine, round));
      joined = round;
    }
    MR_RETURN_IF_ERROR(CheckSignal());
    const std::string reason = "waiting for the chief to begin from a checkpoint";
    const auto waited = Clock::now() - begin;
    if (waited >= 2 * options.ready_timeout) {
      return errors::DeadlineExceeded("gave up ", reason,
                                      " within twice --ready_timeout=", flags_.ready_timeout,
                                      ": is /job:worker/task:0 there, with the same "
                                      "--checkpoint_dir?");
    }
    if (waited >= kSilence && !told && options.on_wait) {
      told = true;
      options.on_wait(reason);
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace millrace::mnist
