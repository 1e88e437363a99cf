// SPDX-License-Identifier: Apache-2.0
// Ranks that do not do the same, come late, or are gone: all others learn who and what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/free_port.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/ranks/ranks_in_process.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RanksInProcess;

constexpr int kRanks = 4;

class GroupMistakes : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Status& status : ranks_.statuses()) ASSERT_TRUE(status.ok()) << status;
  }

  RanksInProcess ranks_{kRanks, {.timeout_seconds = 8}};
};

TEST_F(GroupMistakes, AreNamedAtAllRanksWhichGoOn) {
  const Tensor three(kFloat, Shape({3})), four(kFloat, Shape({4})), ints(kInt32, Shape({3}));
  // What rank 2 does where the others sum three floats.
  const std::pair<std::function<Status(ProcessGroup&)>, const char*> mistakes[] = {
      {[&](ProcessGroup& g) { return g.AllReduce(ReduceOp::kSum, four, "x").status(); },
       "AllReduce(sum) 'x' of float[4]"},
      {[&](ProcessGroup& g) { return g.AllReduce(ReduceOp::kSum, ints, "x").status(); },
       "AllReduce(sum) 'x' of int32[3]"},
      {[&](ProcessGroup& g) { return g.AllReduce(ReduceOp::kMax, three, "x").status(); },
       "AllReduce(max) 'x' of float[3]"},
      {[&](ProcessGroup& g) { return g.AllReduce(ReduceOp::kSum, three, "y").status(); },
       "AllReduce(sum) 'y' of float[3]"},
      {[&](ProcessGroup& g) { return g.Broadcast(three, 1).status(); },
       "Broadcast from rank 1 of float[3]"},
      {[](ProcessGroup& g) { return g.Barrier(); }, "Barrier"}};
  for (const auto& [mistake, text] : mistakes) {
    for (const Status& status : ranks_.All([&, wrong = &mistake](int rank) {
           ProcessGroup& group = *ranks_.group(rank);
           return rank == 2 ? (*wrong)(group)
                            : group.AllReduce(ReduceOp::kSum, three, "x").status();
         })) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(status.ToString(),
                  AllOf(HasSubstr("rank 2 (/job:worker/replica:0/task:2) calls "), HasSubstr(text),
                        HasSubstr("AllReduce(sum) 'x' of float[3]")));
    }
    for (const Status& status : ranks_.All([&](int rank) {
           return ranks_.group(rank)->AllReduce(ReduceOp::kSum, three, "x").status();
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST_F(GroupMistakes, OfArgumentsAreToldToAll) {
  for (const Status& status : ranks_.All([&](int rank) {
         const Tensor text = Tensor::String("a"), number = Tensor::Scalar(1.0f);
         return ranks_.group(rank)->AllReduce(ReduceOp::kSum, rank == 1 ? text : number).status();
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("rank 1"), HasSubstr("string")));
  }
}

TEST_F(GroupMistakes, InGraphsAreNamedBeforeTheyRun) {
  for (const Status& status : ranks_.All([&](int rank) {
         Graph graph;
         const Scope scope = graph.root();
         const Output a = Constant(scope, Tensor(kFloat, Shape({rank == 3 ? 5 : 6})));
         const Output b = Constant(scope, Tensor(kFloat, Shape({6})));
         ranks_.group(rank)->AllReduce(scope, ReduceOp::kSum, std::vector{a, b});
         return graph.status();
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("rank 3"), HasSubstr("float[5]"),
                                         HasSubstr("group_mistakes_test.cc")));
  }
}

TEST_F(GroupMistakes, OfARankThatDoesNotComeAreToldWithItsLastCall) {
  const auto before = std::chrono::steady_clock::now();
  const auto statuses = ranks_.All([&](int rank) {
    if (rank == 3) return OkStatus();
    return ranks_.group(rank)->Barrier("end");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(60));
  for (int rank = 0; rank < 3; ++rank) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(status.ToString(),
                AllOf(HasSubstr("did not come to call 2: rank 3 (/job:worker/replica:0/task:3) was "
                                "last in call 1, ProcessGroup::Create of 4 ranks"),
                      HasSubstr("Barrier 'end'")));
  }
}

TEST_F(GroupMistakes, OfARankThatIsGoneAreToldByItsName) {
  ASSERT_TRUE(ranks_.cluster().Stop("worker", 1).ok());
  const auto statuses = ranks_.All([&](int rank) {
    if (rank == 1) return OkStatus();
    return ranks_.group(rank)->AllReduce(ReduceOp::kSum, Tensor::Scalar(1.0f)).status();
  });
  for (const int rank : {0, 2, 3}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.ToString(),
                HasSubstr("lost, or not started: rank 1 (/job:worker/replica:0/task:1)"));
  }
}

TEST(GroupStart, NamesThoseThatAreAbsent) {
  const auto cluster = LocalCluster::Start({.workers = 3}).value();
  ASSERT_TRUE(cluster->Stop("worker", 2).ok());
  ProcessGroupOptions options;
  options.task = {.cluster = cluster->spec(), .job_name = "worker", .task_index = 0};
  options.target = cluster->target("worker", 0);
  options.start_timeout = std::chrono::milliseconds(5000);
  const Status status = ProcessGroup::Create(options).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("lost, or not started: rank 2"),
                    HasSubstr("rank 1 (/job:worker/replica:0/task:1) has made no call yet")));
}

ProcessGroupOptions OwnServerAt(const std::string& address) {
  ProcessGroupOptions options;
  EXPECT_TRUE(options.task.cluster.AddJob("worker", {address}).ok());
  options.task.job_name = "worker";
  options.task.task_index = 0;
  return options;
}

TEST(GroupStart, RefusesAnAddressThatOthersReachUnlessAskedFor) {
  ProcessGroupOptions options = OwnServerAt("0.0.0.0:0");
  const Status status = ProcessGroup::Create(options).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("insecure"));
  options.server.insecure = true;
  const auto group = ProcessGroup::Create(options);
  EXPECT_TRUE(group.ok()) << group.status();
}

