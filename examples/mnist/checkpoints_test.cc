// SPDX-License-Identifier: Apache-2.0
// Jobs that are killed and started again go on from their newest checkpoint.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/saver.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using ::millrace::testing::ChildrenOf;
using ::millrace::testing::FreePorts;
using ::millrace::testing::Process;
using std::chrono::seconds;
constexpr seconds kLimit{50};
constexpr char kProgram[] = "examples/mnist_replica";

std::string EmptyFolder(const std::string& name) {
  const std::string folder = StrCat(::testing::TempDir(), "/", name, "_", getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

int64_t StepOf(const std::string& prefix) {
  int64_t step = -1;
  ParseInt64(std::string_view(prefix).substr(prefix.rfind('-') + 1), &step);
  return step;
}

// Every global step that was printed after `phrase`.
std::vector<int64_t> StepsAfter(const std::string& output, const std::string& phrase) {
  std::vector<int64_t> steps;
  const std::string mark = "(global step: ";
  std::size_t at = output.find(phrase);
  while (at != std::string::npos && (at = output.find(mark, at)) != std::string::npos) {
    at += mark.size();
    int64_t step = -1;
    ParseInt64(std::string_view(output).substr(at, output.find(')', at) - at), &step);
    steps.push_back(step);
  }
  return steps;
}

std::vector<std::string> Arguments(const std::string& folder, int64_t train_steps) {
  return {"--batch_size=10",
          "--hidden_units=8",
          "--save_steps=20",
          "--peer_timeout=3",
          "--ready_timeout=40",
          StrCat("--checkpoint_dir=", folder),
          StrCat("--train_steps=", train_steps)};
}

TEST(MnistCheckpoints, AJobWhoseProcessesWereAllKilledGoesOnFromItsLastCheckpoint) {
  const std::string folder = EmptyFolder("mnist_killed");
  std::vector<std::string> arguments = Arguments(folder, 1'000'000);
  arguments.insert(arguments.end(), {"--num_ps=2", "--num_workers=2"});
  {
    Process job(kProgram, arguments);
    ASSERT_TRUE(job.WaitForOutput(StrCat("saved ", folder), kLimit)) << job.output();
    for (const pid_t child : ChildrenOf(job.pid())) kill(child, SIGKILL);
    job.Signal(SIGKILL);
    job.WaitForEnd(kLimit);
  }
  const std::string newest = LatestCheckpoint(folder);
  ASSERT_NE(newest, "");
  const int64_t saved = StepOf(newest);
  ASSERT_GT(saved, 0);
  ASSERT_LE(saved, 20) << "a lost task costs no more steps than --save_steps";
  arguments = Arguments(folder, saved + 60);
  arguments.insert(arguments.end(), {"--num_ps=1", "--num_workers=2"});  // one ps fewer
  Process again(kProgram, arguments);
  EXPECT_EQ(again.WaitForEnd(kLimit), 0) << again.output();
  const std::string restored = StrCat("restored ", newest);
  const std::vector<int64_t> steps = StepsAfter(again.output(), restored);
  ASSERT_FALSE(steps.empty()) << again.output();
  EXPECT_GE(*std::min_element(steps.begin(), steps.end()), saved);
  EXPECT_GE(StepOf(LatestCheckpoint(folder)), saved + 60);
}

TEST(MnistCheckpoints, AParameterServerThatWasStartedAgainGetsItsValuesBack) {
  const std::string folder = EmptyFolder("mnist_ps");
  const std::vector<int> ports = FreePorts(3);
  const auto task = [&](const std::string& job, int index) {
    std::vector<std::string> arguments = Arguments(folder, 3000);
    arguments.insert(arguments.end(),
                     {StrCat("--job_name=", job), StrCat("--task_index=", index),
                      StrCat("--ps_hosts=127.0.0.1:", ports[0], ",127.0.0.1:", ports[1]),
                      StrCat("--worker_hosts=127.0.0.1:", ports[2])});
    return std::make_unique<Process>(kProgram, arguments);
  };
  const auto first = task("ps", 0);
  auto second = task("ps", 1);
  const auto worker = task("worker", 0);
  ASSERT_TRUE(worker->WaitForOutput(StrCat("saved ", folder), kLimit)) << worker->output();
  second->Signal(SIGKILL);
  second->WaitForEnd(kLimit);
  const int64_t saved = StepOf(LatestCheckpoint(folder));
  second = task("ps", 1);
  ASSERT_TRUE(worker->WaitForOutput(StrCat("restored ", folder), kLimit)) << worker->output();
  EXPECT_EQ(worker->WaitForEnd(kLimit), 0) << worker->output();
  const std::vector<int64_t> steps = StepsAfter(worker->output(), StrCat("restored ", folder));
  ASSERT_FALSE(steps.empty());
  EXPECT_GE(*std::min_element(steps.begin(), steps.end()), saved);
}

TEST(MnistCheckpoints, ATaskThatIsToldToEndSavesBefore) {
  const std::string folder = EmptyFolder("mnist_preempted");
  const std::vector<int> ports = FreePorts(2);
  const auto task = [&](const std::string& job, int64_t save_steps) {
    std::vector<std::string> arguments = Arguments(folder, 1'000'000);
    arguments.insert(
        arguments.end(),
        {StrCat("--job_name=", job), "--task_index=0", StrCat("--save_steps=", save_steps),
         StrCat("--ps_hosts=127.0.0.1:", ports[0]), StrCat("--worker_hosts=127.0.0.1:", ports[1])});
    std::erase(arguments, "--save_steps=20");
    return std::make_unique<Process>(kProgram, arguments);
  };
  const auto ps = task("ps", 500'000);
  const auto worker = task("worker", 500'000);
  ASSERT_TRUE(worker->WaitForOutput("(global step: 30)", kLimit)) << worker->output();
  for (const auto& process : {ps.get(), worker.get()}) process->Signal(SIGTERM);
  EXPECT_EQ(worker->WaitForEnd(kLimit), 128 + SIGTERM) << worker->output();
  // Of every step that was made there is a line.
  const std::vector<int64_t> steps = StepsAfter(worker->output(), "Training begins");
  EXPECT_GE(steps.size(), 30u);
  EXPECT_EQ(StepOf(LatestCheckpoint(folder)), static_cast<int64_t>(steps.size()))
      << worker->output();
  EXPECT_EQ(ps->WaitForEnd(kLimit), 0) << ps->output();
}

TEST(MnistCheckpoints, AnEvaluatorTakesEveryOneUntilTheLast) {
  const std::string folder = EmptyFolder("mnist_evaluated");
  std::vector<std::string> arguments = Arguments(folder, 60);
  arguments.insert(arguments.end(), {"--num_ps=1", "--num_workers=1", "--quiet", "--exact_steps"});
  std::vector<std::string> aside = Arguments(folder, 60);
  aside.insert(aside.end(), {"--job_name=evaluator", "--evaluate=every"});
  Process evaluator(kProgram, aside);  // before there is anything
  ASSERT_TRUE(evaluator.WaitForOutput("job name = evaluator", kLimit)) << evaluator.output();
  Process job(kProgram, arguments);
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  EXPECT_EQ(evaluator.WaitForEnd(kLimit), 0) << evaluator.output();
  const std::string saved = ": saved ";
  int checkpoints = 0;
  for (std::size_t at = 0; (at = job.output().find(saved, at)) != std::string::npos;
       ++checkpoints) {
    at += saved.size();
    const std::string prefix = job.output().substr(at, job.output().find('\n', at) - at);
    EXPECT_NE(evaluator.output().find(StrCat("Evaluator: ", prefix, " (")), std::string::npos)
        << prefix << " is missing: " << evaluator.output();
  }
  EXPECT_GE(checkpoints, 3);
  // What the job itself says of its end, to the last digit.
  const std::string mark = "validation cross entropy = ";
  const auto said = [&](const std::string& output) {
    const std::size_t at = output.rfind(mark) + mark.size();
    return output.substr(at, output.find_first_of(",\n", at) - at);
  };
  EXPECT_EQ(said(evaluator.output()), said(job.output()));
  EXPECT_NE(evaluator.output().find("0 skipped, 0 not readable"), std::string::npos);
}

TEST(MnistCheckpoints, AnEvaluatorNeedsAFolder) {
  Process evaluator(kProgram, {"--job_name=evaluator"});
  EXPECT_EQ(evaluator.WaitForEnd(kLimit), 2);
  EXPECT_NE(evaluator.output().find("--checkpoint_dir"), std::string::npos) << evaluator.output();
}

TEST(MnistCheckpoints, TheLauncherNamesTheCauseOfASaveThatFails) {
  const std::string in_the_way = EmptyFolder("in_the_way");
  std::ofstream(in_the_way) << "no folder";
  Process job(kProgram, Arguments(in_the_way + "/checkpoints", 5));
  EXPECT_NE(job.WaitForEnd(kLimit), 0) << job.output();
  const std::string output = job.output();
  const std::size_t words = output.rfind("its last words: ");
  ASSERT_NE(words, std::string::npos) << output;
  const std::string line = output.substr(words, output.find('\n', words) - words);
  EXPECT_NE(line.find(in_the_way), std::string::npos) << line;
  EXPECT_EQ(line.find("[[{{node"), std::string::npos) << line;
}

TEST(MnistCheckpoints, NothingIsSavedWithoutAFolder) {
  Process job(kProgram, {"--batch_size=10", "--hidden_units=8", "--train_steps=3", "--quiet"});
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  EXPECT_EQ(job.output().find("saved "), std::string::npos);
}

}  // namespace
}  // namespace millrace::mnist
