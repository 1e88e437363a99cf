// SPDX-License-Identifier: Apache-2.0
// Jobs of processes under `millrace run` of which one is killed, or told to end, in the middle of
// an epoch: started again they end with the bits of a job that nobody disturbed, by one process,
// with one replica or two, by workers that sum their gradients, and with parameter servers.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "tests/cluster/process.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::millrace::testing::ChildrenOf;
using ::millrace::testing::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{200};
constexpr int kSteps = 24;
constexpr int kEveryStep = 1, kByEpochs = 0;

struct Setting {
  const char* name;
  const char* strategy;
  std::vector<std::string> tasks;     // of `millrace run`
  std::vector<std::string> trainers;  // tasks that run the loop of training, each its own
  std::vector<std::string> servers;
};

const std::vector<Setting>& Settings() {
  static const auto* const settings = new std::vector<Setting>{
      {"OneProcess", "default", {"--workers=1"}, {"worker:0"}, {}},
      {"AllReduce", "multi_worker_mirrored", {"--workers=2"}, {"worker:0", "worker:1"}, {}},
      {"ParameterServers",
       "parameter_server",
       {"--ps=2", "--workers=2", "--chief=1"},
       {"chief:0"},
       {"ps:1", "worker:1"}},
      {"Mirrored", "mirrored", {"--workers=1"}, {"worker:0"}, {}}};
  return *settings;
}

std::string EmptyFolder(const std::string& name) {
  const std::string folder = StrCat(::testing::TempDir(), "/survivors_", getpid(), "_", name);
  fs::remove_all(folder);
  return folder;
}

class Job {
 public:
  Job(const Setting& setting, const std::string& folder, const std::vector<std::string>& flags)
      : process_("tools/millrace", Arguments(setting, folder, flags)) {}

  Process& process() { return process_; }
  // A signal for one task of a job that is held at a step, once any task has come to that.
  void SignalAt(int step, const std::string& task, int signal) {
    ASSERT_TRUE(process_.WaitForOutput(StrCat("begins step ", step), kLimit)) << process_.output();
    const std::vector<pid_t> found = ChildrenOf(process_.pid(), StrCat("--i_am=", task));
    ASSERT_EQ(found.size(), 1u) << task << "\n" << process_.output();
    ::kill(found[0], signal);
  }
  // Ends the hold.
  static void Go(const std::string& folder) {
    fs::create_directories(folder);
    std::ofstream(folder + "/go").flush();
  }
  // How often any life of a task has begun a step.
  int StepsBegun(const std::string& task) {
    std::string start = task;
    start[start.find(':')] = '/';
    int count = 0;
    for (const std::string_view line : StrSplit(process_.output(), '\n')) {
      count += line.starts_with(start) && line.find("begins step") != std::string_view::npos;
    }
    return count;
  }

 private:
  static std::vector<std::string> Arguments(const Setting& setting, const std::string& folder,
                                            const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"run"};
    all.insert(all.end(), setting.tasks.begin(), setting.tasks.end());
    all.insert(all.end(),
               {"--max_restarts=20", "--backoff_ms=50", "--grace_ms=20000",
                "tests/fit/survivor_program", setting.strategy, folder, "--i_am={job}:{task}"});
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }

  Process process_;
};

// What each trainer has learned.
using Learned = std::map<std::string, std::map<std::string, Tensor>>;

Learned Results(const Setting& setting, const std::string& folder) {
  Learned all;
  for (const std::string& task : setting.trainers) {
    const std::string index = task.substr(task.find(':') + 1);
    const auto values = ReadTensors(StrCat(folder, "/result-", index));
    EXPECT_TRUE(values.ok()) << values.status();
    if (values.ok()) all[task] = *values;
  }
  return all;
}

void ExpectSameBits(const Learned& got, const Learned& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [task, values] : want) {
    ASSERT_EQ(got.at(task).size(), values.size());
    ASSERT_GE(values.size(), 20u);
    for (const auto& [name, value] : values) {
      EXPECT_TRUE(TensorsEqual(got.at(task).at(name), value)) << task << ": " << name;
    }
  }
}

class Survivors : public ::testing::TestWithParam<int> {
 protected:
  const Setting& setting_ = Settings()[static_cast<std::size_t>(GetParam())];

