// SPDX-License-Identifier: Apache-2.0
// Collectives among tasks of this process that call each other directly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "base/errors.h"
#include "base/notification.h"
#include "base/thread_pool.h"
#include "collective/collective_manager.h"
#include "collective/combine.h"
#include "collective/tasks_in_process.h"
#include "millrace/float16.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TextOf(const Status& status) { return std::string(Message(status)); }

TEST(RingReduce, AddsInTheRingsOrderWithTheSameBitsEverywhere) {
  for (const std::vector<int>& layout : Layouts()) {
    for (const int64_t count : {0, 1, 5, 16, 17, 100, 1000}) {
      Cluster cluster(layout);
      Step step(cluster, 1);
      const int n = step.size();
      std::vector<Tensor> inputs;
      for (int i = 0; i < n; ++i) {
        inputs.push_back(Floats(count, i));
        step.Begin(i, Reduce(n, inputs[i]), inputs[i]);
      }
      const int64_t chunk = ChunkElements(4, count, n);
      for (int i = 0; i < n; ++i) {
        const Outcome& outcome = step.End(i);
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        for (int64_t k = 0; k < count; ++k) {
          const auto first = static_cast<int>(k / chunk);
          float sum = inputs[first].data<float>()[k];
          for (int r = 1; r < n; ++r) sum += inputs[(first + r) % n].data<float>()[k];
          ASSERT_EQ(outcome.output.data<float>()[k], sum) << "member " << i << ", element " << k;
        }
      }
    }
  }
}

TEST(RingReduce, KnowsEveryOperationAndType) {
  const std::vector<int> layout = {2, 1};
  for (const DataType dtype : {kFloat, kDouble, kHalf, kBfloat16, kInt32, kInt64}) {
    for (const MergeOp merge : {MergeOp::kAdd, MergeOp::kMul, MergeOp::kMin, MergeOp::kMax}) {
      for (const FinalOp final : {FinalOp::kId, FinalOp::kDiv}) {
        Cluster cluster(layout);
        Step step(cluster, 1);
        Tensor expected;
        for (int i = 0; i < 3; ++i) {
          Tensor input(dtype, Shape({40}));
          const auto fill = [&]<typename T>() {
            for (int k = 0; k < 40; ++k)
              input.data<T>()[k] = static_cast<T>(1 + (k * 7 + i * 3) % 5);
          };
          if (dtype == kFloat) fill.operator()<float>();
          if (dtype == kDouble) fill.operator()<double>();
          if (dtype == kHalf) {
            for (int k = 0; k < 40; ++k) {
              input.data<Half>()[k] = Half(static_cast<float>(1 + (k * 7 + i * 3) % 5));
            }
          }
          if (dtype == kBfloat16) {
            for (int k = 0; k < 40; ++k) {
              input.data<BFloat16>()[k] = BFloat16(static_cast<float>(1 + (k * 7 + i * 3) % 5));
            }
          }
          if (dtype == kInt32) fill.operator()<int32_t>();
          if (dtype == kInt64) fill.operator()<int64_t>();
          // Small whole numbers: the order does not matter.
          if (i == 0) {
            expected = input.Clone();
          } else {
            MergeInto(dtype, merge, expected.raw_data(), input.raw_data(), 40);
          }
          CollectiveParams params = Reduce(3, input);
          params.merge = merge;
          params.final = final;
          step.Begin(i, params, input);
        }
        if (final == FinalOp::kDiv) DivideBy(dtype, expected.raw_data(), 40, 3);
        for (int i = 0; i < 3; ++i) {
          ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
          EXPECT_TRUE(TensorsEqual(step.End(i).output, expected)) << DataTypeName(dtype);
        }
      }
    }
  }
}

