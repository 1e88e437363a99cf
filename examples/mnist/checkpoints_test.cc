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
  // Two steps of each worker before --save_steps, so that no more are lost while it is written.
  ASSERT_GE(saved, 20 - 2 * 2);
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
  // Its work was not done either: whoever starts tasks again starts it.
  EXPECT_EQ(ps->WaitForEnd(kLimit), 128 + SIGTERM) << ps->output();
  EXPECT_NE(ps->output().find("stopped by signal 15"), std::string::npos) << ps->output();
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

TEST(MnistCheckpoints, AnEvaluatorWaitsAsLongAsItIsToldAndIsAlone) {
  const std::string folder = EmptyFolder("mnist_nothing_comes");
  std::vector<std::string> arguments = Arguments(folder, 60);
  arguments.insert(arguments.end(), {"--job_name=evaluator", "--evaluate_timeout=0.5"});
  Process evaluator(kProgram, arguments);
  EXPECT_EQ(evaluator.WaitForEnd(kLimit), 1) << evaluator.output();
  EXPECT_NE(evaluator.output().find("for 500 ms, while that of number 60 is waited for"),
            std::string::npos)
      << evaluator.output();
  arguments.emplace_back("--task_index=1");
  Process second(kProgram, arguments);
  EXPECT_EQ(second.WaitForEnd(kLimit), 2) << second.output();
  EXPECT_NE(second.output().find("at most one evaluator"), std::string::npos) << second.output();
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

// A folder of checkpoints that can be taken away, and given back, in one go.
class MovableFolder {
 public:
  explicit MovableFolder(const std::string& name)
      : link_(EmptyFolder(name)), folder_(link_ + "_there"), file_(link_ + "_none") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(file_) << "no folder";
    Give();
  }
  const std::string& path() const { return link_; }
  void Take() const { PointTo(file_); }
  void Give() const { PointTo(folder_); }

 private:
  void PointTo(const std::string& target) const {
    const std::string next = link_ + "_next";
    std::filesystem::remove(next);
    std::filesystem::create_symlink(target, next);
    std::filesystem::rename(next, link_);
  }
  const std::string link_, folder_, file_;
};

// How far a worker that says of each step, and of each checkpoint, was ahead of the newest.
int64_t MostAhead(const std::string& output) {
  const std::string saved_mark = "/model.ckpt-", step_mark = "(global step: ";
  int64_t saved = 0, most = 0;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    at = end + 1;
    int64_t number = -1;
    if (const std::size_t mark = line.find(saved_mark);
        mark != std::string::npos && line.find(": saved ") != std::string::npos) {
      ParseInt64(std::string_view(line).substr(mark + saved_mark.size()), &number);
      saved = std::max(saved, number);
    } else if (const std::size_t step = line.find(step_mark);
               step != std::string::npos && line.find("training step") != std::string::npos) {
      const std::size_t from = step + step_mark.size();
      ParseInt64(std::string_view(line).substr(from, line.find(')', from) - from), &number);
      most = std::max(most, number - saved);
    }
  }
  return most;
}

// A ps and a worker, which prints each of its steps.
struct SmallJob {
  SmallJob(const std::string& folder, const std::vector<std::string>& more) {
    const std::vector<int> ports = FreePorts(2);
    const auto task = [&](const std::string& job) {
      std::vector<std::string> arguments = Arguments(folder, 100'000'000);
      arguments.insert(arguments.end(), {StrCat("--job_name=", job), "--task_index=0",
                                         StrCat("--ps_hosts=127.0.0.1:", ports[0]),
                                         StrCat("--worker_hosts=127.0.0.1:", ports[1])});
      std::erase_if(arguments, [&](const std::string& argument) {
        return std::any_of(more.begin(), more.end(), [&](const std::string& other) {
          return other.starts_with(argument.substr(0, argument.find('=') + 1));
        });
      });
      arguments.insert(arguments.end(), more.begin(), more.end());
      return std::make_unique<Process>(kProgram, arguments);
    };
    ps = task("ps");
    worker = task("worker");
  }
  std::unique_ptr<Process> ps, worker;
};

void TakeAwayAndGiveBack(const std::string& name, const std::vector<std::string>& more) {
  const MovableFolder folder(name);
  SmallJob job(folder.path(), more);
  Process& worker = *job.worker;
  ASSERT_TRUE(worker.WaitForOutput(StrCat("saved ", folder.path()), kLimit)) << worker.output();
  folder.Take();
  ASSERT_TRUE(worker.WaitForOutput("until a checkpoint can be written", kLimit)) << worker.output();
  const std::size_t before = worker.output().size();
  folder.Give();
  // It ends only after its saves and steps are there to be read.
  const int64_t known = StepOf(LatestCheckpoint(folder.path()));
  for (const auto limit = std::chrono::steady_clock::now() + kLimit;
       StepOf(LatestCheckpoint(folder.path())) <= known + 40 &&
       std::chrono::steady_clock::now() < limit;) {
    worker.WaitForOutput("a line that never comes", seconds(1));
  }
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.WaitForEnd(kLimit), 128 + SIGTERM);
  EXPECT_NE(worker.output().find(": saved ", before), std::string::npos);
  EXPECT_NE(worker.output().find("no checkpoint at global step"), std::string::npos);
  EXPECT_EQ(worker.output().find("may be lost until"), std::string::npos) << worker.output();
  EXPECT_LE(MostAhead(worker.output()), 20) << "--save_steps";
}

TEST(MnistCheckpoints, AChiefThatCannotSaveWaitsBeforeTooMuchCanBeLost) {
  TakeAwayAndGiveBack("mnist_waits", {});
}

TEST(MnistCheckpoints, ASynchronousChiefThatCannotSaveWaitsAsWell) {
  TakeAwayAndGiveBack("mnist_sync_waits", {"--sync_replicas"});
}

TEST(MnistCheckpoints, AChiefThatCannotSaveGoesOnAtLastAndSaysWhatThatMayCost) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--ready_timeout=2"}, {"--ready_timeout=2", "--sync_replicas"}}) {
    const MovableFolder folder("mnist_waited");
    SmallJob job(folder.path(), more);
    Process& worker = *job.worker;
    ASSERT_TRUE(worker.WaitForOutput(StrCat("saved ", folder.path()), kLimit)) << worker.output();
    folder.Take();
    ASSERT_TRUE(worker.WaitForOutput("may be lost until one can", kLimit)) << worker.output();
    const std::string begun = worker.output();
    const int64_t saved = StepOf(begun.substr(0, begun.find('\n', begun.rfind(": saved "))));
    const std::string step = StrCat("(global step: ", saved + 60, ")");
    EXPECT_TRUE(worker.WaitForOutput(step, kLimit)) << worker.output();
    worker.Signal(SIGTERM);
    EXPECT_EQ(worker.WaitForEnd(kLimit), 128 + SIGTERM);
  }
}

TEST(MnistCheckpoints, NothingIsSavedWithoutAFolder) {
  Process job(kProgram, {"--batch_size=10", "--hidden_units=8", "--train_steps=3", "--quiet"});
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  EXPECT_EQ(job.output().find("saved "), std::string::npos);
}

}  // namespace
}  // namespace millrace::mnist
