// SPDX-License-Identifier: Apache-2.0
// What is scheduled, joined and fetched, and how errors are told: servers in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/millrace.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/coordinator/coordinated_program.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::chrono::steady_clock::time_point Limit() {
  return std::chrono::steady_clock::now() + kPatience;
}

class Coordinator : public ::testing::Test {
 protected:
  Coordinator() : cluster_(1, 2), program_(cluster_.spec()) {}
  ClusterCoordinator& coordinator() { return *program_.coordinator; }

  InProcessCluster cluster_;
  CoordinatedProgram program_;
};

TEST_F(Coordinator, GivesEachFunctionItsOwnResult) {
  program_.Open();
  std::vector<RemoteValue> values;
  for (int i = 0; i < 100; ++i) values.push_back(program_.Schedule(program_.add, i));
  ASSERT_TRUE(coordinator().Join().ok());
  const auto results = coordinator().Fetch(values);
  ASSERT_TRUE(results.ok()) << results.status();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ((*results)[i][0].scalar<double>(), 2.0 * i);
    EXPECT_EQ(values[i].state(), RemoteValue::State::kReady);
    EXPECT_TRUE(values[i].worker() == 0 || values[i].worker() == 1);
  }
  EXPECT_EQ(program_.Sum(), 4950);
  const auto done = coordinator().Done();
  ASSERT_TRUE(done.ok());
  EXPECT_TRUE(*done);
  EXPECT_EQ(coordinator().stats().finished, 100);
  EXPECT_EQ(coordinator().stats().retried, 0);
}

TEST_F(Coordinator, RunsFunctionsOneAfterTheOtherWhereThereIsOneWorker) {
  InProcessCluster cluster(1, 1);
  CoordinatedProgram program(cluster.spec());
  program.Open();
  const WorkerFunction count = program.Function("number", [&](const Scope& worker) {
    const Output next = ops::Identity(worker.WithControlDependencies({AssignAdd(
                                          worker, program.count, Tensor::Scalar<int64_t>(1))}),
                                      ops::ReadVariableOp(worker, program.count.handle, kInt64));
    return FunctionParts{{}, {next}, {}};
  });
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(program.coordinator->Schedule(count).ok());
  ASSERT_TRUE(program.coordinator->Join().ok());
  const auto last = program.coordinator->Run({}, std::span(&program.count.read, 1));
  ASSERT_TRUE(last.ok());
  EXPECT_EQ((*last)[0].scalar<int64_t>(), 20);
}

TEST_F(Coordinator, JoinsNoLongerThanItWasToldAndSaysForWhatItWaited) {
  program_.Open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(coordinator().Schedule(program_.wait).ok());
  // Until both workers have taken one.
  Status joined;
  const auto limit = Limit();
  do {
    joined = coordinator().Join(milliseconds(500));
    ASSERT_TRUE(errors::IsDeadlineExceeded(joined)) << joined;
  } while (Text(joined).find(" and 2 run") == std::string::npos &&
           std::chrono::steady_clock::now() < limit);
  EXPECT_THAT(Text(joined), AllOf(HasSubstr("1 functions are queued and 2 run"),
                                  HasSubstr("/job:worker/task:0"), HasSubstr("runs 'wait'")));
  const auto done = coordinator().Done();
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_FALSE(*done);
}

TEST_F(Coordinator, RaisesTheErrorOfAFunctionAtTheNextCallAndCancelsTheRest) {
  program_.options.max_in_flight = 1;
  // The error comes once everything is scheduled: what it has to take lies at the ps then.
  const Scope ps = program_.graph.root().WithDevice("/job:ps/task:0");
  const Output gate = ops::FIFOQueueV2(ps, {kDouble}, {.shared_name = "gate"});
  const Operation open = ops::QueueEnqueueV2(ps, gate, {Tensor::Scalar(-1.0)});
  program_.Open();
  const WorkerFunction late = program_.Function("late_check", [&](const Scope& worker) {
    const Output x = ops::QueueDequeueV2(ps, gate, {kDouble})[0];
    const Operation fine = ops::Assert(worker, ops::GreaterEqual(worker, x, Tensor::Scalar(0.0)),
                                       {Input("x is negative")});
    return FunctionParts{{}, {ops::Identity(worker.WithControlDependencies({fine}), x)}, {}};
  });
  const auto stuck = coordinator().Schedule(program_.wait);
  ASSERT_TRUE(stuck.ok());
  const auto bad = coordinator().Schedule(late);
  ASSERT_TRUE(bad.ok());
  std::vector<RemoteValue> after;
  for (int i = 0; i < 50; ++i) after.push_back(program_.Schedule(program_.check, i));
  const auto opened = coordinator().Run({}, {}, std::span(&open, 1));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Status error = coordinator().Join();
  EXPECT_TRUE(errors::IsInvalidArgument(error)) << error;
  EXPECT_THAT(Text(error), AllOf(HasSubstr("x is negative"), HasSubstr("'late_check'"),
                                 HasSubstr("/job:worker/task:")));
  EXPECT_TRUE(errors::IsInvalidArgument(bad->Fetch().status()));
  const Status cancelled = stuck->Fetch().status();
  EXPECT_TRUE(errors::IsCancelled(cancelled)) << cancelled;
  int fine = 0;
  for (const RemoteValue& value : after) {
    const Status status = value.Fetch().status();
    fine += status.ok();
    if (status.ok()) continue;
    EXPECT_TRUE(errors::IsCancelled(status)) << status;
    EXPECT_THAT(Text(status),
                HasSubstr("The corresponding function is cancelled. Please reschedule the "
                          "function."));
  }
  EXPECT_LT(fine, 50);
  // Once.
  EXPECT_TRUE(coordinator().Join().ok());
  const RemoteValue again = program_.Schedule(program_.check, 7);
  EXPECT_TRUE(coordinator().Join().ok());
  ASSERT_TRUE(again.Fetch().ok());
  EXPECT_EQ((*again.Fetch())[0].scalar<double>(), 7);
}

