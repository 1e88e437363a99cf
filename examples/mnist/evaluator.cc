// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "examples/mnist/model.h"
#include "examples/mnist/task.h"
#include "millrace/core.h"
#include "millrace/digits.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"

namespace millrace::mnist {
namespace {

constexpr std::chrono::milliseconds kPoll{200};

// The model without what trains it, in a session of this process.
class Evaluation {
 public:
  static StatusOr<std::unique_ptr<Evaluation>> Create(const Flags& flags) {
    std::unique_ptr<Evaluation> e(new Evaluation);
    MR_ASSIGN_OR_RETURN(e->digits_, DigitsOf(flags));
    const Scope scope = e->graph_.root();
    e->global_step_ = GlobalStep(scope);
    e->model_ = flags.model == "cnn" ? BuildCnn(scope) : BuildMlp(scope, flags.hidden_units);
    MR_ASSIGN_OR_RETURN(e->saver_, Saver::Create(e->graph_));
    MR_ASSIGN_OR_RETURN(Session session, Session::Create(e->graph_));
    e->session_.emplace(std::move(session));
    return e;
  }

  Status Evaluate(const std::string& checkpoint) {
    MR_RETURN_IF_ERROR(saver_->Restore(*session_, checkpoint));
    MR_ASSIGN_OR_RETURN(const Tensor step, session_->Eval(global_step_.read));
    const StepFunction run = [this](std::span<const Feed> feeds, std::span<const Output> fetches) {
      return session_->Run(feeds, fetches);
    };
    MR_ASSIGN_OR_RETURN(const Score validation, ScoreOf(model_, digits_.validation, run));
    MR_ASSIGN_OR_RETURN(const Score test, ScoreOf(model_, digits_.test, run));
    std::printf(
        "Evaluator: %s (global step: %lld): validation cross entropy = %g, test accuracy: "
        "%.2f %%\n",
        checkpoint.c_str(), static_cast<long long>(step.scalar<int64_t>()),
        validation.cross_entropy,
        100 * static_cast<double>(test.correct) / static_cast<double>(digits_.test.size()));
    std::fflush(stdout);
    return OkStatus();
  }

 private:
  Evaluation() = default;

  Digits digits_;
  Graph graph_;
  Variable global_step_;
  Model model_;
  std::unique_ptr<Saver> saver_;
  std::optional<Session> session_;
};

}  // namespace

StatusOr<Digits> DigitsOf(const Flags& flags) {
  return flags.data_dir.empty() ? StatusOr<Digits>(SyntheticDigits()) : LoadDigits(flags.data_dir);
}

Status RunEvaluator(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const TakeCheckpoints take, ParseTakeCheckpoints(flags.evaluate));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluation> evaluation, Evaluation::Create(flags));
  std::printf("job name = evaluator\ntask index = %d\n", flags.task_index);
  std::fflush(stdout);
  std::optional<std::chrono::milliseconds> timeout;
  if (flags.evaluate_timeout > 0) {
    timeout.emplace(static_cast<int64_t>(std::ceil(flags.evaluate_timeout * 1e3)));
  }
  MR_ASSIGN_OR_RETURN(
      const SidecarCounts counts,
      RunSidecarEvaluator({.directory = flags.checkpoint_dir,
                           .take = take,
                           .last_number = flags.train_steps,
                           .timeout = timeout,
                           .poll = kPoll,
                           .stop = [] { return StopSignal() != 0; }},
                          [&](const std::string& c) { return evaluation->Evaluate(c); }));
  std::printf("Evaluator: %lld checkpoints evaluated, %lld skipped, %lld not readable\n",
              static_cast<long long>(counts.evaluated), static_cast<long long>(counts.skipped),
              static_cast<long long>(counts.unreadable));
  const std::optional<int64_t> last = CheckpointNumber(counts.last);
  if (StopSignal() == 0 || (last && *last >= flags.train_steps)) return OkStatus();
  // To whoever starts tasks again its work is not done.
  return errors::Cancelled("stopped by signal ", StopSignal());
}

}  // namespace millrace::mnist
