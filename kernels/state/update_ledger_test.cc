// SPDX-License-Identifier: Apache-2.0
#include "kernels/state/update_ledger.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "kernels/state/counted_update.h"

namespace millrace {
namespace {

constexpr char kWorker[] = "/job:worker/replica:0/task:0";
constexpr char kOther[] = "/job:worker/replica:0/task:1";

class Updates : public ::testing::Test {
 protected:
  // A step of one process of a task.
  StepOrigin Begin(const char* task, uint64_t incarnation, int64_t step_id) {
    const StepOrigin step{task, &sessions_[incarnation % 8], step_id};
    ledger_->BeginStep(step, ledger_->AddSource(task, incarnation), &expected_);
    return step;
  }
  void RunStep(const char* task, uint64_t incarnation, int64_t step_id) {
    const StepOrigin step = Begin(task, incarnation, step_id);
    ledger_->Push(w_, step, UpdateFate::kApplied);
    ledger_->EndStep(step, /*failed=*/false);
  }
  UpdateAccount AccountOf(std::string_view task, uint64_t incarnation) {
    for (const LedgerEntry& entry : ledger_->Snapshot()) {
      for (const UpdateAccount& account : entry.accounts) {
        EXPECT_TRUE(account.Balances()) << entry.name;
        if (account.task == task && account.incarnation == incarnation) return account;
      }
    }
    return {};
  }

