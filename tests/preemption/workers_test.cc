// SPDX-License-Identifier: Apache-2.0
// Workers that train together, as processes, of which one is told to end: all end with the same
// step, and with the same exit code.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLimit{60};
constexpr int kWorkers = 3;

class ToldWorkers {
 public:
  explicit ToldWorkers(const std::string& mode)
      : folder_(StrCat(::testing::TempDir(), "/told_", getpid(), "_", mode)) {
    fs::remove_all(folder_);
    std::vector<std::string> addresses;
    for (const int port : FreePorts(kWorkers)) addresses.push_back(StrCat("127.0.0.1:", port));
    const std::string cluster = StrCat("worker|", StrJoin(addresses, ";"));
    for (int i = 0; i < kWorkers; ++i) {
      workers_.push_back(
          std::make_unique<Process>("tests/preemption/told_worker",
                                    std::vector<std::string>{mode, StrCat(i), cluster, folder_}));
    }
  }

  const std::string& folder() const { return folder_; }
  Process& worker(int i) { return *workers_[static_cast<std::size_t>(i)]; }
  // What each says at its end.
  std::vector<std::string> Ends() {
    std::vector<std::string> ends;
    for (int i = 0; i < kWorkers; ++i) {
      EXPECT_EQ(worker(i).WaitForEnd(kLimit), 128 + SIGTERM) << worker(i).output();
      const std::string& output = worker(i).output();
      const std::size_t at = output.find("ended after ");
      EXPECT_NE(at, std::string::npos) << output;
      if (at != std::string::npos) ends.push_back(output.substr(at));
    }
    return ends;
  }

 private:
  const std::string folder_;
  std::vector<std::unique_ptr<Process>> workers_;
};

// "ended after 12 steps" of all, without what they say of it.
void ExpectSameStep(const std::vector<std::string>& ends) {
  std::set<std::string> steps;
  for (const std::string& end : ends) steps.insert(end.substr(0, end.find(';')));
  EXPECT_EQ(steps.size(), 1u) << StrJoin(ends, "\n");
}

TEST(AWorkerThatIsToldToEnd, EndsTheFitOfAllWithTheSameStep) {
  for (const int told : {0, kWorkers - 1}) {
    ToldWorkers workers("fit");
    ASSERT_TRUE(workers.worker(told).WaitForOutput("begins step 20", kLimit))
        << workers.worker(told).output();
    workers.worker(told).Signal(SIGTERM);
    const std::vector<std::string> ends = workers.Ends();
    ASSERT_EQ(ends.size(), static_cast<std::size_t>(kWorkers));
    ExpectSameStep(ends);
    for (const std::string& end : ends) {
      EXPECT_NE(end.find("this process is to end (signal 15)"), std::string::npos) << end;
    }
  }
}

TEST(AWorkerThatIsToldToEnd, HasAllBackUpTheSameStep) {
  ToldWorkers workers("backup");
  ASSERT_TRUE(workers.worker(1).WaitForOutput("begins step 21", kLimit))
      << workers.worker(1).output();
  workers.worker(1).Signal(SIGTERM);
  const std::vector<std::string> ends = workers.Ends();
  ASSERT_EQ(ends.size(), static_cast<std::size_t>(kWorkers));
  ExpectSameStep(ends);
  for (const std::string& end : ends) {
    EXPECT_NE(end.find("the backup of this step is in"), std::string::npos) << end;
  }
  for (const char* own : {"/backup", "/backup/workertemp_1", "/backup/workertemp_2"}) {
    EXPECT_TRUE(fs::exists(StrCat(workers.folder(), own, "/checkpoint"))) << own;
  }
}

TEST(ARankThatIsToldToEnd, EndsTheLoopOfAllWithTheSameStep) {
  ToldWorkers ranks("ranks");
  ASSERT_TRUE(ranks.worker(2).WaitForOutput("begins step 20", kLimit)) << ranks.worker(2).output();
  ranks.worker(2).Signal(SIGTERM);
  const std::vector<std::string> ends = ranks.Ends();
  ASSERT_EQ(ends.size(), static_cast<std::size_t>(kWorkers));
  ExpectSameStep(ends);
}

}  // namespace
}  // namespace millrace::testing
