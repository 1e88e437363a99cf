// SPDX-License-Identifier: Apache-2.0
// Runs that make several steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A run makes as many steps as StepsPerRun says, as a loop would that trains.
struct Program {
  Program() {
    const Scope root = graph.root();
    step = GlobalStep(root);
    const Output steps = ops::Cast(root, StepsPerRun(root).read, kInt64);
    // After the hooks have read it.
    train = AssignAdd(root.WithControlDependencies({step.read.op()}), step, steps);
  }
  // The global step after each run, until a hook stops.
  std::vector<int64_t> Train(const MonitoredTrainingOptions& options) {
    std::vector<int64_t> steps;
    auto session = MonitoredTrainingSession(graph, options);
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok()) return steps;
    const Status status = (*session)->RunUntilStop([&] {
      Status ran = (*session)->RunTargets({train});
      if (ran.ok()) steps.push_back((*session)->session().Eval(step.read)->scalar<int64_t>());
      return ran;
    });
    EXPECT_TRUE(status.ok()) << status;
    return steps;
  }
  Graph graph;
  Variable step;
  Operation train;
};

TEST(StopAtStep, MakesTheLastRunShorter) {
  Program p;
  MonitoredTrainingOptions options;
  options.hooks = {StopAtStepHook({.last_step = 10, .steps_per_run = 4})};
  EXPECT_THAT(p.Train(options), ElementsAre(4, 8, 10));
}

TEST(StopAtStep, CountsStepsFromWhereATrainingGoesOn) {
  const TestDirectory directory("steps");
  for (const std::vector<int64_t>& want : {std::vector<int64_t>{3, 5}, {8, 10}}) {
    Program p;
    MonitoredTrainingOptions options;
    options.checkpoint_dir = directory.path();
    options.hooks = {StopAtStepHook({.num_steps = 5, .steps_per_run = 3})};
    EXPECT_EQ(p.Train(options), want);
  }
}

TEST(StepsPerRun, IsOneVariableOfTheTask) {
  Graph graph;
  const Scope root = graph.root();
  const Variable first = StepsPerRun(root.Named("loop")), second = StepsPerRun(root);
  EXPECT_EQ(first.name(), second.name());
  EXPECT_EQ(Variables(graph, kLocalVariables).size(), 1u);
  EXPECT_TRUE(Variables(graph).empty());
  Graph other;
  const Scope with_ps = other.root().WithDevice(
      ReplicaDeviceSetter({.ps_tasks = 1, .worker_device = "/job:worker/task:1"}));
  EXPECT_EQ(StepsPerRun(with_ps).handle.op().device(), "/job:worker/task:1");
}

// Due within the run: the hook looks at the step that was reached.
TEST(CheckpointSaver, SavesAfterTheRunInWhichItIsTime) {
  const TestDirectory directory("steps");
  Program p;
  MonitoredTrainingOptions options;
  options.checkpoint_dir = directory.path();
  options.save_checkpoint_steps = 6;
  options.steps_per_run = 4;
  std::vector<std::string> lines;
  options.io.log = [&](const std::string& line) {
    if (line.find("Saving checkpoints for ") == 0) lines.push_back(line.substr(23, 2));
  };
  options.hooks = {StopAtStepHook({.last_step = 14, .steps_per_run = 4})};
  EXPECT_THAT(p.Train(options), ElementsAre(4, 8, 12, 14));
  EXPECT_THAT(lines, ElementsAre("0 ", "8 ", "14"));
}

// What EvaluateOnce says, and how many steps its loop has made in all.
struct Evaluation {
  Evaluation(int64_t num_evals, int64_t steps_per_run) {
    Graph graph;
    const Scope root = graph.root();
    const Variable made = MakeVariable(root, "made", Constant(root, Tensor::Scalar<int64_t>(0)),
                                       {.trainable = false, .local = true});
    EvaluateOnceOptions options;
    options.eval_ops = {AssignAdd(root, made, ops::Cast(root, StepsPerRun(root).read, kInt64))};
    options.final_ops = {made.read};
    const auto log = [this](const std::string& line) { lines.push_back(line); };
    options.hooks = {StopAfterNEvalsHook(
        {.num_evals = num_evals, .steps_per_run = steps_per_run, .io = {.log = log}})};
    const auto values = EvaluateOnce(graph, options);
    status = values.status();
    if (status.ok()) steps = (*values)[0].scalar<int64_t>();
  }
  std::vector<std::string> lines;
  int64_t steps = -1;
  Status status;
};

TEST(StopAfterNEvals, MakesTheLastRunShorter) {
  const Evaluation evaluation(10, 4);
  EXPECT_TRUE(evaluation.status.ok()) << evaluation.status;
  EXPECT_EQ(evaluation.steps, 10);
  EXPECT_THAT(evaluation.lines,
              ElementsAre("Evaluation [4/10]", "Evaluation [8/10]", "Evaluation [10/10]"));
}

TEST(StopAfterNEvals, MakesNoMoreThanItIsToInOneRun) {
  const Evaluation evaluation(3, 100);
  EXPECT_TRUE(evaluation.status.ok()) << evaluation.status;
  EXPECT_EQ(evaluation.steps, 3);
  EXPECT_THAT(evaluation.lines, ElementsAre("Evaluation [3/3]"));
}

TEST(StopAfterNEvals, RefusesRunsOfNoStep) {
  const Evaluation evaluation(3, 0);
  EXPECT_TRUE(errors::IsInvalidArgument(evaluation.status)) << evaluation.status;
  EXPECT_THAT(std::string(Message(evaluation.status)), HasSubstr("steps_per_run"));
}

TEST(StepsPerRun, MustBePositive) {
  Graph graph;
  GlobalStep(graph.root());
  MonitoredTrainingOptions options;
  options.hooks = {StopAtStepHook({.last_step = 1, .steps_per_run = 0})};
  const Status status = MonitoredTrainingSession(graph, options).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("steps_per_run"));
}

}  // namespace
}  // namespace millrace::testing