// Two ranks of one cluster whose servers are told the ids of different jobs.
TEST(GroupStart, KeepsJobsApartByTheirIds) {
  const auto ports = FreeLoopbackPorts(2);
  ASSERT_TRUE(ports.ok()) << ports.status();
  ClusterSpec cluster;
  ASSERT_TRUE(
      cluster
          .AddJob("worker", {StrCat("127.0.0.1:", (*ports)[0]), StrCat("127.0.0.1:", (*ports)[1])})
          .ok());
  const auto create = [&](int rank, const char* id) {
    ProcessGroupOptions options;
    options.task = {.cluster = cluster, .job_name = "worker", .task_index = rank};
    options.server.cluster_id = id;
    options.start_timeout = std::chrono::milliseconds(8000);
    return ProcessGroup::Create(options).status();
  };
  ASSERT_EQ(setenv("MILLRACE_CLUSTER_ID", "job-a", 1), 0);
  Status other;
  std::thread thread([&] { other = create(1, "job-b"); });
  const Status own = create(0, "");
  thread.join();
  unsetenv("MILLRACE_CLUSTER_ID");
  EXPECT_FALSE(own.ok());
  EXPECT_FALSE(other.ok());
  EXPECT_THAT(StrCat(own.ToString(), other.ToString()),
              AllOf(HasSubstr("job-a"), HasSubstr("job-b")));
}

void ExpectSumsOf(std::span<const std::shared_ptr<ProcessGroup>> groups) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&group, size = groups.size()] {
      ASSERT_NE(group, nullptr);
      const auto sum = group->AllReduce(ReduceOp::kSum, Tensor::Scalar(1.0f));
      ASSERT_TRUE(sum.ok()) << sum.status();
      EXPECT_EQ(sum->scalar<float>(), static_cast<float>(size));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A rank that waited in vain has begun more groups than the others, as have those of ranks that a
// new process takes part in.
TEST(GroupStart, SucceedsAfterARankHasWaitedInVain) {
  const RanksInProcess first(3, {});
  for (const Status& status : first.statuses()) ASSERT_TRUE(status.ok()) << status;
  ProcessGroupOptions alone = first.OptionsOf(1);
  alone.start_timeout = std::chrono::milliseconds(300);
  for (int i = 0; i < 2; ++i) {
    const Status status = ProcessGroup::Create(alone).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(status.ToString(),
                HasSubstr("rank 0 (/job:worker/replica:0/task:0) has made no call yet, rank 2"));
  }
  std::vector<std::shared_ptr<ProcessGroup>> groups(3);
  const auto statuses = first.All([&](int rank) -> Status {
    const auto group = ProcessGroup::Create(first.OptionsOf(rank));
    if (group.ok()) groups[static_cast<std::size_t>(rank)] = *group;
    return group.status();
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
  ExpectSumsOf(groups);
  // Who has given up is named to who comes later.
  ASSERT_FALSE(ProcessGroup::Create(alone).ok());
  alone = first.OptionsOf(2);
  alone.start_timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(ProcessGroup::Create(alone).status().ToString(),
              HasSubstr("rank 0 (/job:worker/replica:0/task:0) has made no call yet"));
}

// One rank's server has the address of an earlier one of the same process, another's has not.
TEST(GroupStart, SucceedsWhereAnAddressIsUsedAgain) {
  const auto ports = FreeLoopbackPorts(3);
  ASSERT_TRUE(ports.ok()) << ports.status();
  for (const int first : {0, 1}) {
    ClusterSpec cluster;
    ASSERT_TRUE(cluster
                    .AddJob("worker", {StrCat("127.0.0.1:", (*ports)[first]),
                                       StrCat("127.0.0.1:", (*ports)[2])})
                    .ok());
    std::vector<std::shared_ptr<ProcessGroup>> groups(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        ProcessGroupOptions options;
        options.task = {.cluster = cluster, .job_name = "worker", .task_index = rank};
        const auto group = ProcessGroup::Create(options);
        ASSERT_TRUE(group.ok()) << group.status();
        groups[static_cast<std::size_t>(rank)] = *group;
      });
    }
    for (std::thread& thread : threads) thread.join();
    ExpectSumsOf(groups);
  }
}

}  // namespace
}  // namespace millrace
