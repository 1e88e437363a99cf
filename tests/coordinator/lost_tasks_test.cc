// SPDX-License-Identifier: Apache-2.0
// What lost workers and parameter servers cost: server processes that are killed, stopped and
// started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/millrace.h"
#include "tests/coordinator/coordinated_program.h"
#include "tests/coordinator/process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// How many functions have a result.
int Ready(const std::vector<RemoteValue>& values) {
  int ready = 0;
  for (const RemoteValue& v : values) ready += v.state() == RemoteValue::State::kReady;
  return ready;
}

// Waits until `condition` holds; false if it does not in time.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

// Each result comes once; what a function does to a variable it does at least once, and more often
// only where it was put back.
class WorkersKilledAtRandom : public ::testing::TestWithParam<int> {};

TEST_P(WorkersKilledAtRandom, CostNoFunctionOfAThousand) {
  ProcessCluster cluster(1, 3);
  CoordinatedProgram program(cluster.spec());
  program.options.max_in_flight = GetParam();
  program.options.max_attempts = 1'000;  // no function is to blame for the kills here
  program.Open();
  // As add, but takes a while, so that there is something to kill.
  const WorkerFunction slow = program.Function("slow", [&](const Scope& worker) {
    const Output x = Placeholder(worker, kDouble, PartialShape(Shape({})));
    const Output matrix = RandomUniform(worker, Shape({250, 250}), -1, 1);
    const Output product = ops::MatMul(worker, matrix, matrix);
    const Scope after = worker.WithControlDependencies({product.op()});
    return FunctionParts{{x},
                         {ops::Add(worker, x, x), ReduceSum(worker, product)},
                         {AssignAdd(after, program.sum, x)}};
  });
  std::vector<RemoteValue> values;
  std::atomic<bool> scheduled{false};
  // The pauses grow: on a slow machine, too, a worker has a session in the end, and work to lose.
  std::thread killer([&] {
    std::mt19937 random(20);
    for (int kills = 0; !scheduled; ++kills) {
      std::this_thread::sleep_for(milliseconds(100 + random() % 200) * (1 + kills / 12));
      const int victim = static_cast<int>(random() % 3);
      cluster.Kill("worker", victim);
      cluster.Start("worker", victim);
    }
  });
  // Whether a kill costs a session or a function is up to chance: goes on until enough of them did.
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  CoordinatorStats stats;
  do {
    if (values.size() < 1000 || stats.scheduled - stats.finished < 100) {
      for (int i = 0; i < 10; ++i) values.push_back(program.Schedule(slow, 1));
    }
    std::this_thread::sleep_for(milliseconds(15));
    stats = program.coordinator->stats();
  } while (values.size() < 1000 || ((stats.sessions_lost < 3 || stats.retried < 3) &&
                                    std::chrono::steady_clock::now() < limit));
  scheduled = true;
  killer.join();
  const Status joined = program.coordinator->Join();
  ASSERT_TRUE(joined.ok()) << joined;
  const auto count = static_cast<int64_t>(values.size());
  EXPECT_EQ(Ready(values), count);
  for (const RemoteValue& value : values) {
    const auto result = value.Fetch();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0].scalar<double>(), 2.0);
  }
  stats = program.coordinator->stats();
  EXPECT_EQ(stats.finished, count);
  EXPECT_EQ(stats.failed, 0);
  EXPECT_EQ(stats.cancelled, 0);
  EXPECT_GE(stats.sessions_lost, 3);
  EXPECT_GE(stats.retried, 3);
  const auto expected_sum = static_cast<double>(count);
  const double sum = program.Sum();
  EXPECT_GE(sum, expected_sum);
  EXPECT_LE(sum, expected_sum + static_cast<double>(stats.retried));
  EXPECT_TRUE(Eventually([&] { return program.coordinator->stats().workers_ready == 3; }))
      << program.coordinator->Join();
}

INSTANTIATE_TEST_SUITE_P(InFlight, WorkersKilledAtRandom, ::testing::Values(1, 4));

