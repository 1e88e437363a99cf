// SPDX-License-Identifier: Apache-2.0
// Runs the program itself with small shell programs as tasks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  std::string output;
  int exit_code = -1;
};

class RunCommand {
 public:
  explicit RunCommand(std::vector<std::string> arguments) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    output_ = ends[0];
    arguments.insert(arguments.begin(), {"millrace", "run"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], 1);
      dup2(ends[1], 2);
      close(ends[0]);
      close(ends[1]);
      execv("tools/millrace", argv.data());
      _exit(127);
    }
    close(ends[1]);
  }

  void Signal(int number) { kill(pid_, number); }
  // Waits until this has been printed.
  void WaitFor(const std::string& text) {
    while (output_text_.find(text) == std::string::npos && ReadSome()) {
    }
  }
  Result Finish() {
    while (ReadSome()) {
    }
    close(output_);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return {output_text_, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
  }

 private:
  bool ReadSome() {
    char buffer[4096];
    const ssize_t size = read(output_, buffer, sizeof(buffer));
    if (size > 0) output_text_.append(buffer, static_cast<size_t>(size));
    return size > 0;
  }

  pid_t pid_ = -1;
  int output_ = -1;
  std::string output_text_;
};

Result RunAll(const std::vector<std::string>& arguments) { return RunCommand(arguments).Finish(); }

std::string TempFile(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  unlink(path.c_str());
  return path;
}