  // Of a job that nobody disturbs.
  Learned Whole(const std::vector<std::string>& flags = {}) {
    const std::string folder = EmptyFolder(StrCat(setting_.name, "_whole"));
    Job job(setting_, folder, flags);
    EXPECT_EQ(job.process().WaitForEnd(kLimit), 0) << job.process().output();
    EXPECT_FALSE(fs::exists(folder + "/backup")) << "backups go at the end";
    return Results(setting_, folder);
  }
  void ExpectNoTrace(const Learned& whole, const std::vector<std::string>& flags) {
    SCOPED_TRACE(StrJoin(flags, " "));
    const std::string folder = EmptyFolder(StrCat(setting_.name, "_killed"));
    Job job(setting_, folder, flags);
    EXPECT_EQ(job.process().WaitForEnd(kLimit), 0) << job.process().output();
    EXPECT_NE(job.process().output().find("(Killed)"), std::string::npos) << job.process().output();
    ExpectSameBits(Results(setting_, folder), whole);
    EXPECT_FALSE(fs::exists(folder + "/backup"));
  }
};

INSTANTIATE_TEST_SUITE_P(All, Survivors, ::testing::Range(0, 4), [](const auto& info) {
  return std::string(Settings()[static_cast<std::size_t>(info.param)].name);
});

TEST_P(Survivors, AKilledTrainerLeavesNoTrace) {
  const Learned whole = Whole();
  for (const int every : {kEveryStep, 3, kByEpochs}) {
    for (std::size_t task = 0; task < setting_.trainers.size(); ++task) {
      ExpectNoTrace(whole,
                    {StrCat("--dies=", task, ":", 11 + task), StrCat("--save_freq=", every)});
    }
  }
}

TEST_P(Survivors, AKilledTrainerOfAnotherModelLeavesNoTrace) {
  for (const char* kind : {"--kind=cnn", "--kind=lstm"}) {
    const Learned whole = Whole({kind});
    for (std::size_t task = 0; task < setting_.trainers.size(); ++task) {
      ExpectNoTrace(whole, {kind, StrCat("--dies=", task, ":", 5 + 8 * task)});
    }
  }
}

TEST_P(Survivors, AKilledReaderOfADataSetLeavesNoTrace) {
  const Learned whole = Whole({"--dataset"});
  const std::size_t last = setting_.trainers.size() - 1;
  ExpectNoTrace(whole, {"--dataset", StrCat("--dies=", last, ":13"), "--save_freq=2"});
}

TEST_P(Survivors, AKilledServerLeavesNoTrace) {
  if (setting_.servers.empty()) return;
  const Learned whole = Whole();
  for (const std::string& server : setting_.servers) {
    SCOPED_TRACE(server);
    const std::string folder = EmptyFolder("server");
    Job job(setting_, folder, {"--hold_at=11"});
    job.SignalAt(11, server, SIGKILL);
    Job::Go(folder);
    EXPECT_EQ(job.process().WaitForEnd(kLimit), 0) << job.process().output();
    ExpectSameBits(Results(setting_, folder), whole);
  }
}

// A backup is being written most of the time.
TEST_P(Survivors, ProcessesThatAreKilledAtRandomLeaveNoTrace) {
  const Learned whole = Whole();
  std::mt19937 random(5);
  const std::string folder = EmptyFolder(StrCat(setting_.name, "_random"));
  Job job(setting_, folder, {"--pause_ms=5"});
  std::vector<std::string> tasks = setting_.trainers;
  tasks.insert(tasks.end(), setting_.servers.begin(), setting_.servers.end());
  for (const int step : {4, 9, 14, 19}) {
    ASSERT_TRUE(job.process().WaitForOutput(StrCat("begins step ", step), kLimit))
        << job.process().output();
    std::this_thread::sleep_for(milliseconds(random() % 30));
    const std::string task = tasks[random() % tasks.size()];
    // One that is about to be started again is dead already.
    for (const pid_t pid : ChildrenOf(job.process().pid(), StrCat("--i_am=", task))) {
      ::kill(pid, SIGKILL);
    }
  }
  EXPECT_EQ(job.process().WaitForEnd(kLimit), 0) << job.process().output();
  ExpectSameBits(Results(setting_, folder), whole);
}