TEST(LostWorkers, ThatAreAllGoneAreWaitedForAndNamed) {
  ProcessCluster cluster(1, 2);
  CoordinatedProgram program(cluster.spec());
  program.Open();
  cluster.Kill("worker", 0);
  cluster.Kill("worker", 1);
  const RemoteValue value = program.Schedule(program.add, 1);
  // Until both are known to be gone.
  Status late;
  EXPECT_TRUE(Eventually([&] {
    late = program.coordinator->Join(seconds(1));
    return !errors::IsDeadlineExceeded(late) || program.coordinator->stats().workers_ready == 0;
  }));
  late = program.coordinator->Join(seconds(1));
  EXPECT_TRUE(errors::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(
      Text(late),
      AllOf(HasSubstr("1 functions are queued"), HasSubstr("/job:worker/task:0 at 127.0.0.1:"),
            HasSubstr("/job:worker/task:1 at 127.0.0.1:"), HasSubstr("has had no session for")));
  cluster.Start("worker", 1);
  const Status joined = program.coordinator->Join();
  EXPECT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(value.worker(), 1);
}

TEST(LostWorkers, HaveTheirValuesMadeAnew) {
  ProcessCluster cluster(1, 1);
  CoordinatedProgram program(cluster.spec());
  program.Open();
  const auto iterator = program.coordinator->CreatePerWorkerValues("data", [](const Scope& worker) {
    const Output it = ops::IteratorV2(worker, "data", "", {kInt64}, {PartialShape(Shape({}))});
    const Output range =
        ops::RangeDataset(worker, Tensor::Scalar<int64_t>(0), Tensor::Scalar<int64_t>(1000),
                          Tensor::Scalar<int64_t>(1), {kInt64}, {PartialShape(Shape({}))});
    return PerWorkerParts{{it}, {ops::MakeIterator(worker, range, it)}};
  });
  ASSERT_TRUE(iterator.ok()) << iterator.status();
  const WorkerFunction next = program.Function("next", [&](const Scope& worker) {
    return FunctionParts{
        {},
        {ops::IteratorGetNext(worker, (*iterator)[0], {kInt64}, {PartialShape(Shape({}))})[0]},
        {}};
  });
  const auto take = [&]() -> int64_t {
    const auto value = program.coordinator->Schedule(next);
    if (!value.ok()) return -1;
    const auto result = value->Fetch();
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0].scalar<int64_t>() : -1;
  };
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), 1);
  cluster.Kill("worker", 0);
  cluster.Start("worker", 0);
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), 1);
}

TEST(LostWorkers, ArePassedOverByARunThatFindsThemGone) {
  ProcessCluster cluster(1, 1);
  CoordinatedProgram program(cluster.spec());
  program.Open();
  for (int round = 0; round < 5; ++round) {
    cluster.Kill("worker", 0);
    cluster.Start("worker", 0);
    EXPECT_EQ(program.Sum(), 0) << round;
  }
}

TEST(LostWorkers, ThatStandStillAreGivenUpAndComeBack) {
  ProcessCluster cluster(1, 2);
  CoordinatedProgram program(cluster.spec());
  program.options.worker_timeout = seconds(1);
  program.Open();
  ASSERT_TRUE(Eventually([&] { return program.coordinator->stats().workers_ready == 2; }));
  // Until the one that was stopped had been given a function.
  int rounds = 0;
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  do {
    cluster.Stop("worker", 0);
    std::vector<RemoteValue> values;
    for (int i = 0; i < 50; ++i) values.push_back(program.Schedule(program.add, 1));
    const Status joined = program.coordinator->Join();
    ASSERT_TRUE(joined.ok()) << joined;
    for (const RemoteValue& value : values) EXPECT_EQ(value.worker(), 1);
    cluster.Continue("worker", 0);
    EXPECT_TRUE(Eventually([&] { return program.coordinator->stats().workers_ready == 2; }));
    ++rounds;
  } while (program.coordinator->stats().retried < 1 && std::chrono::steady_clock::now() < limit);
  EXPECT_GE(program.coordinator->stats().retried, 1);
  EXPECT_EQ(program.coordinator->stats().finished, 50 * rounds);
}

TEST(LostWorkers, ThatStandStillDoNotKeepTheCoordinatorFromItsEnd) {
  ProcessCluster cluster(1, 1);
  CoordinatedProgram program(cluster.spec());
  program.Open();
  cluster.Stop("worker", 0);
  const RemoteValue value = program.Schedule(program.add, 1);
  const auto begin = std::chrono::steady_clock::now();
  program.coordinator = nullptr;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(40));
  EXPECT_TRUE(errors::IsCancelled(value.Fetch().status()));
}

// Killed in the middle of a function that is told twice to end: by its queue, and by its worker.
TEST(LostWorkers, DoNotHideAnErrorOfAFunction) {
  ProcessCluster cluster(1, 2);
  CoordinatedProgram program(cluster.spec());
  program.Open();
  const auto long_one = program.coordinator->Schedule(program.wait);
  ASSERT_TRUE(long_one.ok());
  const RemoteValue bad = program.Schedule(program.check, -1);
  EXPECT_TRUE(errors::IsInvalidArgument(bad.Fetch().status()));
  cluster.Kill("worker", 0);
  const Status error = program.coordinator->Join();
  EXPECT_TRUE(errors::IsInvalidArgument(error)) << error;
  EXPECT_TRUE(errors::IsCancelled(long_one->Fetch().status()));
  const RemoteValue good = program.Schedule(program.check, 1);
  EXPECT_TRUE(program.coordinator->Join().ok());
  EXPECT_TRUE(good.Fetch().ok());
}

// Its successor finds the variables, and workers that answer.
TEST(LostCoordinator, IsFollowedByAnother) {
  ProcessCluster cluster(1, 1);
  CoordinatedProgram first(cluster.spec());
  first.Open();
  first.Schedule(first.add, 3);
  ASSERT_TRUE(first.coordinator->Join().ok());
  ASSERT_TRUE(first.coordinator->Schedule(first.wait).ok());
  first.coordinator = nullptr;
  CoordinatedProgram second(cluster.spec());
  second.init = Group(second.graph.root().WithDevice("/job:worker"), {});
  second.Open();
  EXPECT_EQ(second.Sum(), 3);
  second.Schedule(second.add, 4);
  ASSERT_TRUE(second.coordinator->Join().ok());
  EXPECT_EQ(second.Sum(), 7);
}

