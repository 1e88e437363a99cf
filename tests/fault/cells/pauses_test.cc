// SPDX-License-Identifier: Apache-2.0
// Tasks that stand still for a while, and whose peers would wait longer than that: the job loses
// the time, and nothing else. MILLRACE_PAUSE says how many seconds (5).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tests/fault/cells/cell.h"
#include "tests/fault/cells/cell_job.h"
#include "tests/fault/cells/hosts.h"

namespace millrace::testing {
namespace {

constexpr double kPatience = 90;
// From the end of the pause to the next step of everybody.
constexpr double kSoon = 2;

double PauseSeconds() {
  const char* const text = std::getenv("MILLRACE_PAUSE");
  return text == nullptr ? 5 : std::max(1.0, std::atof(text));
}

using Paused = std::pair<Job, Role>;

std::vector<Paused> AllPaused() {
  std::vector<Paused> all;
  for (const Job job : {Job::kAsync, Job::kSync, Job::kAllReduce}) {
    for (const Role role : RolesOf(job)) {
      if (role != Role::kOther) all.emplace_back(job, role);
    }
  }
  return all;
}

class Pause : public ::testing::TestWithParam<Paused> {};

TEST_P(Pause, CostsNothingButItsTime) {
  const auto [kind, role] = GetParam();
  std::string why_not;
  Network* const network = CellNetwork(&why_not);
  if (network == nullptr) GTEST_SKIP() << "not run: " << why_not;
  const std::string folder = StrCat(::testing::TempDir(), "/pause_", getpid(), "_", JobName(kind),
                                    "_", RoleName(kind, role));
  std::filesystem::create_directories(folder);
  const double pause = PauseSeconds(), limit = 3 * pause + 30;
  const DelayProbe probe;
  CellJob job(network, kind, {limit, limit, limit}, folder);
  job.StartAll();
  ASSERT_EQ(job.AwaitSteps(0, 10, kPatience), "") << job.Story();

  const double begun = NowSeconds();
  job.Inject(role, Fault::kStop);
  std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  job.Heal(role, Fault::kStop);
  const double ended = NowSeconds();
  ASSERT_EQ(job.AwaitSteps(ended, 1, kPatience), "") << job.Story();
  const double soon = kSoon + 2 * probe.worst();
  ASSERT_EQ(job.AwaitSteps(ended, 10, kPatience), "") << job.Story();
  for (const Role other : RolesOf(kind)) {
    const std::vector<Event> events = job.EventsOf(other);
    // Neither an error nor another session.
    for (const Event& event : events) {
      if (event.at < begun) continue;
      EXPECT_EQ(event.kind, "step") << RoleName(kind, other) << ": " << event.text;
    }
    const auto next = std::find_if(events.begin(), events.end(), [ended = ended](const Event& e) {
      return e.kind == "step" && e.at >= ended;
    });
    if (next != events.end()) {
      EXPECT_LT(next->at - ended, soon) << RoleName(kind, other);
    }
  }
  if (HasFailure()) std::puts(job.Story().c_str());
  std::filesystem::remove_all(folder);
}

std::string PauseName(const ::testing::TestParamInfo<Paused>& info) {
  const auto [kind, role] = info.param;
  std::string name = CellName({kind, role, Fault::kStop});
  return name.substr(0, name.size() - FaultName(Fault::kStop).size());
}

INSTANTIATE_TEST_SUITE_P(Of, Pause, ::testing::ValuesIn(AllPaused()), PauseName);

}  // namespace
}  // namespace millrace::testing