TEST(RunCommandTest, TellsEveryTaskWhichItIs) {
  const Result result =
      RunAll({"--ps", "1", "--workers", "2", "sh", "-c",
              "echo \"{job} {task} at {address} of {worker_hosts}\"; echo \"$TF_CONFIG\"; "
              "echo id $MILLRACE_CLUSTER_ID $MILLRACE_RESTARTS"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* task : {"worker 0", "worker 1", "ps 0"}) {
    EXPECT_THAT(result.output, HasSubstr(std::string("| ") + task + " at 127.0.0.1:"));
  }
  EXPECT_THAT(result.output, HasSubstr("\"task\": {\"index\":1,\"type\":\"worker\"}}"));
  EXPECT_THAT(result.output, ContainsRegex("worker/1 \\| id run-[0-9a-f]+ 0"));
}

TEST(RunCommandTest, StopsTheServicesWhenTheWorkIsDone) {
  const auto start = std::chrono::steady_clock::now();
  const Result result =
      RunAll({"--ps", "1", "--workers", "1", "--", "sh", "-c",
              "if [ {job} = ps ]; then echo serving; exec sleep 100; else echo worked; fi"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("worked"), HasSubstr("every task has ended well: stopping")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(RunCommandTest, LeavesNothingBehind) {
  const Result result = RunAll({"--job_max_restarts", "worker=1", "--backoff_ms", "7", "sh", "-c",
                                "sleep 1000 & echo left $!; [ $MILLRACE_RESTARTS = 1 ]"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  int found = 0;
  for (size_t at = 0; (at = result.output.find("left ", at)) != std::string::npos; ++at, ++found) {
    const pid_t pid = std::atoi(result.output.c_str() + at + 5);
    ASSERT_GT(pid, 1);
    // Killed, which a busy machine does later, and perhaps not yet taken away by whoever has become
    // its parent.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::string text;
    do {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      text.clear();
      std::getline(stat, text);
      if (text.empty() || text.find(") Z") != std::string::npos) break;
      usleep(10'000);
    } while (std::chrono::steady_clock::now() < deadline);
    EXPECT_TRUE(text.empty() || text.find(") Z") != std::string::npos) << text;
  }
  EXPECT_EQ(found, 2);
}

TEST(RunCommandTest, LeavesTheProgramItsOwnSeparator) {
  const Result result = RunAll({"--workers=1", "sh", "-c", "echo $# $1", "sh", "--", "x"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("| 2 --"));
}

TEST(RunCommandTest, EndsWithTheFirstCauseAndItsExitCode) {
  const Result result =
      RunAll({"--workers", "2", "sh", "-c",
              "if [ {task} = 1 ]; then echo the reason; exit 7; else exec sleep 100; fi"});
  EXPECT_EQ(result.exit_code, 7) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("run      | worker/1 ended with exit code 7; its last line: the reason"));
  EXPECT_THAT(result.output, Not(HasSubstr("worker/0 ended")));
}

TEST(RunCommandTest, NamesTheSignalOfATaskThatWasKilled) {
  const Result result = RunAll({"--workers", "1", "sh", "-c", "kill -9 $$"});
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.output, HasSubstr("worker/0 ended with signal 9 (Killed)"));
}

TEST(RunCommandTest, StartsATaskAgainAsOftenAsAllowed) {
  const std::string path = TempFile("restarts");
  const std::string script =
      "echo x >> " + path + "; echo try $MILLRACE_RESTARTS; [ $(wc -l < " + path + ") -ge 3 ]";
  Result result =
      RunAll({"--workers", "1", "--max_restarts", "5", "--backoff_ms", "10", "sh", "-c", script});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("worker/0 ended with exit code 1; restart 1 in 10 ms"),
                    HasSubstr("restart 2 in 20 ms"), HasSubstr("try 2"), Not(HasSubstr("try 3"))));
  unlink(path.c_str());
  result = RunAll({"--workers", "1", "--max_restarts", "5", "--job_max_restarts", "worker=1",
                   "--backoff_ms", "10", "sh", "-c", script});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("worker/0 ended with exit code 1 after 1 restart"));
}

TEST(RunCommandTest, ATaskThatRanForLongIsStartedAgainAtOnce) {
  const std::string path = TempFile("steady");
  const std::string script = "echo x >> " + path + "; [ $(wc -l < " + path + ") -ge 4 ]";
  const Result result = RunAll({"--workers", "1", "--max_restarts", "5", "--backoff_ms", "10",
                                "--steady_ms", "0", "sh", "-c", script});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("restart 3 in 10 ms"));
  unlink(path.c_str());
}

TEST(RunCommandTest, PassesSignalsOnAndKillsWhatDoesNotEnd) {
  RunCommand gentle({"--workers", "1", "sh", "-c",
                     "trap 'echo saving; exit 0' TERM; echo up; while :; do sleep 0.1; done"});
  gentle.WaitFor("up");
  gentle.Signal(SIGTERM);
  Result result = gentle.Finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.output, HasSubstr("saving"));

  RunCommand deaf({"--workers", "1", "--grace_ms", "100", "sh", "-c",
                   "trap '' TERM; echo up; while :; do sleep 0.1; done"});
  deaf.WaitFor("up");
  deaf.Signal(SIGTERM);
  result = deaf.Finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
}

TEST(RunCommandTest, AClosedTerminalEndsTheJobAsSigtermDoesUnlessItIsIgnored) {
  const std::string script =
      "trap 'echo saving; exit 143' TERM; trap 'echo hung up' HUP; echo up; "
      "while :; do sleep 0.1; done";
  RunCommand job({"--workers", "1", "--max_restarts", "3", "sh", "-c", script});
  job.WaitFor("up");
  job.Signal(SIGHUP);
  Result result = job.Finish();
  EXPECT_EQ(result.exit_code, 128 + SIGHUP) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("signal 1 (Hangup): stopping every task"), HasSubstr("saving"),
                    Not(HasSubstr("hung up")), Not(HasSubstr("restart 1"))));

  // As nohup starts it.
  const auto before = signal(SIGHUP, SIG_IGN);
  RunCommand lasting({"--workers", "1", "sh", "-c", script});
  signal(SIGHUP, before);
  lasting.WaitFor("up");
  lasting.Signal(SIGHUP);
  lasting.Signal(SIGTERM);
  result = lasting.Finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("saving"), Not(HasSubstr("signal 1 ("))));
}

TEST(RunCommandTest, ATaskThatEndsForTheSignalOfTheWholeJobHasNotFailed) {
  // Every process gets the signal at once, as from a system that ends them all: the task may end
  // before the launcher has passed anything on.
  RunCommand job({"--workers", "1", "--max_restarts", "3", "--backoff_ms", "1", "sh", "-c",
                  "trap 'exit 143' TERM; echo up; kill -TERM $PPID; exit 143"});
  job.WaitFor("up");
  const Result result = job.Finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("restart 1")));
}

TEST(RunCommandTest, SaysWhatIsWrongWithItsArguments) {
  Result result = RunAll({"--workers", "1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("name the program to run"));
  result = RunAll({"--workers", "1", "/no/such/program"});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.output, HasSubstr("there is no program '/no/such/program'"));
  result = RunAll({"--workers", "1", "--job_max_restarts", "worker", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(RunAll({"--workers", "-1", "true"}).exit_code, 2);
  result = RunAll({"--workers", "1", "--evaluator", "2", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("at most one evaluator"));
  result = RunAll({"--workers", "1", "--job_max_restarts", "ps=1", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("names job 'ps', which has no tasks"));
}

}  // namespace
}  // namespace millrace