TEST(LostParameterServer, IsAnErrorOnceAndRestoredBeforeTheNextFunction) {
  ProcessCluster cluster(2, 2);
  CoordinatedProgram program(cluster.spec());
  std::vector<std::string> restored;
  program.options.restore = [&](Session& session, const std::vector<std::string>& tasks) {
    restored.insert(restored.end(), tasks.begin(), tasks.end());
    return session.RunTargets({program.init});
  };
  program.Open();
  std::vector<RemoteValue> values;
  for (int i = 0; i < 20; ++i) values.push_back(program.Schedule(program.add, 1));
  ASSERT_TRUE(program.coordinator->Join().ok());
  EXPECT_EQ(program.Sum(), 20);
  cluster.Kill("ps", 1);
  // The loss may be noticed by a function, or before it is scheduled.
  Status error;
  for (int i = 0; i < 100 && error.ok(); ++i) {
    const Tensor one = Tensor::Scalar(1.0);
    error = program.coordinator->Schedule(program.add, std::span(&one, 1)).status();
  }
  if (error.ok()) error = program.coordinator->Join();
  EXPECT_TRUE(errors::IsUnavailable(error)) << error;
  EXPECT_THAT(Text(error),
              AllOf(HasSubstr("/job:ps/task:1 at 127.0.0.1:"), HasSubstr("its variables")));
  // Results from before are still there.
  EXPECT_EQ(Ready(values), 20);
  cluster.Start("ps", 1);
  const RemoteValue value = program.Schedule(program.add, 5);
  const Status joined = program.coordinator->Join();
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_TRUE(value.Fetch().ok());
  EXPECT_THAT(restored, ElementsAre("/job:ps/task:1"));
  EXPECT_EQ(program.Sum(), 5);
  EXPECT_EQ(program.coordinator->stats().ps_lost, 1);
}

TEST(LostParameterServer, WithoutARestoreFunctionIsToBeRecoveredByTheCaller) {
  ProcessCluster cluster(1, 1);
  CoordinatedProgram program(cluster.spec());
  program.Open();
  cluster.Kill("ps", 0);
  cluster.Start("ps", 0);
  Status error;
  ASSERT_TRUE(Eventually([&] {
    error = program.coordinator->Done().status();
    return !error.ok();
  })) << "noticed though nothing is scheduled";
  EXPECT_TRUE(errors::IsUnavailable(error)) << error;
  EXPECT_THAT(Text(error), HasSubstr("restarted"));
  const Tensor one = Tensor::Scalar(1.0);
  const Status refused = program.coordinator->Schedule(program.add, std::span(&one, 1)).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(Text(refused), HasSubstr("Recover"));
  const Status recovered = program.coordinator->Recover();
  ASSERT_TRUE(recovered.ok()) << recovered;
  const auto ready = program.coordinator->Run({}, {}, std::span(&program.init, 1));
  ASSERT_TRUE(ready.ok()) << ready.status();
  program.Schedule(program.add, 3);
  ASSERT_TRUE(program.coordinator->Join().ok());
  EXPECT_EQ(program.Sum(), 3);
}

TEST(LostParameterServer, ThatStoodStillKeepsItsVariables) {
  ProcessCluster cluster(1, 1);
  CoordinatedProgram program(cluster.spec());
  program.options.ps_timeout = seconds(4);  // a live one on a loaded machine is not lost
  std::atomic<int> restores{0};
  program.options.restore = [&](Session&, const std::vector<std::string>&) {
    ++restores;
    return OkStatus();
  };
  program.Open();
  program.Schedule(program.add, 3);
  ASSERT_TRUE(program.coordinator->Join().ok());
  cluster.Stop("ps", 0);
  program.Schedule(program.add, 4);
  const Status error = program.coordinator->Join();
  EXPECT_TRUE(errors::IsUnavailable(error)) << error;
  EXPECT_THAT(Text(error), HasSubstr("/job:ps/task:0"));
  cluster.Continue("ps", 0);
  program.Schedule(program.add, 5);
  const Status joined = program.coordinator->Join();
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(restores, 0);
  // The one that was cancelled may have been applied.
  EXPECT_THAT(program.Sum(), AnyOf(8, 12));
}

TEST(LostParameterServer, ThatDoesNotComeBackIsNamedByTheRecovery) {
  ProcessCluster cluster(1, 1);
  CoordinatedProgram program(cluster.spec());
  program.options.connect_timeout = seconds(10);
  program.Open();
  cluster.Kill("ps", 0);
  Status error;
  ASSERT_TRUE(Eventually([&] {
    error = program.coordinator->Done().status();
    return !error.ok();
  }));
  const Status status = program.coordinator->Recover();
  EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("/job:ps/task:0 at 127.0.0.1:"));
}

}  // namespace
}  // namespace millrace::testing