TEST_P(Survivors, ATrainerThatIsToldToEndSavesAndIsStartedAgain) {
  const Learned whole = Whole();
  const std::string folder = EmptyFolder(StrCat(setting_.name, "_told"));
  Job job(setting_, folder, {"--hold_at=10", StrCat("--save_freq=", kByEpochs)});
  job.SignalAt(10, setting_.trainers.back(), SIGTERM);
  EXPECT_TRUE(job.process().WaitForOutput("is told to end", kLimit)) << job.process().output();
  Job::Go(folder);
  EXPECT_EQ(job.process().WaitForEnd(kLimit), 0) << job.process().output();
  for (const std::string& task : setting_.trainers) {
    EXPECT_EQ(job.StepsBegun(task), kSteps) << "none is lost: " << job.process().output();
  }
  // All of them end, whoever was told.
  int ended = 0;
  for (const std::string_view line : StrSplit(job.process().output(), '\n')) {
    ended += line.find("ended with exit code 143; restart 1") != std::string_view::npos;
  }
  EXPECT_EQ(ended, static_cast<int>(setting_.trainers.size())) << job.process().output();
  ExpectSameBits(Results(setting_, folder), whole);
}

TEST_P(Survivors, AJobThatIsToldToEndIsGoneOnWithByAnother) {
  const Learned whole = Whole();
  const std::string folder = EmptyFolder(StrCat(setting_.name, "_stopped"));
  const std::vector<std::string> flags = {"--hold_at=10", StrCat("--save_freq=", kByEpochs)};
  Job first(setting_, folder, flags);
  ASSERT_TRUE(first.process().WaitForOutput("begins step 10", kLimit)) << first.process().output();
  first.process().Signal(SIGTERM);
  EXPECT_EQ(first.process().WaitForEnd(kLimit), 128 + SIGTERM) << first.process().output();
  Job second(setting_, folder, flags);
  EXPECT_EQ(second.process().WaitForEnd(kLimit), 0) << second.process().output();
  for (const std::string& task : setting_.trainers) {
    EXPECT_EQ(first.StepsBegun(task) + second.StepsBegun(task), kSteps)
        << first.process().output() << second.process().output();
  }
  ExpectSameBits(Results(setting_, folder), whole);
}

// Workers delete their backups when all have ended, each by itself: somebody may die in between.
TEST(BackupsAtTheEnd, AreDeletedByAllOrGoneOnFrom) {
  const Setting& setting = Settings()[1];
  for (const bool deleted : {false, true}) {
    SCOPED_TRACE(deleted);
    const std::string folder = EmptyFolder(StrCat("end_", deleted));
    Job first(setting, folder, {"--hold_at=10"});
    ASSERT_TRUE(first.process().WaitForOutput("begins step 10", kLimit))
        << first.process().output();
    first.process().Signal(SIGTERM);
    ASSERT_EQ(first.process().WaitForEnd(kLimit), 128 + SIGTERM) << first.process().output();
    const std::string own[] = {folder + "/backup", folder + "/backup/workertemp_1"};
    for (const std::string& directory : own) {
      ASSERT_TRUE(fs::exists(directory + "/checkpoint"));
      std::ofstream(directory + "/finished").flush();
    }
    if (deleted) fs::remove_all(own[1]);
    Job second(setting, folder, {});
    EXPECT_EQ(second.process().WaitForEnd(kLimit), 0) << second.process().output();
    for (const std::string& task : setting.trainers) {
      EXPECT_EQ(second.StepsBegun(task), deleted ? kSteps : kSteps - first.StepsBegun(task))
          << second.process().output();
    }
    EXPECT_FALSE(fs::exists(folder + "/backup"));
  }
}

// Otherwise each would go on with what is not its own, or from another step.
TEST(OtherNumbersOfWorkers, AreToldWhoseTheBackupIs) {
  Setting setting = Settings()[1];
  const std::string folder = EmptyFolder("other_workers");
  {
    Job job(setting, folder, {"--hold_at=10"});
    ASSERT_TRUE(job.process().WaitForOutput("begins step 10", kLimit)) << job.process().output();
    job.process().Signal(SIGTERM);
    ASSERT_EQ(job.process().WaitForEnd(kLimit), 128 + SIGTERM) << job.process().output();
  }
  for (const int workers : {1, 3}) {
    setting.tasks = {StrCat("--workers=", workers), "--job_max_restarts=worker=0"};
    Job job(setting, folder, {});
    EXPECT_EQ(job.process().WaitForEnd(kLimit), 1) << job.process().output();
    const char* const why = workers == 1 ? "is one of 2 worker(s)" : "are of different steps";
    EXPECT_NE(job.process().output().find(why), std::string::npos) << job.process().output();
  }
}

}  // namespace
}  // namespace millrace
