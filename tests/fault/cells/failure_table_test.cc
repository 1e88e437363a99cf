// SPDX-License-Identifier: Apache-2.0
// The table of failures, cell by cell, with real processes on hosts of their own: a sample by
// default, all of it with MILLRACE_CELLS=all. Each cell prints its row of the table in
// docs/failures.md, which tools/ci_long cells puts there.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/strings.h"
#include "tests/fault/cells/cell.h"
#include "tests/fault/cells/cell_job.h"
#include "tests/fault/cells/hosts.h"
#include "tests/fault/cells/verdict.h"

namespace millrace::testing {
namespace {

// How long a failure lasts: longer than all limits of those who wait.
constexpr double kHold = 7.5;
// For a loaded machine, where it is not about how long something takes.
constexpr double kPatience = 90;
constexpr int kStepsBefore = 15, kStepsAfter = 15;

bool AllWanted() {
  const char* const cells = std::getenv("MILLRACE_CELLS");
  return cells != nullptr && std::string(cells) == "all";
}

std::string OneDigit(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", seconds);
  return text;
}

void PrintRow(const Cell& cell, const std::string& rest) {
  std::printf("%s", StrCat("| ", JobName(cell.job), " | ", RoleName(cell.job, cell.victim), " | ",
                           FaultName(cell.fault), " | ", rest, " |\n")
                        .c_str());
  std::fflush(stdout);
}

class FailureTable : public ::testing::TestWithParam<Cell> {};

TEST_P(FailureTable, IsAsPromised) {
  const Cell cell = GetParam();
  if (!AllWanted() && !IsInSample(cell)) GTEST_SKIP() << "only with MILLRACE_CELLS=all";
  std::string why_not;
  Network* const network = CellNetwork(&why_not);
  if (network == nullptr) {
    PrintRow(cell, StrCat("not run: ", why_not, " | | | "));
    GTEST_SKIP() << "not run: " << why_not;
  }
  const std::string folder = StrCat(::testing::TempDir(), "/cell_", CellName(cell), "_", getpid());
  std::filesystem::create_directories(folder);
  const Limits limits;
  const DelayProbe probe;
  CellJob job(network, cell.job, limits, folder);
  job.StartAll();
  const std::string not_begun = job.AwaitSteps(0, kStepsBefore, kPatience);
  ASSERT_EQ(not_begun, "") << job.Story();

  Times times;
  times.injected = NowSeconds();
  job.Inject(cell.victim, cell.fault);
  if (cell.fault != Fault::kRestart) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kHold));
  }
  times.healed = NowSeconds();
  job.Heal(cell.victim, cell.fault);
  const std::string not_gone_on = job.AwaitSteps(times.healed, kStepsAfter, kPatience);
  times.trained = NowSeconds();
  times.slack = 2 * probe.worst();

  const Verdict verdict = Judge(cell, job, limits, times);
  EXPECT_EQ(not_gone_on, "") << "training does not go on";
  for (const std::string& broken : verdict.broken) ADD_FAILURE() << broken;
  const bool kept = not_gone_on.empty() && verdict.broken.empty();
  PrintRow(cell, StrCat(verdict.noticed, " | ", OneDigit(verdict.longest_wait), " of ",
                        OneDigit(verdict.allowed), " s | ", OneDigit(times.trained - times.healed),
                        " s | ", kept ? "kept" : "BROKEN"));
  if (!kept) std::printf("%s", job.Story().c_str());
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Cells, FailureTable, ::testing::ValuesIn(AllCells()),
                         [](const auto& info) { return CellName(info.param); });

}  // namespace
}  // namespace millrace::testing
