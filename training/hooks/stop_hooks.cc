// SPDX-License-Identifier: Apache-2.0
// Hooks that end a training or hold it back: at a step, for a loss that is no number, until the
// others have come to a step, after so many evaluations.
#include <algorithm>
#include <cmath>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "millrace/float16.h"
#include "millrace/hooks.h"
#include "millrace/variables.h"
#include "training/hooks/hook_support.h"

namespace millrace {
namespace {

// Says before each run how many steps it makes.
class StepsSetter {
 public:
  Status Build(Graph& graph) {
    const Scope root = graph.root();
    steps_ = Placeholder(root.WithOpName("hooks/steps_to_make"), kInt32, PartialShape(Shape()));
    set_ = Assign(root, StepsPerRun(root), steps_);
    return graph.status();
  }
  bool is_built() const { return steps_.valid(); }
  // As many as are left, from 1 to `most`.
  Status Set(Session& session, int64_t left, int64_t most) const {
    const auto steps = static_cast<int32_t>(std::clamp<int64_t>(left, 1, most));
    const Feed feed[] = {{steps_, Tensor::Scalar<int32_t>(steps)}};
    return session.Run(feed, {}, std::span(&set_, 1)).status();
  }

 private:
  Output steps_;  // fed
  Operation set_;
};

class StopAtStep : public SessionRunHook {
 public:
  explicit StopAtStep(const StopAtStepOptions& options) : options_(options) {}

  Status Begin(Graph& graph) override {
    if ((options_.num_steps > 0) == (options_.last_step > 0)) {
      return errors::InvalidArgument("StopAtStepHook: exactly one of num_steps (",
                                     options_.num_steps, ") and last_step (", options_.last_step,
                                     ") must be positive");
    }
    MR_RETURN_IF_ERROR(hooks::CheckStepsPerRun("StopAtStepHook", options_.steps_per_run));
    MR_ASSIGN_OR_RETURN(global_step_, hooks::GlobalStepOf(graph, "StopAtStepHook"));
    if (options_.last_step > 0) last_step_ = options_.last_step;
    return options_.steps_per_run == 1 ? OkStatus() : setter_.Build(graph);
  }
  Status AfterCreateSession(Session& session, Coordinator&) override {
    if (last_step_ && !setter_.is_built()) return OkStatus();
    MR_ASSIGN_OR_RETURN(const int64_t step, hooks::ReadStep(session, global_step_));
    if (!last_step_) last_step_ = step + options_.num_steps;
    return SetSteps(session, step);
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    return SessionRunArgs{.fetches = {global_step_}};
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    MR_ASSIGN_OR_RETURN(const int64_t before, hooks::StepIn(values.results[0]));
    if (!setter_.is_built() && before + 1 < *last_step_) return OkStatus();
    // What the step has fetched is from before or after its own update, whichever came first.
    MR_ASSIGN_OR_RETURN(const int64_t step, hooks::ReadStep(context.session(), global_step_));
    if (step < *last_step_) return SetSteps(context.session(), step);
    context.RequestStop();
    return OkStatus();
  }

 private:
  // For the next run, where a loop makes them.
  Status SetSteps(Session& session, int64_t step) const {
    if (!setter_.is_built()) return OkStatus();
    return setter_.Set(session, *last_step_ - step, options_.steps_per_run);
  }

  const StopAtStepOptions options_;
  Output global_step_;
  StepsSetter setter_;  // not built where a run makes one step
  std::optional<int64_t> last_step_;
};

template <typename T>
bool AnyNan(const Tensor& value) {
  for (const T v : value.flat<T>()) {
    if (std::isnan(static_cast<float>(v))) return true;
  }
  return false;
}

bool HasNan(const Tensor& value) {
  switch (value.dtype()) {
    case kFloat:
      return AnyNan<float>(value);
    case kDouble:
      return AnyNan<double>(value);
    case kHalf:
      return AnyNan<Half>(value);
    case kBfloat16:
      return AnyNan<BFloat16>(value);
    default:
      return false;
  }
}

class NanTensor : public SessionRunHook {
 public:
  NanTensor(const Output& loss, const NanTensorOptions& options) : loss_(loss), options_(options) {}

  Status Begin(Graph&) override {
    if (loss_.valid()) return OkStatus();
    return errors::InvalidArgument("NanTensorHook was given no loss to watch");
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    return SessionRunArgs{.fetches = {loss_}};
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    if (!HasNan(values.results[0])) return OkStatus();
    hooks::Log(options_.io, "Model diverged with loss = NaN.");
    if (options_.fail_on_nan_loss) return errors::InvalidArgument("NaN loss during training.");
    context.RequestStop();
    return OkStatus();
  }

 private:
  const Output loss_;
  const NanTensorOptions options_;
};

class GlobalStepWaiter : public SessionRunHook {
 public:
  explicit GlobalStepWaiter(const GlobalStepWaiterOptions& options) : options_(options) {}