  const int sessions_[8] = {};
  const RefPtr<UpdateLedger> ledger_ = MakeRef<UpdateLedger>();
  UpdateLedger::Entry* const w_ = ledger_->Find(LedgerKind::kVariable, "w");
  const UpdateLedger::Expected expected_ = {w_};
};

TEST_F(Updates, AreCountedForTheProcessWhoseStepBroughtThem) {
  RunStep(kWorker, 1, 10);
  RunStep(kWorker, 1, 11);
  RunStep(kWorker, 2, 12);  // it was started again
  RunStep(kOther, 3, 13);
  EXPECT_EQ(AccountOf(kWorker, 1).applied, 2);
  EXPECT_EQ(AccountOf(kWorker, 1).last_step_id, 11);
  EXPECT_EQ(AccountOf(kWorker, 2).applied, 1);
  EXPECT_EQ(AccountOf(kOther, 3).pushed, 1);
}

TEST_F(Updates, OfNobodyWhoIsKnownAreCountedAsSuch) {
  ledger_->Push(w_, {}, UpdateFate::kApplied);
  const UpdateAccount unknown = AccountOf("", 0);
  EXPECT_EQ(unknown.applied, 1);
  EXPECT_EQ(unknown.age_not_known, 1);
}

TEST_F(Updates, AreAsOldAsTheUpdatesOfOthersSinceTheirStepBegan) {
  const StepOrigin slow = Begin(kWorker, 1, 10);
  for (int64_t i = 0; i < 3; ++i) RunStep(kOther, 2, 20 + i);
  ledger_->Push(w_, slow, UpdateFate::kApplied);
  ledger_->EndStep(slow, false);
  RunStep(kWorker, 1, 11);
  const UpdateAccount account = AccountOf(kWorker, 1);
  EXPECT_EQ(account.oldest, 3);
  EXPECT_EQ(account.ages[static_cast<std::size_t>(AgeBucket(3))], 1);
  EXPECT_EQ(account.ages[0], 1);
  EXPECT_EQ(AccountOf(kOther, 2).oldest, 0);
}

TEST_F(Updates, OfGreatAgeAreCountedAsFarAsTheLedgerLooksBack) {
  const StepOrigin slow = Begin(kWorker, 1, 10);
  for (int64_t i = 0; i < 1500; ++i) RunStep(kOther, 2, 100 + i);
  ledger_->Push(w_, slow, UpdateFate::kApplied);
  EXPECT_EQ(AccountOf(kWorker, 1).oldest, 1024);
}

TEST_F(Updates, ThatDidNotComeBeforeTheirStepFailedAreCountedApart) {
  const StepOrigin lost = Begin(kWorker, 1, 10);
  EXPECT_EQ(AccountOf(kWorker, 1).awaited, 1);
  ledger_->EndStep(lost, /*failed=*/true);
  const StepOrigin late = Begin(kWorker, 1, 11);
  ledger_->Push(w_, late, UpdateFate::kApplied);
  ledger_->EndStep(late, /*failed=*/true);  // something else went wrong: this one had come
  const StepOrigin branch = Begin(kWorker, 1, 12);
  ledger_->EndStep(branch, /*failed=*/false);  // on a branch that was not taken
  const UpdateAccount account = AccountOf(kWorker, 1);
  EXPECT_EQ(account.not_arrived, 1);
  EXPECT_EQ(account.awaited, 0);
  EXPECT_EQ(account.pushed, 1);
}

TEST_F(Updates, OfAStepThatComesAgainAreRefusedAndCounted) {
  const int source = ledger_->AddSource(kWorker, 1);
  const StepOrigin step{kWorker, &sessions_[0], 10}, elsewhere{kWorker, &sessions_[1], 10};
  EXPECT_TRUE(ledger_->Admit(step, source, expected_).ok());
  RunStep(kWorker, 1, 10);
  const Status again = ledger_->Admit(step, source, expected_);
  EXPECT_TRUE(errors::IsAlreadyExists(again)) << again;
  EXPECT_TRUE(ledger_->Admit(elsewhere, source, expected_).ok());  // sessions count by themselves
  EXPECT_TRUE(ledger_->Admit(step, ledger_->AddSource(kWorker, 2), expected_).ok());
  EXPECT_TRUE(ledger_->Admit(step, 0, expected_).ok());  // who is not known may be two
  EXPECT_TRUE(ledger_->Admit(step, 0, expected_).ok());
  const UpdateAccount account = AccountOf(kWorker, 1);
  EXPECT_EQ(account.pushed, 2);
  EXPECT_EQ(account.applied, 1);
  EXPECT_EQ(account.duplicate, 1);
}

TEST_F(Updates, ThatAreHeldBecomeAppliedWhenTheyAreTaken) {
  UpdateLedger::Entry* const sum = ledger_->Find(LedgerKind::kAccumulator, "sum");
  const StepOrigin one{kWorker, nullptr, 1}, other{kOther, nullptr, 2};
  ledger_->Push(sum, one, UpdateFate::kHeld, 0);
  ledger_->Push(sum, other, UpdateFate::kHeld, 0);
  EXPECT_EQ(AccountOf(kWorker, 0).held, 1);
  ledger_->Settle(sum, UpdateFate::kApplied);
  ledger_->Push(sum, other, UpdateFate::kStale, 2);
  EXPECT_EQ(AccountOf(kWorker, 0).held, 0);
  EXPECT_EQ(AccountOf(kWorker, 0).applied, 1);
  EXPECT_EQ(AccountOf(kOther, 0).stale, 1);
  EXPECT_EQ(AccountOf(kOther, 0).oldest, 2);
}

TEST_F(Updates, OfMoreProcessesThanAreKeptShareAnAccount) {
  const auto many = static_cast<int64_t>(UpdateLedger::kMostSources) + 50;
  for (int64_t i = 1; i <= many; ++i) RunStep(kWorker, static_cast<uint64_t>(i), i);
  int64_t applied = 0;
  std::size_t accounts = 0;
  for (const LedgerEntry& entry : ledger_->Snapshot()) {
    accounts += entry.accounts.size();
    for (const UpdateAccount& account : entry.accounts) applied += account.applied;
  }
  EXPECT_EQ(applied, many);
  EXPECT_LE(accounts, UpdateLedger::kMostSources);
  EXPECT_GT(AccountOf("(others)", 0).applied, 0);
}

TEST_F(Updates, OfReferencesAreFoundByTheirMutexUntilItGoes) {
  Mutex mutex;
  EXPECT_EQ(ledger_->FindReference(&mutex), nullptr);
  ledger_->NameReference(&mutex, "w");
  EXPECT_EQ(ledger_->FindReference(&mutex), w_);
  ledger_->ForgetReference(&mutex);
  EXPECT_EQ(ledger_->FindReference(&mutex), nullptr);
}

TEST_F(Updates, OfManyThreadsAreAllCounted) {
  constexpr int kThreads = 4;
  constexpr int64_t kSteps = 5000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int64_t i = 0; i < kSteps; ++i) {
        const StepOrigin step = Begin(kWorker, static_cast<uint64_t>(t) + 1, t * kSteps + i);
        if (i % 5 != 0) ledger_->Push(w_, step, UpdateFate::kApplied);
        ledger_->EndStep(step, /*failed=*/i % 5 == 0);
        if (i % 100 == 0) (void)ledger_->Snapshot();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t t = 1; t <= kThreads; ++t) {
    EXPECT_EQ(AccountOf(kWorker, t).applied, kSteps / 5 * 4);
    EXPECT_EQ(AccountOf(kWorker, t).not_arrived, kSteps / 5);
  }
}

TEST(AgeBuckets, DoubleFromOneToTheNext) {
  EXPECT_EQ(AgeBucket(0), 0);
  EXPECT_EQ(AgeBucket(1), 1);
  EXPECT_EQ(AgeBucket(2), 2);
  EXPECT_EQ(AgeBucket(3), 3);
  EXPECT_EQ(AgeBucket(4), 3);
  EXPECT_EQ(AgeBucket(5), 4);
  EXPECT_EQ(AgeBucket(1024), kAgeBuckets - 1);
  EXPECT_EQ(AgeBucket(int64_t{1} << 40), kAgeBuckets - 1);
}

TEST(Ledger, IsOneOfADeviceWhichNoContainersCleanupTakes) {
  ResourceManager resources;
  const RefPtr<UpdateLedger> ledger = UpdateLedger::Of(&resources);
  resources.Cleanup(kDefaultContainer);
  EXPECT_EQ(UpdateLedger::Of(&resources).get(), ledger.get());
}

TEST(Ledger, TellsContainersApart) {
  const RefPtr<UpdateLedger> ledger = MakeRef<UpdateLedger>();
  const auto find = [&](std::string_view container) {
    return FindInLedger(ledger.get(), LedgerKind::kVariable, container, "w");
  };
  EXPECT_EQ(find(""), find(kDefaultContainer));
  EXPECT_NE(find(""), find("mine"));
  EXPECT_NE(find(""), ledger->Find(LedgerKind::kAccumulator, "w"));
}

}  // namespace
}  // namespace millrace
