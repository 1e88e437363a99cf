#include "master/plan_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RunSignature Fetch(const std::string& name) {
  RunSignature signature;
  signature.fetches = {name};
  return signature;
}

// Plans that are built when the test says so.
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
  {
    MutexLock lock(&builds_[0].attempt->mu);
    builds_[0].attempt->asked.push_back("/job:ps/task:0");
  }
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
  const auto late = Get({.deadline = DeadlineAfter(milliseconds(200))});
  ASSERT_EQ(builds_.size(), 1u);
  {
    MutexLock lock(&builds_[0].attempt->mu);
    builds_[0].attempt->asked.push_back("/job:ps/task:0");
  }
  ASSERT_TRUE(Wait(late));
  EXPECT_NE(Message(late->status).find("/job:ps/task:0"), std::string_view::npos) << late->status;
  builds_[0].ready(errors::Cancelled("given up"));
}

TEST_F(PlanCacheTest, TheLastToLeaveEndsTheBuildingAndTheNextBeginsAnew) {
  const auto first = Get({.deadline = DeadlineAfter(milliseconds(1))});
  const auto second = Get({.deadline = DeadlineAfter(milliseconds(20))});
  ASSERT_TRUE(Wait(first));
  ASSERT_TRUE(Wait(second));
  ASSERT_EQ(builds_.size(), 1u);
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

TEST_F(PlanCacheTest, APlanThatComesWhenAllHaveLeftIsKept) {
  const auto only = Get({.deadline = DeadlineAfter(milliseconds(1))});
  ASSERT_TRUE(Wait(only));
  builds_[0].ready(std::make_shared<Plan>());
  EXPECT_TRUE(Get({})->status.ok());
  EXPECT_EQ(builds_.size(), 1u);
}

}  // namespace
}  // namespace millrace
