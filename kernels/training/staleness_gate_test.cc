// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/staleness_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Calls something that waits, and waits.
class Wait {
 public:
  StalenessGate::Done done() {
    return [this](Status status) {
      status_ = std::move(status);
      ended_.Notify();
    };
  }
  Status status() {
    ended_.Wait();
    return status_;
  }
  bool ended() const { return ended_.HasBeenNotified(); }

 private:
  Status status_;
  Notification ended_;
};

Status Enter(StalenessGate& gate, int64_t step) {
  Wait wait;
  gate.Enter(step, StrCat("worker of ", step), nullptr, wait.done());
  return wait.status();
}
Status Commit(StalenessGate& gate, int64_t step) {
  Wait wait;
  gate.Commit(step, nullptr, wait.done());
  return wait.status();
}

void Expect(const Status& status) { EXPECT_TRUE(status.ok()) << status; }

// Workers of different speeds and a variable, of which `applied` is the version, in one thread: any
// of them may do its next thing at any time, as far as the gate lets it.
class Job {
 public:
  Job(int64_t bound, int num_workers) : gate(MakeRef<StalenessGate>("test", bound)) {
    workers_.resize(static_cast<size_t>(num_workers));
  }
  ~Job() { gate->OnRemoved(); }

  // Random moves until so many updates were applied; some steps are given up, at any point.
  void Run(int64_t updates, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int64_t moves = 0; applied < updates; ++moves) {
      ASSERT_LT(moves, updates * 1000) << "nobody can go on";
      const uint64_t one = random() % workers_.size();
      // The first is ten times as slow.
      if (one == 0 && random() % 10 != 0) continue;
      Move(one, random() % 200 == 0);
    }
  }

  const RefPtr<StalenessGate> gate;
  int64_t applied = 0, oldest = 0, given_up = 0;

 private:
  enum class At { kOut, kEntering, kIn, kCommitting, kApplying };
  struct Worker {
    At at = At::kOut;
    int64_t read = 0, step = 0;
  };

  StalenessGate::Done Then(uint64_t i, At at) {
    return [this, i, at](const Status& status) {
      if (!status.ok()) return;
      workers_[i].at = at;
      if (at == At::kIn) workers_[i].read = applied;
    };
  }

  void Move(uint64_t i, bool gives_up) {
    Worker& w = workers_[i];
    switch (w.at) {
      case At::kOut:
        w.at = At::kEntering;
        w.step = ++steps_;
        return gate->Enter(w.step, StrCat("worker ", i), nullptr, Then(i, At::kIn));
      case At::kIn:
        if (gives_up) return Leave(i);
        w.at = At::kCommitting;
        return gate->Commit(w.step, nullptr, Then(i, At::kApplying));
      case At::kApplying:
        for (uint64_t other = 0; other < workers_.size(); ++other) {
          EXPECT_TRUE(other == i || workers_[other].at != At::kApplying) << "one at a time";
        }
        oldest = std::max(oldest, applied - w.read);
        ++applied;
        if (!gives_up) {
          gate->Finish(w.step);
          gate->Leave(w.step);
          w.at = At::kOut;
          return;
        }
        return Leave(i);
      case At::kEntering:
      case At::kCommitting:
        return;
    }
  }

  void Leave(uint64_t i) {
    ++given_up;
    gate->Leave(workers_[i].step);
    workers_[i].at = At::kOut;
  }

  std::vector<Worker> workers_;
  int64_t steps_ = 0;
};

TEST(StalenessGate, KeepsTheBoundInAMillionUpdates) {
  for (const int num_workers : {2, 5}) {
    for (const int64_t bound : {0, 1, 2, 4, 10}) {
      Job job(bound, num_workers);
      job.Run(100'000, static_cast<uint64_t>(bound));
      EXPECT_LE(job.oldest, bound);
      // Nobody waits in vain: all that is allowed happens.
      EXPECT_EQ(job.oldest, bound) << num_workers;
      EXPECT_EQ(job.gate->totals().max_staleness, bound) << num_workers;
      EXPECT_EQ(job.gate->totals().updates, job.applied);
      EXPECT_GT(job.given_up, 100);
    }
  }
}

TEST(StalenessGate, ServesWorkersInThreadsOfTheirOwn) {
  const auto gate = MakeRef<StalenessGate>("test", 1);
  std::atomic<int64_t> applied{0}, oldest{0};
  std::vector<std::thread> threads;
  for (int64_t worker = 1; worker <= 3; ++worker) {
    threads.emplace_back([&, worker] {
      for (int64_t i = 0; i < 40; ++i) {
        const int64_t step = worker * 1000 + i;
        Expect(Enter(*gate, step));
        const int64_t read = applied;
        Expect(Commit(*gate, step));
        const int64_t old = applied - read;
        if (old > oldest) oldest = old;  // one at a time
        ++applied;
        gate->Finish(step);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(applied, 120);
  EXPECT_LE(oldest, 1);
}

TEST(StalenessGate, LetsTheFastWaitForTheSlowest) {
  const auto gate = MakeRef<StalenessGate>("test", 2);
  Expect(Enter(*gate, 1));
  for (const int64_t step : {2, 3}) {
    Expect(Enter(*gate, step));
    Expect(Commit(*gate, step));
    gate->Finish(step);
  }
  Expect(Enter(*gate, 4));
  Wait third;
  gate->Commit(4, nullptr, third.done());
  EXPECT_FALSE(third.ended()) << "the first would be three updates behind";
  Expect(Commit(*gate, 1));
  EXPECT_FALSE(third.ended()) << "one at a time";
  gate->Finish(1);
  Expect(third.status());
  EXPECT_EQ(gate->totals().waits, 1);
}

TEST(StalenessGate, DoesNotWaitForAStepThatIsOver) {
  const auto gate = MakeRef<StalenessGate>("test", 1);
  for (const int64_t step : {1, 2}) Expect(Enter(*gate, step));
  Expect(Commit(*gate, 1));
  Wait second, third;
  gate->Commit(2, nullptr, second.done());
  gate->Enter(3, "", nullptr, third.done());
  EXPECT_FALSE(second.ended());
  EXPECT_FALSE(third.ended());
  gate->Leave(1);  // within its update, which may have been made
  Expect(second.status());
  Expect(third.status());
  EXPECT_EQ(gate->totals().updates, 1);
}

TEST(StalenessGate, NamesWhomACancelledStepHasWaitedFor) {
  const auto gate = MakeRef<StalenessGate>("test", 0);
  gate->Enter(1, "worker 7", nullptr, [](const Status&) {});
  CancellationManager cancellation;
  Wait other;
  gate->Enter(2, "worker 8", &cancellation, other.done());
  EXPECT_FALSE(other.ended());
  cancellation.StartCancel(errors::Cancelled("enough"));
  EXPECT_TRUE(errors::IsCancelled(other.status()));
  EXPECT_NE(Message(other.status()).find("for an update of worker 7"), std::string::npos)
      << other.status();
}

TEST(StalenessGate, RefusesAnUpdateOfAStepThatHasNotEntered) {
  EXPECT_TRUE(errors::IsFailedPrecondition(Commit(*MakeRef<StalenessGate>("test", 0), 1)));
}

}  // namespace
}  // namespace millrace