TEST_F(Coordinator, RaisesAnErrorInSchedule) {
  program_.Open();
  const RemoteValue bad = program_.Schedule(program_.check, -1);
  EXPECT_FALSE(bad.Fetch().ok());
  const Tensor x = Tensor::Scalar(1.0);
  EXPECT_TRUE(
      errors::IsInvalidArgument(coordinator().Schedule(program_.check, std::span(&x, 1)).status()));
  EXPECT_TRUE(coordinator().Schedule(program_.check, std::span(&x, 1)).ok());
  EXPECT_TRUE(coordinator().Join().ok());
}

TEST_F(Coordinator, RaisesAnErrorInDone) {
  program_.Open();
  EXPECT_FALSE(program_.Schedule(program_.check, -1).Fetch().ok());
  while (true) {
    const auto done = coordinator().Done();
    if (done.ok()) {
      ASSERT_FALSE(*done);
      continue;
    }
    EXPECT_TRUE(errors::IsInvalidArgument(done.status()));
    break;
  }
  EXPECT_TRUE(*coordinator().Done());
}

TEST_F(Coordinator, WaitsForRoomInTheQueueNoLongerThanItWasTold) {
  program_.options.queue_capacity = 2;
  program_.options.schedule_timeout = milliseconds(300);
  program_.Open();
  // Two run and two wait, as soon as the workers have taken theirs.
  int scheduled = 0;
  for (const auto limit = Limit(); scheduled < 4 && std::chrono::steady_clock::now() < limit;) {
    const Status status = coordinator().Schedule(program_.wait).status();
    ASSERT_TRUE(status.ok() || errors::IsDeadlineExceeded(status)) << status;
    scheduled += status.ok();
  }
  ASSERT_EQ(scheduled, 4);
  const Status status = coordinator().Schedule(program_.wait).status();
  EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("the queue of 2"), HasSubstr("runs 'wait'")));
}

TEST_F(Coordinator, GivesEveryWorkerValuesOfItsOwn) {
  program_.Open();
  const auto index = coordinator().WorkerIndex();
  ASSERT_TRUE(index.ok()) << index.status();
  const auto iterator = coordinator().CreatePerWorkerValues("data", [](const Scope& worker) {
    const Output it = ops::IteratorV2(worker, "data", "", {kInt64}, {PartialShape(Shape({}))});
    const Output range =
        ops::RangeDataset(worker, Tensor::Scalar<int64_t>(0), Tensor::Scalar<int64_t>(1000),
                          Tensor::Scalar<int64_t>(1), {kInt64}, {PartialShape(Shape({}))});
    return PerWorkerParts{{it}, {ops::MakeIterator(worker, range, it)}};
  });
  ASSERT_TRUE(iterator.ok()) << iterator.status();
  const WorkerFunction next = program_.Function("next", [&](const Scope& worker) {
    return FunctionParts{
        {},
        {ops::Identity(worker, *index),
         ops::IteratorGetNext(worker, (*iterator)[0], {kInt64}, {PartialShape(Shape({}))})[0]},
        {}};
  });
  std::vector<RemoteValue> values;
  for (int i = 0; i < 200; ++i) {
    const auto value = coordinator().Schedule(next);
    ASSERT_TRUE(value.ok()) << value.status();
    values.push_back(*value);
  }
  const Status joined = coordinator().Join();
  ASSERT_TRUE(joined.ok()) << joined;
  std::vector<std::set<int64_t>> seen(2);
  for (const RemoteValue& value : values) {
    const auto result = value.Fetch();
    ASSERT_TRUE(result.ok());
    const int worker = (*result)[0].scalar<int32_t>();
    EXPECT_EQ(worker, value.worker());
    // Each worker counts for itself.
    EXPECT_TRUE(seen[worker].insert((*result)[1].scalar<int64_t>()).second);
  }
  for (const auto& numbers : seen) {
    if (numbers.empty()) continue;
    EXPECT_EQ(*numbers.rbegin(), static_cast<int64_t>(numbers.size()) - 1);
  }
}

