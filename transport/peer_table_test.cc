// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/notification.h"

namespace millrace {
namespace {

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";
constexpr uint64_t kFirst = 11, kSecond = 22;

bool Says(const Status& status, std::string_view phrase) {
  return Message(status).find(phrase) != std::string_view::npos;
}

// The table of a ps, and what answers at the worker's address.
class PeerTableTest : public ::testing::Test {
 protected:
  PeerTableTest() : table_({kPs, 1, "", ""}, {{kPs, "h:1"}, {kWorker, "h:2"}}, &pool_) {
    table_.set_ask([this](const std::string& task, const CallOptions&, PeerTable::Devices* devices,
                          std::function<void(Status)> done) {
      asked_.fetch_add(1);
      if (!answer_.ok()) return done(answer_);
      pb::DeviceAttributes& device = devices->emplace_back();
      device.set_name(task_there_.empty() ? task + "/device:CPU:0" : task_there_);
      device.set_incarnation(there_.load());
      done(OkStatus());
    });
  }

  StatusOr<PeerTable::Standing> Admit(uint64_t incarnation, const char* task = kWorker) {
    std::optional<StatusOr<PeerTable::Standing>> result;
    Notification done;
    table_.Admit(task, incarnation, [&](StatusOr<PeerTable::Standing> standing) {
      result = std::move(standing);
      done.Notify();
    });
    done.Wait();
    return *std::move(result);
  }

  ThreadPool pool_{"pool", 1};
  PeerTable table_;
  std::atomic<int> asked_{0};
  Status answer_;
  std::string task_there_;  // "": the task that was asked for
  std::atomic<uint64_t> there_{kFirst};
};

TEST_F(PeerTableTest, ConfirmsTheProcessAtTheTasksAddressAndAsksOnce) {
  EXPECT_EQ(table_.StandingOf(kWorker, kFirst), PeerTable::Standing::kUnknown);
  for (int i = 0; i < 3; ++i) {
    const auto standing = Admit(kFirst);
    ASSERT_TRUE(standing.ok()) << standing.status();
    EXPECT_EQ(*standing, PeerTable::Standing::kConfirmed);
  }
  EXPECT_EQ(asked_.load(), 1);
  EXPECT_EQ(table_.StandingOf(kWorker, kFirst), PeerTable::Standing::kConfirmed);
  EXPECT_EQ(table_.StandingOf(kWorker, kSecond), PeerTable::Standing::kRefuted);
}

TEST_F(PeerTableTest, RefusesAnotherProcessNamingBothAndTheAddress) {
  // Also before the right one has ever called.
  const Status refused = Admit(kSecond).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(refused)) << refused;
  for (const char* part : {kPs, "h:1", kWorker, "h:2"}) EXPECT_TRUE(Says(refused, part)) << refused;
  EXPECT_EQ(table_.StandingOf(kWorker, kFirst), PeerTable::Standing::kConfirmed);
}

TEST_F(PeerTableTest, ConfirmsAProcessThatCameAfterTheFirstOne) {
  EXPECT_TRUE(Admit(kFirst).ok());
  there_ = kSecond;
  EXPECT_EQ(*Admit(kSecond), PeerTable::Standing::kConfirmed);
  EXPECT_TRUE(errors::IsFailedPrecondition(Admit(kFirst).status()));
}

TEST_F(PeerTableTest, TakesAProcessThatNobodyCanAskAboutAtItsWord) {
  answer_ = errors::Unavailable("connection refused");
  EXPECT_EQ(*Admit(kSecond), PeerTable::Standing::kUnknown);
  EXPECT_EQ(*Admit(kSecond), PeerTable::Standing::kUnknown);
  EXPECT_EQ(asked_.load(), 1);
  // As well one that is in no specification: groups may grow.
  EXPECT_EQ(*Admit(5, "/job:worker/replica:0/task:7"), PeerTable::Standing::kUnknown);
}

TEST_F(PeerTableTest, TakesAProcessAtItsWordIfItsOwnSpecificationIsWrongAboutIt) {
  task_there_ = "/job:worker/replica:0/task:1/device:CPU:0";
  EXPECT_EQ(*Admit(kSecond), PeerTable::Standing::kUnknown);
}

TEST_F(PeerTableTest, DoesNotGiveATaskThatIsSilentAwayToAnother) {
  EXPECT_TRUE(Admit(kFirst).ok());
  answer_ = errors::DeadlineExceeded("no answer");
  const Status refused = Admit(kSecond).status();
  EXPECT_TRUE(errors::IsUnavailable(refused)) << refused;
  EXPECT_TRUE(Says(refused, "h:2")) << refused;
  EXPECT_EQ(*Admit(kFirst), PeerTable::Standing::kConfirmed);
}

TEST_F(PeerTableTest, EndsQuestionsWhenItStops) {
  table_.Stop();
  EXPECT_TRUE(errors::IsUnavailable(Admit(kFirst).status()));
}

TEST(PeerNames, OfAnotherTaskOrClusterAreRefusedNamingBothAndTheAddress) {
  ThreadPool pool("pool", 1);
  const PeerTable table({kPs, 1, "mine", ""}, {{kPs, "h:1"}}, &pool);
  EXPECT_TRUE(table.CheckNames({kWorker, 2, "mine", kPs}).ok());
  EXPECT_TRUE(table.CheckNames({kWorker, 2, "", kPs}).ok());
  EXPECT_TRUE(table.CheckNames({kWorker, 2, "", ""}).ok());
  const Status other = table.CheckNames({kWorker, 2, "yours", kPs});
  EXPECT_TRUE(errors::IsFailedPrecondition(other)) << other;
  for (const char* part : {"'mine'", "'yours'", kPs, kWorker, "h:1"}) {
    EXPECT_TRUE(Says(other, part)) << other;
  }
  const Status wrong = table.CheckNames({kWorker, 2, "mine", "/job:ps/replica:0/task:1"});
  EXPECT_TRUE(errors::IsFailedPrecondition(wrong)) << wrong;
  for (const char* part : {"task:1", kPs, kWorker, "h:1"}) EXPECT_TRUE(Says(wrong, part)) << wrong;
}

TEST(PeerIdentity, TravelsAsText) {
  const PeerIdentity from{kWorker, 0xabcdef0123456789, "job-7", kPs};
  PeerIdentity to;
  ASSERT_TRUE(PeerIdentity::Parse(from.ToString(), &to));
  EXPECT_EQ(to.task, kWorker);
  EXPECT_EQ(to.incarnation, from.incarnation);
  EXPECT_EQ(to.cluster_id, "job-7");
  EXPECT_EQ(to.expected_task, kPs);
  ASSERT_TRUE(PeerIdentity::Parse(PeerIdentity{kWorker, 1, "", ""}.ToString(), &to));
  EXPECT_EQ(to.cluster_id, "");
  for (const char* text : {"", " ", "   ", "12 a b c", "00000000000000zz a b c",
                           "0000000000000001  b c", "0000000000000001 a b c d"}) {
    EXPECT_FALSE(PeerIdentity::Parse(text, &to)) << text;
  }
}

TEST(ClusterId, IsAShortWord) {
  EXPECT_TRUE(CheckClusterId("").ok());
  EXPECT_TRUE(CheckClusterId("mnist-0123.A_b").ok());
  EXPECT_TRUE(errors::IsInvalidArgument(CheckClusterId("two words")));
  EXPECT_TRUE(errors::IsInvalidArgument(CheckClusterId("a\nb")));
  EXPECT_TRUE(errors::IsInvalidArgument(CheckClusterId(std::string(129, 'a'))));
}

}  // namespace
}  // namespace millrace