TEST(RingReduce, UsesSeveralRings) {
  Cluster cluster({3, 3});
  for (const std::vector<int32_t>& offsets :
       {std::vector<int32_t>{0, 1}, {0, -1, 2}, {5, -7}, {}}) {
    Step step(cluster, static_cast<int64_t>(offsets.size()) + 1);
    for (int i = 0; i < 6; ++i) {
      Tensor input(kInt32, Shape({1000}));
      for (int k = 0; k < 1000; ++k) input.data<int32_t>()[k] = k + i;
      CollectiveParams params = Reduce(6, input);
      params.subdiv_offsets = offsets;
      step.Begin(i, params, input);
    }
    for (int i = 0; i < 6; ++i) {
      ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
      for (int k = 0; k < 1000; ++k) {
        ASSERT_EQ(step.End(i).output.data<int32_t>()[k], 6 * k + 15);
      }
    }
  }
}

TEST(RingReduce, AddsLargePiecesOnItsPool) {
  ThreadPool pool("reduce", 3);
  Cluster cluster({2, 2}, &pool);
  Step step(cluster, 1);
  std::vector<Tensor> inputs;
  for (int i = 0; i < 4; ++i) {
    Tensor input(kInt64, Shape({200'000}));
    for (int64_t k = 0; k < 200'000; ++k) input.data<int64_t>()[k] = k * (i + 1);
    step.Begin(i, Reduce(4, input), input);
  }
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
    for (int64_t k = 0; k < 200'000; ++k) {
      ASSERT_EQ(step.End(i).output.data<int64_t>()[k], 10 * k);
    }
  }
}

TEST(RingGather, BringsThePartsInTheOrderOfTheRanks) {
  for (const std::vector<int>& layout : Layouts()) {
    for (const int64_t rows : {0, 1, 3}) {
      Cluster cluster(layout);
      Step step(cluster, 1);
      const int n = step.size();
      for (int i = 0; i < n; ++i) {
        Tensor input(kInt32, Shape({rows, 2}));
        for (int64_t k = 0; k < rows * 2; ++k)
          input.data<int32_t>()[k] = static_cast<int>(100 * i + k);
        CollectiveParams params = Reduce(n, input);
        params.kind = CollectiveKind::kGather;
        params.shape = Shape({rows * n, 2});
        step.Begin(i, params, input);
      }
      for (int i = 0; i < n; ++i) {
        const Outcome& outcome = step.End(i);
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        for (int64_t k = 0; k < rows * 2 * n; ++k) {
          ASSERT_EQ(outcome.output.data<int32_t>()[k], 100 * (k / (rows * 2)) + k % (rows * 2));
        }
      }
    }
  }
}

TEST(TreeBroadcast, ReachesEveryMemberFromEverySource) {
  for (const std::vector<int>& layout : Layouts()) {
    int n = 0;
    for (const int devices : layout) n += devices;
    for (int source = 0; source < n; ++source) {
      Cluster cluster(layout);
      Step step(cluster, 1);
      const Tensor value = Floats(33, source);
      for (int i = 0; i < n; ++i) {
        CollectiveParams params = Reduce(n, value);
        params.kind = CollectiveKind::kBroadcast;
        params.is_source = i == source;
        step.Begin(i, params, i == source ? value : Tensor());
      }
      for (int i = 0; i < n; ++i) {
        const Outcome& outcome = step.End(i);
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        EXPECT_TRUE(TensorsEqual(outcome.output, value)) << "source " << source;
      }
    }
  }
}

// Many collectives of one step, begun by every member in an order of its own: none waits for
// another, and none gets another's pieces.
TEST(Collectives, NeverCross) {
  constexpr int kInstances = 3;
#ifdef _GLIBCXX_TSAN  // the build takes __SANITIZE_THREAD__ away from headers of protobuf
  constexpr int kSeeds = 300;
#else
  constexpr int kSeeds = 10'000;
#endif
  Cluster cluster({1, 2});
  const auto members = cluster.Members();
  const int n = static_cast<int>(members.size());
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::map<int, RefPtr<CollectiveExecutor>> steps;
    for (const auto& [task, device] : members) {
      if (!steps.contains(task))
        steps[task] = cluster.manager(task).NewStep(seed, cluster.leader());
    }
    std::vector<std::pair<int, int>> order;  // member, instance
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < kInstances; ++k) order.emplace_back(i, k);
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    std::vector<Outcome> outcomes(order.size());
    for (const auto& [i, k] : order) {
      Tensor input(kInt32, Shape({40}));
      for (int32_t& v : input.flat<int32_t>()) v = 1000 * k + i;
      CollectiveParams params = Reduce(n, input);
      params.instance_key = k;
      Start(steps[members[i].first], *members[i].second, params, input,
            &outcomes[i * kInstances + k]);
    }
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < kInstances; ++k) {
        const Outcome& outcome = outcomes[i * kInstances + k];
        ASSERT_TRUE(outcome.ended.HasBeenNotified()) << "seed " << seed;
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        for (const int32_t v : outcome.output.flat<int32_t>()) {
          ASSERT_EQ(v, 1000 * k * n + n * (n - 1) / 2) << "seed " << seed;
        }
      }
    }
    steps.clear();
    for (const auto& [task, device] : members) cluster.manager(task).Cleanup(seed);
  }
}