TEST_F(Coordinator, RefusesSharedVariablesAmongPerWorkerValues) {
  program_.Open();
  const auto made = coordinator().CreatePerWorkerValues("mine", [](const Scope& worker) {
    const Variable v = MakeVariable(worker, "v", Constant(worker, Tensor::Scalar(1.0f)));
    return PerWorkerParts{{v.read}, {v.initializer}};
  });
  EXPECT_TRUE(errors::IsInvalidArgument(made.status())) << made.status();
  EXPECT_THAT(Text(made.status()), AllOf(HasSubstr("'mine'"), HasSubstr("mine/v")));
}

TEST_F(Coordinator, NamesThePerWorkerValuesThatCannotBeMade) {
  program_.Open();
  const auto made = coordinator().CreatePerWorkerValues("mine", [](const Scope& worker) {
    const Operation fails = ops::Assert(worker, Tensor::Scalar(false), {Input("no such file")});
    return PerWorkerParts{{}, {fails}};
  });
  ASSERT_TRUE(made.ok());
  const WorkerFunction uses = program_.Function("uses", [](const Scope& worker) {
    return FunctionParts{{}, {Constant(worker, Tensor::Scalar(1.0f))}, {}};
  });
  ASSERT_TRUE(coordinator().Schedule(uses).ok());
  const Status error = coordinator().Join();
  EXPECT_TRUE(errors::IsInvalidArgument(error)) << error;
  EXPECT_THAT(Text(error), AllOf(HasSubstr("no such file"), HasSubstr("'mine'")));
}

TEST_F(Coordinator, EndsAtOnceThoughFunctionsRunAndWait) {
  program_.Open();
  std::vector<RemoteValue> values;
  for (int i = 0; i < 10; ++i) {
    const auto value = coordinator().Schedule(program_.wait);
    ASSERT_TRUE(value.ok());
    values.push_back(*value);
  }
  const auto begin = std::chrono::steady_clock::now();
  program_.coordinator = nullptr;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  for (const RemoteValue& value : values) {
    EXPECT_TRUE(errors::IsCancelled(value.Fetch().status())) << value.Fetch().status();
  }
}

TEST_F(Coordinator, SaysThatAFunctionIsLate) {
  program_.options.function_timeout = milliseconds(300);
  program_.Open();
  // Until it has come as far as its queue before it is late.
  Status error;
  const auto limit = Limit();
  do {
    const auto value = coordinator().Schedule(program_.wait);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(errors::IsDeadlineExceeded(value->Fetch(milliseconds(20)).status()));
    error = coordinator().Join();
    ASSERT_TRUE(errors::IsDeadlineExceeded(error)) << error;
  } while (Text(error).find("'never'") == std::string::npos &&
           std::chrono::steady_clock::now() < limit);
  EXPECT_THAT(Text(error), AllOf(HasSubstr("'never'"), HasSubstr("'wait'")));
}

TEST_F(Coordinator, RefusesWhatIsNotItsOwn) {
  program_.Open();
  EXPECT_TRUE(errors::IsInvalidArgument(coordinator().Schedule(WorkerFunction()).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(coordinator().Schedule(program_.add).status()));
  const auto alien = coordinator().AddFunction("alien", [](const Scope&) {
    static auto* const other = new Graph;
    return FunctionParts{{}, {Constant(other->root(), Tensor::Scalar(1.0f))}, {}};
  });
  EXPECT_TRUE(errors::IsInvalidArgument(alien.status())) << alien.status();
  EXPECT_TRUE(errors::IsFailedPrecondition(RemoteValue().Fetch().status()));
}

TEST(CoordinatorOptionsTest, AreChecked) {
  Graph graph;
  CoordinatorOptions options;
  options.cluster = *ClusterSpec::Parse("worker|127.0.0.1:1");
  EXPECT_THAT(Text(ClusterCoordinator::Create(graph, options).status()),
              HasSubstr("There must be at least one ps."));
  options.cluster = *ClusterSpec::Parse("ps|127.0.0.1:1");
  EXPECT_THAT(Text(ClusterCoordinator::Create(graph, options).status()),
              HasSubstr("There must be at least one worker."));
  options.cluster = *ClusterSpec::Parse("ps|127.0.0.1:1,worker|127.0.0.1:2");
  options.max_in_flight = 0;
  EXPECT_THAT(Text(ClusterCoordinator::Create(graph, options).status()),
              HasSubstr("max_in_flight is 0"));
  options.max_in_flight = 1;
  options.connect_timeout = milliseconds(200);
  const Status nobody = ClusterCoordinator::Create(graph, options).status();
  EXPECT_TRUE(errors::IsDeadlineExceeded(nobody)) << nobody;
  EXPECT_THAT(Text(nobody), HasSubstr("/job:ps/task:0 at 127.0.0.1:1"));
}

}  // namespace
}  // namespace millrace::testing
