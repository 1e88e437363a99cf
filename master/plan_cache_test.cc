// SPDX-License-Identifier: Apache-2.0
#include "master/plan_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RunSignature Fetch(const std::string& name) {
  RunSignature signature;
  signature.fetches = {name};
  return signature;
}

// Plans that are built when the test says so, for which a ps has been asked.
class PlanCacheTest : public testing::Test {
 protected:
  struct Build {
    std::shared_ptr<PlanCache::Attempt> attempt;
    PlanCache::Ready ready;
  };
  struct Answer {
    Notification came;
    Status status;
  };

  std::shared_ptr<Answer> Get(const PlanCache::Patience& patience) {
    auto answer = std::make_shared<Answer>();
    cache_.Get(
        Fetch("x:0"), patience,
        [this](const RunSignature&, std::shared_ptr<PlanCache::Attempt> attempt,
               PlanCache::Ready ready) {
          {
            MutexLock lock(&attempt->mu);
            attempt->asked.push_back("/job:ps/task:0");
          }
          builds_.push_back({std::move(attempt), std::move(ready)});
        },
        [answer](const StatusOr<std::shared_ptr<Plan>>& plan) {
          answer->status = plan.status();
          answer->came.Notify();
        });
    return answer;
  }
  static bool Wait(const std::shared_ptr<Answer>& answer) {
    return answer->came.WaitUntil(DeadlineAfter(seconds(60)));
  }

  PlanCache cache_;
  std::vector<Build> builds_;
};

TEST_F(PlanCacheTest, EveryoneWaitsAsLongAsHeWants) {
  CancellationManager caller;
  const auto patient = Get({});
  const auto late = Get({.deadline = DeadlineAfter(milliseconds(20))});
  const auto cancelled = Get({.caller = &caller});
  ASSERT_EQ(builds_.size(), 1u);
  caller.StartCancel(errors::Cancelled("enough"));
  ASSERT_TRUE(Wait(cancelled));
  EXPECT_EQ(cancelled->status.code(), StatusCode::kCancelled);
  ASSERT_TRUE(Wait(late));
  EXPECT_EQ(late->status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(patient->came.HasBeenNotified());
  EXPECT_FALSE(builds_[0].attempt->cancellation.IsCancelled());
  builds_[0].ready(std::make_shared<Plan>());
  ASSERT_TRUE(Wait(patient));
  EXPECT_TRUE(patient->status.ok());
  EXPECT_TRUE(Get({})->status.ok());
  EXPECT_EQ(builds_.size(), 1u);
}

TEST_F(PlanCacheTest, TheErrorNamesWhoHasNotAnswered) {
  const auto patient = Get({});
  const auto late = Get({.deadline = DeadlineAfter(milliseconds(20))});
  ASSERT_EQ(builds_.size(), 1u);
  ASSERT_TRUE(Wait(late));
  EXPECT_NE(Message(late->status).find("/job:ps/task:0"), std::string_view::npos) << late->status;
  builds_[0].ready(errors::Cancelled("given up"));
  EXPECT_TRUE(Wait(patient));
}

TEST_F(PlanCacheTest, TheLastToLeaveEndsTheBuildingAndTheNextBeginsAnew) {
  CancellationManager caller;
  const auto first = Get({.caller = &caller});
  const auto second = Get({.deadline = DeadlineAfter(milliseconds(20))});
  ASSERT_EQ(builds_.size(), 1u);
  ASSERT_TRUE(Wait(second));
  EXPECT_FALSE(builds_[0].attempt->cancellation.IsCancelled());
  caller.StartCancel(errors::Cancelled("enough"));
  ASSERT_TRUE(Wait(first));
  EXPECT_TRUE(builds_[0].attempt->cancellation.IsCancelled());
  const auto third = Get({});
  ASSERT_EQ(builds_.size(), 2u);
  EXPECT_FALSE(builds_[1].attempt->cancellation.IsCancelled());
  builds_[0].ready(errors::Cancelled("given up"));  // nobody waits for it
  EXPECT_FALSE(third->came.HasBeenNotified());
  builds_[1].ready(std::make_shared<Plan>());
  ASSERT_TRUE(Wait(third));
  EXPECT_TRUE(third->status.ok());
}

// What the cache says while `runs` runs fetch names that none fetched before, each `times` times.
std::string NoticesOf(int runs, int times) {
  PlanCache cache("00ff");
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < runs; ++i) {
    for (int j = 0; j < times; ++j) {
      const std::vector<std::string> fetches = {StrCat("step_", i)};
      if (cache.Find({}, fetches, {}) != nullptr) continue;
      auto binding = std::make_shared<Binding>();
      StatusOr<RunSignature> signature = MakeSignature({}, fetches, {}, binding.get());
      cache.Get(
          *std::move(signature), {},
          [](const RunSignature&, const std::shared_ptr<PlanCache::Attempt>&,
             const PlanCache::Ready& ready) { ready(std::make_shared<Plan>()); },
          [&](const StatusOr<std::shared_ptr<Plan>>& plan) { binding->plan = *plan; });
      cache.Remember(binding);
    }
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(PlanCacheTest, ItIsToldThatMostRunsMakeAPlan) {
  const std::string said = NoticesOf(70, 1);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  EXPECT_NE(said.find("session 00ff: 16 of 16 runs asked for what none had asked for before"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("fetches 'step_15:0' and not 'step_14:0'"), std::string::npos) << said;
  EXPECT_NE(said.find("64 of 64 runs"), std::string::npos) << said;
  EXPECT_EQ(NoticesOf(15, 1), "");
  EXPECT_EQ(NoticesOf(70, 2), "");
}

TEST_F(PlanCacheTest, APlanThatComesWhenAllHaveLeftIsKept) {
  const auto only = Get({.deadline = DeadlineAfter(milliseconds(1))});
  ASSERT_TRUE(Wait(only));
  builds_[0].ready(std::make_shared<Plan>());
  EXPECT_TRUE(Get({})->status.ok());
  EXPECT_EQ(builds_.size(), 1u);
}

}  // namespace
}  // namespace millrace