TEST(Collectives, MayBeginOnManyThreads) {
  Cluster cluster({2, 1});
  for (int round = 0; round < 100; ++round) {
    Step step(cluster, round);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&step, i] {
        const Tensor input = Floats(100, i);
        step.Begin(i, Reduce(3, input), input);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 1; i < 3; ++i) {
      ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
      EXPECT_TRUE(TensorsEqual(step.End(i).output, step.End(0).output));
    }
  }
}

// Runs one collective in which member 1 differs; every member must fail.
std::vector<Status> Disagree(const std::function<void(int, CollectiveParams*)>& change) {
  Cluster cluster({1, 1, 1});
  Step step(cluster, 1);
  const Tensor input = Floats(50, 0);
  for (int i = 0; i < 3; ++i) {
    CollectiveParams params = Reduce(3, input);
    params.node = StrCat("node_", i);
    change(i, &params);
    step.Begin(i, params, Tensor(params.dtype, params.shape));
  }
  // What one member alone would see is how the others end: through the one that failed.
  std::vector<Status> statuses;
  for (int i = 0; i < 3; ++i) {
    statuses.push_back(step.End(i).status);
    EXPECT_FALSE(statuses[i].ok()) << "member " << i;
  }
  return statuses;
}

TEST(Disagreement, AboutTheTypeIsToldToAll) {
  for (const Status& status : Disagree([](int i, CollectiveParams* params) {
         if (i == 1) params->dtype = kDouble;
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), AllOf(HasSubstr("double"), HasSubstr("float"), HasSubstr("node_1"),
                                      HasSubstr("task:1/device:CPU:0")));
  }
}

TEST(Disagreement, AboutTheShapeIsToldToAll) {
  for (const Status& status : Disagree([](int i, CollectiveParams* params) {
         if (i == 1) params->shape = Shape({25});
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(status), AllOf(HasSubstr("Shape mismatch in the collective instance 7"),
                                      HasSubstr("[25]"), HasSubstr("[50]"), HasSubstr("node_1")));
  }
}

TEST(Disagreement, AboutTheKindIsToldToAll) {
  for (const Status& status : Disagree([](int i, CollectiveParams* params) {
         if (i == 1) params->kind = CollectiveKind::kGather;
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), AllOf(HasSubstr("gather"), HasSubstr("reduce")));
  }
}

TEST(Disagreement, AboutWhatIsComputedIsToldToAll) {
  for (const Status& status : Disagree([](int i, CollectiveParams* params) {
         if (i == 1) params->merge = MergeOp::kMax;
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), AllOf(HasSubstr("Max/Id"), HasSubstr("Add/Id"), HasSubstr("node_1"),
                                      HasSubstr("task:1/device:CPU:0")));
  }
  for (const Status& status : Disagree([](int i, CollectiveParams* params) {
         if (i == 2) params->final = FinalOp::kDiv;
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), AllOf(HasSubstr("Add/Div"), HasSubstr("Add/Id")));
  }
}

TEST(Disagreement, AboutTheSizeOfTheGroupIsToldToAll) {
  for (const Status& status : Disagree([](int i, CollectiveParams* params) {
         if (i == 1) params->group_size = 4;
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), AllOf(HasSubstr("is joining a group with size"),
                                      HasSubstr("group_key=1"), HasSubstr("task:1")));
  }
}

TEST(Disagreement, AboutWhoSendsIsToldToAll) {
  for (const Status& status : Disagree(
           [](int i, CollectiveParams* params) { params->kind = CollectiveKind::kBroadcast; })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), HasSubstr("found no source for broadcast"));
  }
  for (const Status& status : Disagree([](int i, CollectiveParams* params) {
         params->kind = CollectiveKind::kBroadcast;
         params->is_source = i != 2;
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), HasSubstr("already has source"));
  }
}

