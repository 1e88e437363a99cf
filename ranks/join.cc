// SPDX-License-Identifier: Apache-2.0
// Ranks without data in the steps of those that have some.
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "millrace/data_parallel.h"
#include "ranks/group_state.h"
#include "ranks/joined_steps.h"

namespace millrace::dp {
namespace {

struct Remembered {
  Mutex mu;
  JoinedSteps steps ABSL_GUARDED_BY(mu);
  int made ABSL_GUARDED_BY(mu) = 0;
};
Remembered& TheSteps() {
  static auto* const steps = new Remembered;
  return *steps;
}

StatusOr<JoinedSteps> StepsToJoin() {
  Remembered& remembered = TheSteps();
  MutexLock lock(&remembered.mu);
  if (remembered.made == 1) return remembered.steps;
  return errors::FailedPrecondition(
      "Join needs gradients that were made with GradientOptions.allow_join, once, and they were "
      "made ",
      remembered.made, " times");
}

// Nothing in all of the collectives of a step; the number of ranks that train.
struct EmptyStep {
  Graph graph;
  Output active;
  std::vector<Operation> packs;
};

Status BuildEmptyStep(const JoinedSteps& steps, EmptyStep* step) {
  GroupState& group = GroupParts::Of(*steps.group);
  MutexLock lock(&group.mu);
  const Scope scope = step->graph.root().WithDevice(group.world->device);
  const auto add = [&](const ReducePack& pack) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mu) {
    return group.nodes.ReduceOne(scope, pack.op, Zeros(scope, pack.shape, pack.dtype),
                                 std::source_location::current(), pack.instance_key);
  };
  step->active = add(steps.active);
  for (const ReducePack& pack : steps.packs) step->packs.push_back(add(pack).op());
  return step->graph.status();
}

}  // namespace

void RememberSteps(const JoinedSteps& steps) {
  Remembered& remembered = TheSteps();
  MutexLock lock(&remembered.mu);
  remembered.steps = steps;
  ++remembered.made;
}

void ForgetSteps() {
  Remembered& remembered = TheSteps();
  MutexLock lock(&remembered.mu);
  remembered.steps = {};
  remembered.made = 0;
}

StatusOr<int> Join() {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  if (world->size() == 1) return 0;
  MR_ASSIGN_OR_RETURN(const JoinedSteps steps, StepsToJoin());
  EmptyStep step;
  MR_RETURN_IF_ERROR(BuildEmptyStep(steps, &step));
  SessionOptions options;
  MR_RETURN_IF_ERROR(steps.group->ConfigureSession(&options));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(step.graph, options));
  // Each step waits for the others' as theirs do, by the same limit.
  const RunOptions run{.timeout = GroupParts::Of(*steps.group).limit};
  for (int64_t rounds = 0;; ++rounds) {
    const StatusOr<std::vector<Tensor>> told =
        session.Run({}, std::span(&step.active, 1), step.packs, run);
    if (!told.ok()) return steps.group->Explain(told.status());
    MR_ASSIGN_OR_RETURN(const std::span<const int32_t> active, (*told)[0].TryFlat<int32_t>());
    bool any = false;
    for (const int32_t trains : active) any = any || trains != 0;
    if (any) continue;
    // Who stood aside for the fewest steps was the last to join; of several, the highest rank.
    const int size = steps.group->size();
    const Tensor own = Tensor::Scalar<int64_t>(steps.group->rank() - rounds * size);
    MR_ASSIGN_OR_RETURN(const Tensor last, steps.group->AllReduce(ReduceOp::kMax, own, "dp::Join"));
    const int64_t rest = last.scalar<int64_t>() % size;
    return static_cast<int>(rest < 0 ? rest + size : rest);
  }
}

}  // namespace millrace::dp
