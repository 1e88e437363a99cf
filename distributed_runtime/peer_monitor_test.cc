// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/peer_monitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kTask[] = "/job:ps/replica:0/task:0";

// What it says of the silent tasks, "" if there are none.
std::string Silent(const PeerMonitor& monitor) {
  std::vector<Wait> waits;
  monitor.ListSilent(&waits);
  std::string text;
  for (const Wait& wait : waits) text += wait.text;
  return text;
}

// One task that answers or not, as the test says.
class PeerMonitorTest : public ::testing::Test {
 protected:
  PeerMonitor::Options Watch(milliseconds timeout) {
    PeerMonitor::Options options;
    options.timeout = timeout;
    options.pool = &pool_;
    options.watched = [this] {
      MutexLock lock(&mu_);
      looked_ = SteadyClock::now();
      return watched_ ? std::vector<std::string>{kTask} : std::vector<std::string>{};
    };
    options.known = [this](const std::string&) {
      MutexLock lock(&mu_);
      return known_;
    };
    options.ask = [this](const std::string&, const CallOptions&, WorkerInterface::Done done) {
      Status answer;
      {
        MutexLock lock(&mu_);
        ++asked_;
        answer = answer_;
        if (answer.ok()) last_sign_ = SteadyClock::now();
        changed_.SignalAll();
      }
      done(std::move(answer));
    };
    options.lost = [this](const std::string& task, const Status& why) {
      MutexLock lock(&mu_);
      lost_.emplace_back(task, why);
      changed_.SignalAll();
    };
    options.address = [](const std::string&) { return std::string("h:1"); };
    return options;
  }
  void SetAnswer(Status answer) {
    MutexLock lock(&mu_);
    answer_ = std::move(answer);
  }
  // When it has last looked: between two looks nobody knows when a call began.
  Deadline SetWatched(bool watched) {
    MutexLock lock(&mu_);
    watched_ = watched;
    return looked_;
  }
  bool WaitForLoss(std::size_t count) {
    const Deadline deadline = DeadlineAfter(seconds(60));
    MutexLock lock(&mu_);
    while (lost_.size() < count) {
      if (!changed_.WaitUntil(&mu_, deadline)) return false;
    }
    return true;
  }
  // Until `count` further questions have been asked.
  void WaitForQuestions(int count) {
    const Deadline deadline = DeadlineAfter(seconds(60));
    MutexLock lock(&mu_);
    const int until = asked_ + count;
    while (asked_ < until) ASSERT_TRUE(changed_.WaitUntil(&mu_, deadline));
  }
  // Soon: the answer to a question may be on its way.
  static bool IsHeardOf(const PeerMonitor& monitor) {
    const Deadline deadline = DeadlineAfter(seconds(60));
    while (!Silent(monitor).empty() && SteadyClock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return Silent(monitor).empty();
  }
  std::vector<std::pair<std::string, Status>> lost() {
    MutexLock lock(&mu_);
    return lost_;
  }

  ThreadPool pool_{"pool", 2};
  Mutex mu_;
  CondVar changed_;
  bool watched_ ABSL_GUARDED_BY(mu_) = true, known_ ABSL_GUARDED_BY(mu_) = true;
  Deadline looked_ ABSL_GUARDED_BY(mu_);
  int asked_ ABSL_GUARDED_BY(mu_) = 0;
  Deadline last_sign_ ABSL_GUARDED_BY(mu_);
  Status answer_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, Status>> lost_ ABSL_GUARDED_BY(mu_);
};

TEST_F(PeerMonitorTest, TellsOfATaskThatFallsSilentAndAgainAfterItHasAnswered) {
  PeerMonitor monitor(Watch(milliseconds(200)));
  monitor.Start();
  WaitForQuestions(3);
  EXPECT_TRUE(lost().empty());
  EXPECT_TRUE(IsHeardOf(monitor));
  SetAnswer(errors::DeadlineExceeded("no answer"));
  ASSERT_TRUE(WaitForLoss(1));
  EXPECT_EQ(lost()[0].first, kTask);
  const Status why = lost()[0].second;
  EXPECT_TRUE(errors::IsUnavailable(why)) << why;
  for (const char* part : {kTask, "h:1", "no sign of life for"}) {
    EXPECT_NE(Message(why).find(part), std::string_view::npos) << why;
  }
  EXPECT_NE(Silent(monitor).find(kTask), std::string::npos);
  SetAnswer(OkStatus());
  WaitForQuestions(3);
  const std::size_t before = lost().size();
  SetAnswer(errors::Unavailable("refused"));
  EXPECT_TRUE(WaitForLoss(before + 1));
}

// Calls that begin when it is lost already would else wait for their own deadlines.
TEST_F(PeerMonitorTest, TellsAgainThoseWhoBeginToWaitForALostTaskAfterTheTimeout) {
  constexpr milliseconds kTimeout{300};
  SetAnswer(errors::DeadlineExceeded("no answer"));
  PeerMonitor monitor(Watch(kTimeout));
  monitor.Start();
  ASSERT_TRUE(WaitForLoss(1));
  SetWatched(false);
  WaitForQuestions(10);
  const std::size_t before = lost().size();
  const Deadline looked = SetWatched(true);
  ASSERT_TRUE(WaitForLoss(before + 1));
  EXPECT_GE(SteadyClock::now() - looked, kTimeout);
}

// A server of another make may not know the question: that is an answer.
TEST_F(PeerMonitorTest, TakesAnyAnswerForASignOfLife) {
  SetAnswer(errors::Unimplemented("GetStatus"));
  PeerMonitor monitor(Watch(milliseconds(100)));
  monitor.Start();
  WaitForQuestions(15);
  EXPECT_TRUE(lost().empty());
}

TEST_F(PeerMonitorTest, DoesNotAskWhomNobodyWaitsForUnlessItIsSilent) {
  PeerMonitor monitor(Watch(milliseconds(100)));
  monitor.Start();
  WaitForQuestions(1);
  SetAnswer(errors::Unavailable("refused"));
  WaitForQuestions(2);
  SetWatched(false);
  WaitForQuestions(10);
  EXPECT_NE(Silent(monitor), "");
  SetAnswer(OkStatus());
  EXPECT_TRUE(IsHeardOf(monitor));
}

// Whoever never answered may be reachable in another way.
TEST_F(PeerMonitorTest, DoesNotLoseATaskThatItHasNeverReached) {
  {
    MutexLock lock(&mu_);
    known_ = false;
  }
  SetAnswer(errors::Unavailable("refused"));
  PeerMonitor monitor(Watch(milliseconds(100)));
  monitor.Start();
  WaitForQuestions(15);
  EXPECT_TRUE(lost().empty());
}

TEST_F(PeerMonitorTest, TakesASuspectForSilentAtOnce) {
  SetWatched(false);
  SetAnswer(errors::Unavailable("refused"));
  PeerMonitor monitor(Watch(seconds(1000)));
  monitor.Start();
  EXPECT_EQ(Silent(monitor), "");
  monitor.Suspect(kTask);
  EXPECT_NE(Silent(monitor).find(kTask), std::string::npos);
}

// Its link is closed when a task is killed: it has the whole timeout to come back.
TEST_F(PeerMonitorTest, DoesNotLoseASuspectBeforeTheTimeout) {
  constexpr milliseconds kTimeout{1000};
  PeerMonitor monitor(Watch(kTimeout));
  monitor.Start();
  WaitForQuestions(1);
  ASSERT_TRUE(IsHeardOf(monitor));
  SetAnswer(errors::Unavailable("refused"));
  monitor.Suspect(kTask);
  ASSERT_TRUE(WaitForLoss(1));
  const Deadline now = SteadyClock::now();
  MutexLock lock(&mu_);
  EXPECT_GE(now - last_sign_, kTimeout);
}

// Calls that take no time are rarely seen by a look: what lies between two that were seen is no
// silence of the task.
TEST_F(PeerMonitorTest, CountsSilenceFromWhenSomebodyBeganToWait) {
  constexpr milliseconds kTimeout{500};
  PeerMonitor monitor(Watch(kTimeout));
  monitor.Start();
  WaitForQuestions(1);
  ASSERT_TRUE(IsHeardOf(monitor));
  SetWatched(false);
  std::this_thread::sleep_for(3 * kTimeout);
  SetAnswer(errors::DeadlineExceeded("no answer"));
  const Deadline looked = SetWatched(true);
  ASSERT_TRUE(WaitForLoss(1));
  const std::chrono::duration<double> since = SteadyClock::now() - looked;
  EXPECT_GE(since, kTimeout);
  const std::string why(Message(lost()[0].second));
  const std::string text = "no sign of life for ";
  ASSERT_NE(why.find(text), std::string::npos) << why;
  const double silence = std::atof(why.c_str() + why.find(text) + text.size());
  EXPECT_GE(silence, 0.5) << why;
  EXPECT_LE(silence, since.count()) << why;
}

TEST_F(PeerMonitorTest, NeverLooksWithoutATimeout) {
  PeerMonitor monitor(Watch(milliseconds(0)));
  monitor.Start();
  monitor.Suspect(kTask);
  MutexLock lock(&mu_);
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace millrace
