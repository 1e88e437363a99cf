// SPDX-License-Identifier: Apache-2.0
// Programs that save and are killed with SIGKILL at any moment: the next one finds the newest
// checkpoint whole, and goes on from it. MILLRACE_KILLS says how often (tools/ci_long: 200).
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "base/strings.h"
#include "millrace/evaluator.h"
#include "tests/cluster/process.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

constexpr int64_t kElements = 1 << 15;
constexpr char kFolderVariable[] = "KILLED_SAVER_FOLDER";
constexpr std::chrono::seconds kLimit{60};

Tensor AllOf(int64_t number) {
  Tensor t(kFloat, Shape({kElements}));
  for (float& v : t.flat<float>()) v = static_cast<float>(number);
  return t;
}

// The number of the newest checkpoint in a folder, 0 if there is none. All of it must be there, and
// of one save.
int64_t NewestIn(const std::string& folder) {
  const std::string newest = LatestCheckpoint(folder);
  if (newest.empty()) return 0;
  const int64_t number = CheckpointNumber(newest).value_or(-1);
  const auto tensors = ReadTensors(newest);
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  if (!tensors.ok()) return -1;
  int whole = 0;
  for (const auto& [name, tensor] : *tensors) {
    if (tensor.dtype() == kFloat) whole += TensorsEqual(tensor, AllOf(number)) ? 1 : 0;
  }
  EXPECT_EQ(whole, 2) << newest;
  return number;
}

// Saves until it is killed: by a saver into one folder, and by a manager into another.
TEST(KilledSavers, DISABLED_Child) {
  const std::string folder = std::getenv(kFolderVariable);
  Graph graph;
  const Output value = Placeholder(graph.root(), kFloat, {kElements});
  std::vector<Operation> assigns;
  std::map<std::string, Trackable> children;
  for (const char* name : {"a", "b"}) {
    const Variable v = MakeVariable(
        graph.root(), name, Constant(graph.root().WithOpName(StrCat(name, "_init")), AllOf(0)));
    assigns.push_back(Assign(graph.root(), v, value));
    children.emplace(name, v);
  }
  const auto saver = Saver::Create(graph, {.sharded = true, .max_to_keep = 2});
  const auto checkpoint = Checkpoint::Create(graph, children);
  const auto manager = CheckpointManager::Create(
      checkpoint->get(), {.directory = folder + "/manager", .max_to_keep = 2});
  ASSERT_TRUE(manager.ok()) << manager.status();
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  int64_t number = 0;
  if (const std::string newest = LatestCheckpoint(folder + "/saver"); !newest.empty()) {
    const Status restored = (*saver)->Restore(session, newest);
    ASSERT_TRUE(restored.ok()) << restored;
    number = *CheckpointNumber(newest);
  }
  const auto state = GetCheckpointState(folder + "/saver");
  if (state.ok() && *state) (*saver)->RecoverLastCheckpoints((*state)->all_model_checkpoint_paths);
  for (++number;; ++number) {
    const Feed feed{value, AllOf(number)};
    ASSERT_TRUE(session.Run(std::span(&feed, 1), {}, assigns).ok());
    const auto saved = (*saver)->Save(session, folder + "/saver/model", {.global_step = number});
    ASSERT_TRUE(saved.ok()) << saved.status();
    const auto managed = (*manager)->Save(session, number);
    ASSERT_TRUE(managed.ok()) << managed.status();
    std::printf("saved %lld\n", static_cast<long long>(number));
    std::fflush(stdout);
  }
}

TEST(KilledSavers, LeaveTheNewestCheckpointWhole) {
  const char* const wanted = std::getenv("MILLRACE_KILLS");
  const int kills = wanted == nullptr ? 25 : std::max(1, std::atoi(wanted));
  const std::string folder = EmptyFolder("it");
  ::setenv(kFolderVariable, folder.c_str(), 1);
  // What whoever runs this test wants to know of it is not about its children.
  for (const char* name : {"TEST_PREMATURE_EXIT_FILE", "XML_OUTPUT_FILE", "TEST_TOTAL_SHARDS",
                           "TEST_SHARD_INDEX", "TEST_SHARD_STATUS_FILE"}) {
    ::unsetenv(name);
  }
  std::mt19937 random(7);
  int64_t last = 0;
  for (int kill = 0; kill < kills; ++kill) {
    SCOPED_TRACE(StrCat("kill ", kill));
    Process child("/proc/self/exe", {"--gtest_also_run_disabled_tests",
                                     "--gtest_filter=KilledSavers.DISABLED_Child"});
    ASSERT_TRUE(child.WaitForOutput(StrCat("saved ", last + 1), kLimit)) << child.output();
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, 30'000)(random)));
    child.Signal(SIGKILL);
    ASSERT_EQ(child.WaitForEnd(kLimit), -SIGKILL) << child.output();
    const std::size_t line = child.output().rfind("saved ");
    const int64_t told = std::atoll(child.output().c_str() + line + 6);
    const int64_t newest = NewestIn(folder + "/saver");
    EXPECT_GE(newest, told);
    EXPECT_GE(NewestIn(folder + "/manager"), told);
    ASSERT_FALSE(HasFailure());
    last = newest;
  }
  EXPECT_GE(last, kills);
}

}  // namespace
}  // namespace millrace::testing
