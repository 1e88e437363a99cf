// SPDX-License-Identifier: Apache-2.0
// Which ids masters give to their steps when a step went well at some of them and failed at others.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "collective/collective_manager.h"
#include "device/device.h"

namespace millrace {
namespace {

constexpr int64_t kGraphKey = 5;

// Two tasks, of which the first leads. What they put off is run by hand.
class StepIdsTest : public ::testing::Test {
 protected:
  StepIdsTest() {
    for (const std::string& task : {leader_, member_}) {
      CollectiveOptions options;
      options.task = task;
      options.peer = [this](std::string_view name) -> CollectivePeer* {
        const auto it = managers_.find(std::string(name));
        return it == managers_.end() ? nullptr : it->second->local();
      };
      options.at = [this](Deadline, std::function<void()> what) -> std::function<void()> {
        put_off_.push_back(std::move(what));
        return [] {};
      };
      managers_[task] = NewCollectiveManager(std::move(options));
    }
  }

  CollectiveManager& leader() { return *managers_.at(leader_); }
  CollectiveManager& member() { return *managers_.at(member_); }

  // -1 until there is an answer.
  std::shared_ptr<int64_t> Ask(CollectiveManager& manager) {
    auto id = std::make_shared<int64_t>(-1);
    manager.NextStepId(leader_, kGraphKey, nullptr,
                       [id](const StatusOr<int64_t>& next) { *id = next.value_or(-2); });
    return id;
  }
  int64_t Next(CollectiveManager& manager) { return *Ask(manager); }

  void RunWhatWasPutOff() {
    for (const auto& what : std::exchange(put_off_, {})) what();
  }

  const std::string leader_ = "/job:worker/replica:0/task:0";
  const std::string member_ = "/job:worker/replica:0/task:1";
  std::vector<std::function<void()>> put_off_;
  std::map<std::string, std::shared_ptr<CollectiveManager>> managers_;
};

// The leader used to begin another sequence, and both waited for the other until their deadlines.
TEST_F(StepIdsTest, AStepThatFailedAtTheLeaderAloneIsFollowedByTheSameOneEverywhere) {
  for (int round = 0; round < 3; ++round) {
    const int64_t id = Next(leader());
    ASSERT_EQ(Next(member()), id);
    leader().RetireStepId(kGraphKey, id, /*succeeded=*/false);
    member().RetireStepId(kGraphKey, id, /*succeeded=*/true);
  }
  const int64_t after = Next(leader());
  EXPECT_EQ(Next(member()), after);
}

TEST_F(StepIdsTest, AStepThatFailedAtAMemberAloneIsFollowedByTheSameOneEverywhere) {
  const int64_t id = Next(leader());
  ASSERT_EQ(Next(member()), id);
  leader().RetireStepId(kGraphKey, id, /*succeeded=*/true);
  member().RetireStepId(kGraphKey, id, /*succeeded=*/false);
  EXPECT_EQ(Next(leader()), id + 1);
  EXPECT_EQ(Next(member()), id + 1);
}

// It used to be given the id of the step that had ended well, whose pieces others had already
// taken.
TEST_F(StepIdsTest, AMemberThatFailedAheadOfTheLeaderWaitsForIt) {
  const int64_t id = Next(leader());
  ASSERT_EQ(Next(member()), id);
  member().RetireStepId(kGraphKey, id, /*succeeded=*/true);
  ASSERT_EQ(Next(member()), id + 1);
  member().RetireStepId(kGraphKey, id + 1, /*succeeded=*/false);

  const std::shared_ptr<int64_t> next = Ask(member());
  EXPECT_EQ(*next, -1) << "the leader's step with the id before is still under way";
  RunWhatWasPutOff();
  EXPECT_EQ(*next, -1);
  leader().RetireStepId(kGraphKey, id, /*succeeded=*/true);
  RunWhatWasPutOff();
  EXPECT_EQ(*next, id + 1);
  EXPECT_EQ(Next(leader()), id + 1);
}

// A leader that takes no part never goes on: its members do.
TEST_F(StepIdsTest, AMemberDoesNotWaitForALeaderForEver) {
  const int64_t id = Next(member());
  member().RetireStepId(kGraphKey, id, /*succeeded=*/true);
  ASSERT_EQ(Next(member()), id + 1);
  member().RetireStepId(kGraphKey, id + 1, /*succeeded=*/false);
  const std::shared_ptr<int64_t> next = Ask(member());
  for (int i = 0; i < 100 && *next == -1; ++i) RunWhatWasPutOff();
  EXPECT_EQ(*next, id);
}

}  // namespace
}  // namespace millrace