// A member's program may begin again, while the others go on.
TEST(Agreement, OnASourceHoldsForAMemberThatAsksAgain) {
  Cluster cluster({1, 1});
  const Tensor value = Floats(8, 1);
  for (int64_t id = 1; id <= 3; ++id) {
    Step step(cluster, id);
    for (int i = 0; i < 2; ++i) {
      CollectiveParams params = Reduce(2, value);
      params.kind = CollectiveKind::kBroadcast;
      params.is_source = i == (id < 3 ? 0 : 1);  // and changes in the end
      step.Begin(i, params, params.is_source ? value : Tensor());
      if (id == 2) {
        EXPECT_EQ(i == 0, !step.Ended(1));
      }
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
      EXPECT_TRUE(TensorsEqual(step.End(i).output, value));
    }
  }
}

TEST(Disagreement, IsOverWhenTheMembersAgreeAgain) {
  Cluster cluster({1, 1});
  const Tensor input = Floats(50, 0);
  {
    Step step(cluster, 1);
    CollectiveParams other = Reduce(3, input);
    step.Begin(0, Reduce(2, input), input);
    step.Begin(1, other, input);
    EXPECT_FALSE(step.End(0).status.ok());
    EXPECT_FALSE(step.End(1).status.ok());
  }
  Step step(cluster, 2);
  for (int i = 0; i < 2; ++i) step.Begin(i, Reduce(2, input), input);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(step.End(i).status.ok()) << step.End(i).status;
}

