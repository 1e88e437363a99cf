// SPDX-License-Identifier: Apache-2.0
// An evaluator beside a job reads its checkpoints, and asks nothing of its tasks: training is as
// fast as without, whatever it costs to evaluate. By counting calls, not by a clock.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/saver.h"
#include "observe/visitor_testlib.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using ::millrace::testing::FreePorts;
using ::millrace::testing::Get;
using ::millrace::testing::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr seconds kLimit{50};
constexpr char kProgram[] = "examples/mnist_replica";

// One ps and one worker with pages, and evaluators that are told of them.
class Job {
 public:
  Job() : folder_(StrCat(::testing::TempDir(), "/mnist_beside_", getpid())), ports_(FreePorts(2)) {
    std::filesystem::remove_all(folder_);
    ps_ = Start("ps");
    worker_ = Start("worker");
  }

  // Whether there is something to evaluate.
  bool AwaitCheckpoint() { return worker_->WaitForOutput(StrCat("saved ", folder_), kLimit); }
  // A process of an evaluator, until it has evaluated the newest checkpoint. Its output.
  std::string Evaluate() {
    const std::unique_ptr<Process> evaluator = Start("evaluator");
    const std::string newest = LatestCheckpoint(folder_);
    EXPECT_TRUE(evaluator->WaitForOutput(StrCat("Evaluator: ", newest, " ("), kLimit))
        << evaluator->output();
    evaluator->Signal(SIGTERM);
    EXPECT_NE(evaluator->WaitForEnd(kLimit), Process::kStillRunning);
    return evaluator->output();
  }

  Process& ps() { return *ps_; }
  Process& worker() { return *worker_; }

 private:
  std::unique_ptr<Process> Start(const std::string& job) const {
    std::vector<std::string> arguments = {"--batch_size=10",
                                          "--hidden_units=8",
                                          "--save_steps=20",
                                          "--train_steps=1000000000",
                                          "--quiet",
                                          "--peer_timeout=0",  // tasks are stopped for a while
                                          "--task_index=0",
                                          StrCat("--job_name=", job),
                                          StrCat("--checkpoint_dir=", folder_),
                                          StrCat("--ps_hosts=127.0.0.1:", ports_[0]),
                                          StrCat("--worker_hosts=127.0.0.1:", ports_[1])};
    if (job != "evaluator") arguments.push_back("--http=127.0.0.1:0");
    return std::make_unique<Process>(kProgram, arguments);
  }

  const std::string folder_;
  const std::vector<int> ports_;
  std::unique_ptr<Process> ps_, worker_;
};

// How often each method of a task was called so far, a line each.
std::string Calls(Process& task) {
  const std::string mark = "pages at http://127.0.0.1:";
  EXPECT_TRUE(task.WaitForOutput(mark, kLimit)) << task.output();
  int64_t port = 0;
  const std::size_t at = task.output().find(mark) + mark.size();
  const std::size_t end = task.output().find_first_not_of("0123456789", at);
  EXPECT_TRUE(ParseInt64(std::string_view(task.output()).substr(at, end - at), &port));
  const ::millrace::testing::Answer answer = Get(static_cast<int>(port), "/metrics");
  EXPECT_EQ(answer.status, 200) << answer.body;
  const std::string& page = answer.body;
  std::string calls;
  for (std::size_t line = 0; line < page.size();) {
    const std::size_t next = std::min(page.find('\n', line), page.size() - 1) + 1;
    const std::string_view text = std::string_view(page).substr(line, next - line);
    if (text.starts_with("millrace_rpc_calls_total{")) calls += text;
    line = next;
  }
  return calls;
}

// Once what was on its way to the task has arrived: the only one that calls it stands still.
std::string CallsAtRest(Process& task) {
  std::string before = Calls(task);
  int same = 0;
  for (const auto limit = std::chrono::steady_clock::now() + kLimit;
       same < 5 && std::chrono::steady_clock::now() < limit;) {
    std::this_thread::sleep_for(milliseconds(50));
    const std::string now = Calls(task);
    same = now == before ? same + 1 : 0;
    before = now;
  }
  EXPECT_EQ(same, 5) << "calls go on: " << before;
  return before;
}

TEST(AnEvaluatorBesideAJob, AsksNothingOfItsTasks) {
  Job job;
  ASSERT_TRUE(job.AwaitCheckpoint()) << job.worker().output();
  // The task that stands still could not answer, and the other one counts who calls.
  job.worker().Freeze();
  const std::string of_ps = CallsAtRest(job.ps());
  EXPECT_NE(of_ps, "") << "training has called the ps";
  job.Evaluate();
  EXPECT_EQ(Calls(job.ps()), of_ps);

  job.ps().Freeze();
  job.worker().Signal(SIGCONT);
  const std::string of_worker = CallsAtRest(job.worker());
  job.Evaluate();
  EXPECT_EQ(Calls(job.worker()), of_worker);

  // And training goes on as if nothing had been.
  job.ps().Signal(SIGCONT);
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (Calls(job.ps()) == of_ps && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_NE(Calls(job.ps()), of_ps);
}

}  // namespace
}  // namespace millrace::mnist