  Status Begin(Graph& graph) override {
    if (options_.poll.count() <= 0) {
      return errors::InvalidArgument("GlobalStepWaiterHook: poll must be positive, not ",
                                     options_.poll.count(), " ms");
    }
    MR_ASSIGN_OR_RETURN(global_step_, hooks::GlobalStepOf(graph, "GlobalStepWaiterHook"));
    return OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext& context) override {
    if (is_over_) return SessionRunArgs();
    if (options_.wait_until_step > 0) {
      hooks::Log(options_.io, StrCat("Waiting for global step ", options_.wait_until_step,
                                     " before starting training."));
      MR_RETURN_IF_ERROR(Wait(context.session()));
      hooks::Log(options_.io, "Done waiting.");
    }
    is_over_ = true;
    return SessionRunArgs();
  }

 private:
  Status Wait(Session& session) {
    constexpr int64_t kTellEvery = 1000;
    for (int64_t told = 0;;) {
      MR_ASSIGN_OR_RETURN(const int64_t step, hooks::ReadStep(session, global_step_));
      if (step >= options_.wait_until_step) return OkStatus();
      if (step - told > kTellEvery) {
        hooks::Log(options_.io, StrCat("Waiting for global step ", options_.wait_until_step,
                                       " before starting training. Current step is ", step, "."));
        told = step;
      }
      std::this_thread::sleep_for(options_.poll);
    }
  }

  const GlobalStepWaiterOptions options_;
  Output global_step_;
  bool is_over_ = false;
};

class StopAfterNEvals : public SessionRunHook {
 public:
  explicit StopAfterNEvals(const StopAfterNEvalsOptions& options) : options_(options) {}

  Status Begin(Graph& graph) override {
    if (options_.num_evals <= 0) {
      return errors::InvalidArgument("StopAfterNEvalsHook: num_evals must be positive, not ",
                                     options_.num_evals);
    }
    MR_RETURN_IF_ERROR(hooks::CheckStepsPerRun("StopAfterNEvalsHook", options_.steps_per_run));
    const Scope root = graph.root();
    const std::vector<Variable> local = Variables(graph, kLocalVariables);
    const auto known = std::find_if(local.begin(), local.end(),
                                    [](const Variable& v) { return v.name() == kEvalStep; });
    const Variable step =
        known != local.end()
            ? *known
            : MakeVariable(root, kEvalStep, Constant(root, Tensor::Scalar<int64_t>(0)),
                           {.trainable = false, .local = true});
    MR_RETURN_IF_ERROR(graph.status());
    if (options_.steps_per_run == 1) {
      ended_ = AssignAdd(root, step, Tensor::Scalar<int64_t>(1)).output(0);
      return graph.status();
    }
    MR_RETURN_IF_ERROR(setter_.Build(graph));
    ended_ = AssignAdd(root, step, ops::Cast(root, StepsPerRun(root).read, kInt64)).output(0);
    return graph.status();
  }
  Status AfterCreateSession(Session& session, Coordinator&) override {
    if (!setter_.is_built()) return OkStatus();
    return setter_.Set(session, options_.num_evals, options_.steps_per_run);
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    return SessionRunArgs{.fetches = {ended_}};
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    constexpr int64_t kParts = 10, kFewEvals = 20;
    MR_ASSIGN_OR_RETURN(const int64_t ended, hooks::StepIn(values.results[0]));
    const int64_t all = options_.num_evals, every = all < kFewEvals ? 1 : all / kParts;
    // Of runs that make several steps TensorFlow tells each.
    const bool is_due = setter_.is_built() || ended % every == 0 || ended == all;
    if (options_.log_progress && is_due) {
      hooks::Log(options_.io, StrCat("Evaluation [", ended, "/", all, "]"));
    }
    if (ended < all && setter_.is_built()) {
      return setter_.Set(context.session(), all - ended, options_.steps_per_run);
    }
    if (ended >= all) context.RequestStop();
    return OkStatus();
  }

 private:
  static constexpr char kEvalStep[] = "eval_step";
  const StopAfterNEvalsOptions options_;
  StepsSetter setter_;  // not built where a run makes one step
  Output ended_;
};

}  // namespace

Variable StepsPerRun(const Scope& scope) {
  constexpr char kCollection[] = "hooks_steps_per_run";  // TensorFlow's
  const std::vector<Variable> known = Variables(scope, kCollection);
  if (!known.empty()) return known.front();
  const Scope s = scope.WithoutControlDependencies();
  const Output one =
      Constant(s.WithOpName("hooks/steps_per_run/initial_value"), Tensor::Scalar<int32_t>(1));
  // Beside a constant: a setter of devices would send a variable to a ps.
  const Variable steps = MakeVariable(s.ColocateWith(one), "hooks/steps_per_run", one,
                                      {.trainable = false, .local = true, .use_resource = true});
  if (steps.handle.valid()) scope.graph()->collections[kCollection].push_back(steps.handle);
  return steps;
}

HookPtr StopAfterNEvalsHook(const StopAfterNEvalsOptions& options) {
  return std::make_shared<StopAfterNEvals>(options);
}
HookPtr StopAtStepHook(const StopAtStepOptions& options) {
  return std::make_shared<StopAtStep>(options);
}
HookPtr NanTensorHook(const Output& loss, const NanTensorOptions& options) {
  return std::make_shared<NanTensor>(loss, options);
}
HookPtr GlobalStepWaiterHook(const GlobalStepWaiterOptions& options) {
  return std::make_shared<GlobalStepWaiter>(options);
}

}  // namespace millrace