TEST(Failure, OfOneMemberEndsAllWithItsReason) {
  Cluster cluster({1, 1, 1, 1});
  Step step(cluster, 1);
  const Tensor input = Floats(50, 0);
  for (int i = 0; i < 3; ++i) step.Begin(i, Reduce(4, input), input);
  // The group is not complete: two join it and wait for the leader, which is told nothing more.
  step.Begin(3, Reduce(4, input), input);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(step.End(i).status.ok()) << step.End(i).status;

  Step failing(cluster, 2);
  for (int i = 0; i < 3; ++i) failing.Begin(i, Reduce(4, input), input);
  failing.executor(3).Abort(errors::InvalidArgument("the disk of member 3 is full"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(failing.End(i).status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(failing.End(i).status),
                AllOf(HasSubstr("Collective ops is aborted by: the disk of member 3 is full"),
                      HasSubstr("rank "), HasSubstr("{{node sum}}")));
  }
}

TEST(Failure, IsRememberedForMembersThatComeLate) {
  Cluster cluster({1, 1});
  const auto members = cluster.Members();
  const Tensor input = Floats(50, 0);
  {
    Step step(cluster, 1);
    for (int i = 0; i < 2; ++i) step.Begin(i, Reduce(2, input), input);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
  }
  cluster.manager(0).NewStep(2, cluster.leader())->Abort(errors::Internal("member 0 failed"));
  cluster.manager(0).Cleanup(2);
  Outcome late;
  const auto step = cluster.manager(1).NewStep(2, cluster.leader());
  Start(step, *members[1].second, Reduce(2, input), input, &late);
  ASSERT_TRUE(late.ended.WaitUntil(DeadlineAfter(std::chrono::seconds(30))));
  EXPECT_EQ(late.status.code(), StatusCode::kInternal);
  EXPECT_THAT(TextOf(late.status), HasSubstr("member 0 failed"));
}

// A receiver has nothing to ask of those behind it, nor has a source: they look after them.
TEST(Failure, OfAReceiverReachesTheSource) {
  Cluster cluster({1, 1});
  Step step(cluster, 1);
  const Tensor value = Floats(8, 1);
  CollectiveParams params = Reduce(2, value);
  params.kind = CollectiveKind::kBroadcast;
  // Both agree; then the receiver's step fails before it takes the value.
  Notification agreed;
  step.executor(1).ResolveAsync(params, *cluster.Members()[1].second,
                                [&](const auto& resolved) { agreed.Notify(); });
  CollectiveParams source = params;
  source.is_source = true;
  step.Begin(0, source, value);
  agreed.Wait();
  step.executor(1).Abort(errors::Unavailable("member 1 is gone"));
  EXPECT_EQ(step.End(0).status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(TextOf(step.End(0).status), HasSubstr("member 1 is gone"));
}

TEST(Failure, OfACallToAStepThatNeverBeginsLeavesNothing) {
  Cluster cluster({1});
  const auto members = cluster.Members();
  BufferRequest request;
  request.step_id = 5;
  request.key = "watch:somebody";
  request.src_device = members[0].second->name();
  request.src_incarnation = members[0].second->incarnation();
  for (int round = 0; round < 2; ++round) {
    CancellationManager cancellation;
    Status ended;
    cluster.manager(0).local()->ReceiveBuffer(
        request, &cancellation, [&](const Status& status, const Tensor&) { ended = status; });
    EXPECT_TRUE(ended.ok());
    cancellation.StartCancel(errors::Cancelled("enough"));
    EXPECT_EQ(ended.code(), StatusCode::kCancelled);
  }
  const Tensor input = Floats(50, 0);
  Step step(cluster, 5);
  step.Begin(0, Reduce(1, input), input);
  EXPECT_TRUE(step.End(0).status.ok()) << step.End(0).status;
}

TEST(Failure, OfTheStepSaysWhoIsMissing) {
  Cluster cluster({1, 1, 1});
  Step step(cluster, 1);
  const Tensor input = Floats(50, 0);
  step.Begin(0, Reduce(3, input), input);
  step.Begin(2, Reduce(3, input), input);
  step.executor(0).Abort(errors::DeadlineExceeded("the step did not end by its deadline"));
  EXPECT_EQ(step.End(0).status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(step.End(0).status),
              AllOf(HasSubstr("the collective group 1 of 3 members was not complete"),
                    HasSubstr("task:0/device:CPU:0"), HasSubstr("task:2/device:CPU:0")));
  step.executor(2).Abort(errors::Cancelled("enough"));
  EXPECT_FALSE(step.End(2).status.ok());
}

TEST(Failure, ComesAfterTheOpsTimeout) {
  Cluster cluster({1, 1});
  Step step(cluster, 1);
  const Tensor input = Floats(50, 0);
  CollectiveParams params = Reduce(2, input);
  params.timeout_seconds = 0.05;
  step.Begin(0, params, input);
  EXPECT_EQ(step.End(0).status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(step.End(0).status),
              AllOf(HasSubstr("Collective has timed out waiting for other workers"),
                    HasSubstr("{{node sum}}")));
}

TEST(Restart, OfAMemberIsAnErrorOnceAndThenForgotten) {
  Cluster cluster({1, 1});
  const Tensor input = Floats(50, 0);
  {
    Step step(cluster, 1);
    for (int i = 0; i < 2; ++i) step.Begin(i, Reduce(2, input), input);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
  }
  cluster.Start(1, 1);
  Step failing(cluster, 2);
  for (int i = 0; i < 2; ++i) failing.Begin(i, Reduce(2, input), input);
  EXPECT_EQ(failing.End(0).status.code(), StatusCode::kFailedPrecondition) << failing.End(0).status;
  EXPECT_THAT(TextOf(failing.End(0).status), HasSubstr("probably restarted"));
  // The new member waits for the old one, which comes with its next step.
  Step step(cluster, 3);
  step.Begin(0, Reduce(2, input), input);
  EXPECT_THAT(TextOf(failing.End(1).status), HasSubstr("Collective ops is aborted by: "));
  step.Begin(1, Reduce(2, input), input);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(step.End(i).status.ok()) << step.End(i).status;
}

int64_t NextStep(CollectiveManager& manager, const std::string& leader) {
  StatusOr<int64_t> next = errors::Internal("no answer");
  manager.NextStepId(leader, 5, nullptr, [&](StatusOr<int64_t> id) { next = std::move(id); });
  EXPECT_TRUE(next.ok()) << next.status();
  return next.value_or(0);
}

TEST(StepIds, AreTheSameForAllMasters) {
  Cluster cluster({1, 1, 1});
  for (int round = 0; round < 3; ++round) {
    const int64_t id = NextStep(cluster.manager(0), cluster.leader());
    for (int i = 1; i < 3; ++i) EXPECT_EQ(NextStep(cluster.manager(i), cluster.leader()), id);
    for (int i = 0; i < 3; ++i) cluster.manager(i).RetireStepId(5, id, /*succeeded=*/true);
  }
  const int64_t failed = NextStep(cluster.manager(0), cluster.leader());
  for (int i = 1; i < 3; ++i) EXPECT_EQ(NextStep(cluster.manager(i), cluster.leader()), failed);
  for (int i = 0; i < 3; ++i) cluster.manager(i).RetireStepId(5, failed, /*succeeded=*/false);
  const int64_t next = NextStep(cluster.manager(2), cluster.leader());
  EXPECT_NE(next, failed);
  EXPECT_EQ(NextStep(cluster.manager(0), cluster.leader()), next);
}

TEST(StepIds, AreGivenOneAtATime) {
  Cluster cluster({1});
  CollectiveManager& manager = cluster.manager(0);
  const int64_t first = NextStep(manager, cluster.leader());
  int64_t second = 0;
  manager.NextStepId(cluster.leader(), 5, nullptr, [&](StatusOr<int64_t> id) { second = *id; });
  CancellationManager cancellation;
  Status cancelled;
  manager.NextStepId(cluster.leader(), 5, &cancellation,
                     [&](const StatusOr<int64_t>& id) { cancelled = id.status(); });
  EXPECT_EQ(second, 0);
  cancellation.StartCancel(errors::Cancelled("enough"));
  EXPECT_EQ(cancelled.code(), StatusCode::kCancelled);
  manager.RetireStepId(5, first, true);
  EXPECT_EQ(second, first + 1);
}

TEST(Rings, TurnTheDevicesOfEachTask) {
  std::vector<DeviceAttributes> members;
  for (int task = 0; task < 2; ++task) {
    for (int i = 0; i < 3; ++i) {
      DeviceAttributes device;
      device.name = StrCat("/job:worker/replica:0/task:", task, "/device:CPU:", i);
      members.push_back(device);
    }
  }
  const auto group = MakeGroup(1, members);
  ASSERT_TRUE(group.ok());
  const std::vector<int32_t> offsets = {0, 1, -1};
  const auto rings = MakeRings(**group, 4, offsets);
  ASSERT_TRUE(rings.ok());
  EXPECT_THAT((*rings)[0].order, ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT((*rings)[1].order, ::testing::ElementsAre(1, 2, 0, 4, 5, 3));
  EXPECT_THAT((*rings)[2].order, ::testing::ElementsAre(1, 0, 2, 4, 3, 5));
  EXPECT_EQ((*rings)[1].position, 3);
}

TEST(Rings, CutTensorsAsTensorFlowDoes) {
  EXPECT_EQ(ChunkElements(4, 10, 2), 16);   // up to 64 bytes
  EXPECT_EQ(ChunkElements(4, 34, 2), 32);   // 17 are more than 64 bytes
  EXPECT_EQ(ChunkElements(4, 32, 2), 32);   // 16 are 64 bytes already: one unit more
  EXPECT_EQ(ChunkElements(8, 100, 3), 40);  // 34 are 272 bytes
}

}  // namespace
}  // namespace millrace::testing
