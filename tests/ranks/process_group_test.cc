// SPDX-License-Identifier: Apache-2.0
// What ranks exchange, with tensors and in graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/core.h"
#include "tests/ranks/ranks_in_process.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RanksInProcess;

constexpr int kRanks = 4;

// One cluster for tests that leave it whole.
RanksInProcess& Four() {
  static auto* const four = new RanksInProcess(kRanks, {.timeout_seconds = 60});
  return *four;
}

template <typename T>
std::vector<T> ValuesOf(const Tensor& tensor) {
  const auto flat = tensor.flat<T>();
  return {flat.begin(), flat.end()};
}

void ExpectAllOk(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// `call` gives each rank's tensor.
std::vector<Tensor> Exchange(
    const std::function<StatusOr<Tensor>(ProcessGroup& group, int rank)>& call) {
  std::vector<Tensor> results(kRanks);
  ExpectAllOk(Four().statuses());
  ExpectAllOk(Four().All([&](int rank) -> Status {
    const StatusOr<Tensor> result = call(*Four().group(rank), rank);
    if (result.ok()) results[static_cast<std::size_t>(rank)] = *result;
    return result.status();
  }));
  return results;
}

TEST(ProcessGroup, KnowsItsRanks) {
  ExpectAllOk(Four().statuses());
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(Four().group(rank)->rank(), rank);
    EXPECT_EQ(Four().group(rank)->size(), kRanks);
    EXPECT_EQ(Four().group(rank)->local_rank(), rank);
    EXPECT_EQ(Four().group(rank)->local_size(), kRanks);
    EXPECT_EQ(Four().group(rank)->is_leader(), rank == 0);
  }
}

TEST(ProcessGroup, ReducesByEveryOp) {
  const std::pair<ReduceOp, std::vector<float>> wanted[] = {{ReduceOp::kSum, {10, 100}},
                                                            {ReduceOp::kMean, {2.5f, 25}},
                                                            {ReduceOp::kMin, {1, 10}},
                                                            {ReduceOp::kMax, {4, 40}},
                                                            {ReduceOp::kProduct, {24, 240'000}}};
  for (const auto& [op, values] : wanted) {
    for (const Tensor& got : Exchange([op = op](ProcessGroup& group, int rank) {
           const float own = static_cast<float>(rank + 1);
           return group.AllReduce(op, Tensor::FromValues<float>({own, 10 * own}));
         })) {
      EXPECT_EQ(ValuesOf<float>(got), values) << ReduceOpName(op);
    }
  }
}

TEST(ProcessGroup, ReducesListsOfSeveralTypesAndShapes) {
  const auto statuses = Four().All([](int rank) -> Status {
    const std::vector<Tensor> own = {
        Tensor::Scalar<int64_t>(rank), Tensor(kFloat, Shape({0, 3})),
        Tensor::FromValues<float>({1.0f * rank, 2, 3, 4, 5, 6}, Shape({2, 3})),
        Tensor::FromValues<Half>({Half(1.0f), Half(0.5f)}), Tensor::Scalar<int64_t>(7)};
    const auto all = Four().group(rank)->AllReduce(ReduceOp::kSum, own, "list");
    if (!all.ok()) return all.status();
    EXPECT_EQ(all->at(0).scalar<int64_t>(), 6);
    EXPECT_EQ(all->at(1).shape(), Shape({0, 3}));
    EXPECT_EQ(all->at(2).shape(), Shape({2, 3}));
    EXPECT_THAT(ValuesOf<float>(all->at(2)), ElementsAre(6, 8, 12, 16, 20, 24));
    EXPECT_EQ(static_cast<float>(all->at(3).data<Half>()[1]), 2.0f);
    EXPECT_EQ(all->at(4).scalar<int64_t>(), 28);
    return OkStatus();
  });
  ExpectAllOk(statuses);
}

TEST(ProcessGroup, GathersRowsOfAnyNumberAndTypesThatAreNotReduced) {
  for (const Tensor& got : Exchange([](ProcessGroup& group, int rank) {
         Tensor own(kUint8, Shape({rank, 3}));
         std::fill_n(own.data<uint8_t>(), own.num_elements(), static_cast<uint8_t>(rank));
         return group.AllGather(own);
       })) {
    EXPECT_EQ(got.shape(), Shape({6, 3}));
    EXPECT_THAT(ValuesOf<uint8_t>(got),
                ElementsAre(1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3));
  }
}

TEST(ProcessGroup, GivesEachRankItsRowsOfASum) {
  const auto results = Exchange([](ProcessGroup& group, int) {
    return group.ReduceScatter(ReduceOp::kSum, Tensor::FromValues<int32_t>({0, 1, 2, 3, 4, 5}));
  });
  EXPECT_THAT(ValuesOf<int32_t>(results[0]), ElementsAre(0, 4));
  EXPECT_THAT(ValuesOf<int32_t>(results[1]), ElementsAre(8, 12));
  EXPECT_THAT(ValuesOf<int32_t>(results[2]), ElementsAre(16));
  EXPECT_THAT(ValuesOf<int32_t>(results[3]), ElementsAre(20));
}

TEST(ProcessGroup, SendsEachRankWhatIsForIt) {
  const auto statuses = Four().All([](int rank) -> Status {
    // Rank r sends r rows to rank 1, and one to rank 3.
    Tensor own(kInt32, Shape({rank + 1}));
    std::fill_n(own.data<int32_t>(), rank, rank);
    own.data<int32_t>()[rank] = 10 * rank;
    const auto got = Four().group(rank)->AllToAll(own, std::vector<int64_t>{0, rank, 0, 1});
    if (!got.ok()) return got.status();
    if (rank == 1) {
      EXPECT_THAT(ValuesOf<int32_t>(got->value), ElementsAre(1, 2, 2, 3, 3, 3));
      EXPECT_THAT(got->received_splits, ElementsAre(0, 1, 2, 3));
    } else if (rank == 3) {
      EXPECT_THAT(ValuesOf<int32_t>(got->value), ElementsAre(0, 10, 20, 30));
    } else {
      EXPECT_EQ(got->value.shape(), Shape({0}));
    }
    return OkStatus();
  });
  ExpectAllOk(statuses);
}

TEST(ProcessGroup, GivesAllWhatTheRootHasToTheBit) {
  const auto statuses = Four().All([](int rank) -> Status {
    const bool is_root = rank == 2;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<Tensor> own = {
        Tensor::FromValues<bool>({is_root, false, is_root}),
        Tensor::FromValues<float>({is_root ? nan : 1.0f, is_root ? -0.0f : 5.0f}),
        Tensor::Scalar<double>(rank)};
    const auto got = Four().group(rank)->Broadcast(own, 2);
    if (!got.ok()) return got.status();
    EXPECT_TRUE(TensorsEqual(got->at(0), Tensor::FromValues<bool>({true, false, true})));
    EXPECT_TRUE(TensorsEqual(got->at(1), Tensor::FromValues<float>({nan, -0.0f})));
    EXPECT_EQ(got->at(2).scalar<double>(), 2.0);
    return OkStatus();
  });
  ExpectAllOk(statuses);
}

TEST(ProcessGroup, AveragesRowsOfDifferentNumbers) {
  const auto statuses = Four().All([](int rank) -> Status {
    TensorRows rows{Tensor(kFloat, Shape({rank, 2})), Tensor(kInt64, Shape({rank}))};
    std::fill_n(rows.values.data<float>(), 2 * rank, 4.0f * rank);
    std::fill_n(rows.indices.data<int64_t>(), rank, rank);
    const auto got = Four().group(rank)->AllReduce(ReduceOp::kMean, rows);
    if (!got.ok()) return got.status();
    EXPECT_THAT(ValuesOf<int64_t>(got->indices), ElementsAre(1, 2, 2, 3, 3, 3));
    EXPECT_EQ(got->values.shape(), Shape({6, 2}));
    EXPECT_EQ(got->values.data<float>()[0], 1.0f);
    EXPECT_EQ(got->values.data<float>()[11], 3.0f);
    return OkStatus();
  });
  ExpectAllOk(statuses);
}

// It was cut off at the point, without a word.
TEST(ProcessGroup, HasNoMeanOfIntegers) {
  const auto statuses = Four().All([](int rank) -> Status {
    ProcessGroup& group = *Four().group(rank);
    const Tensor ints = Tensor::FromValues<int32_t>({rank, 2});
    const Tensor longs = Tensor::FromValues<int64_t>({rank});
    const Tensor floats = Tensor::FromValues<float>({1});
    Graph graph;
    const Output node = Constant(graph.root(), ints);
    (void)group.AllReduce(graph.root(), ReduceOp::kMean, node);
    const Status refused[] = {group.AllReduce(ReduceOp::kMean, ints).status(),
                              group.AllReduce(ReduceOp::kMean, std::vector{floats, ints}).status(),
                              group.AllReduce(ReduceOp::kMean, TensorRows{ints, ints}).status(),
                              group.ReduceScatter(ReduceOp::kMean, ints).status(), graph.status()};
    for (const Status& status : refused) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.ToString(), HasSubstr("the mean of int32 values would be rounded"));
      EXPECT_THAT(status.ToString(), HasSubstr("give them as float or double, or sum them"));
    }
    EXPECT_THAT(group.AllReduce(ReduceOp::kMean, longs).status().ToString(),
                HasSubstr("the mean of int64 values"));
    // What integers have stays, and the group goes on.
    for (const auto& [op, want] : {std::pair(ReduceOp::kSum, 6),
                                   {ReduceOp::kMin, 0},
                                   {ReduceOp::kMax, 3},
                                   {ReduceOp::kProduct, 0}}) {
      MR_ASSIGN_OR_RETURN(const Tensor got, group.AllReduce(op, longs));
      EXPECT_EQ(got.data<int64_t>()[0], want) << ReduceOpName(op);
    }
    return OkStatus();
  });
  ExpectAllOk(statuses);
}

// Every member is told, those too that asked for what there is.
TEST(ProcessGroup, TellsAllRanksThatOneAskedForAMeanOfIntegers) {
  const auto statuses = Four().All([](int rank) {
    const Tensor own = rank == 2 ? Tensor::Scalar<int32_t>(1) : Tensor::Scalar<float>(1);
    return Four().group(rank)->AllReduce(ReduceOp::kMean, own).status();
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr("rank 2"));
    EXPECT_THAT(status.ToString(), HasSubstr("the mean of int32 values"));
  }
}

TEST(ProcessGroup, ExchangesWithinSubsetsAtOnce) {
  std::vector<std::shared_ptr<ProcessGroup>> even(kRanks), odd(kRanks);
  const auto statuses = Four().All([&](int rank) -> Status {
    const auto i = static_cast<std::size_t>(rank);
    auto of_even = Four().group(rank)->Subset(std::vector<int>{0, 2});
    auto of_odd = Four().group(rank)->Subset(std::vector<int>{1, 3});
    if (!of_even.ok()) return of_even.status();
    if (!of_odd.ok()) return of_odd.status();
    even[i] = *of_even;
    odd[i] = *of_odd;
    ProcessGroup& own = rank % 2 == 0 ? *even[i] : *odd[i];
    EXPECT_EQ(own.rank(), rank / 2);
    // More steps in one group than in the other.
    for (int step = 0; step < (rank % 2 == 0 ? 2 : 5); ++step) {
      const auto sum = own.AllReduce(ReduceOp::kSum, Tensor::Scalar<int32_t>(rank));
      if (!sum.ok()) return sum.status();
      EXPECT_EQ(sum->scalar<int32_t>(), rank % 2 == 0 ? 2 : 4);
    }
    ProcessGroup& other = rank % 2 == 0 ? *odd[i] : *even[i];
    EXPECT_EQ(other.rank(), -1);
    EXPECT_EQ(other.Barrier().code(), StatusCode::kFailedPrecondition);
    return Four().group(rank)->Barrier();
  });
  ExpectAllOk(statuses);
}

TEST(ProcessGroup, ExchangesWithinStepsOfGraphs) {
  const auto statuses = Four().All([](int rank) -> Status {
    ProcessGroup& group = *Four().group(rank);
    Graph graph;
    const Scope scope = graph.root();
    const Output own = Constant(scope, Tensor::FromValues<float>({1.0f * rank, 8}));
    const Output mean = group.AllReduce(scope, ReduceOp::kMean, own);
    const Output rows = Placeholder(scope, kInt32, PartialShape({-1}));
    const std::vector<Output> gathered = group.AllGather(scope, std::vector{rows});
    const std::vector<Output> sent = group.Broadcast(scope, std::vector{own}, 3);
    SessionOptions options;
    Status status = graph.status();
    if (status.ok()) status = group.ConfigureSession(&options);
    if (!status.ok()) return status;
    auto session = Session::Create(graph, options);
    if (!session.ok()) return session.status();
    for (int step = 0; step < 3; ++step) {
      const Tensor part(kInt32, Shape({rank == step ? 2 : 0}));
      const auto got = session->Run({{rows, part}}, {mean, gathered[0], sent[0]});
      if (!got.ok()) return got.status();
      EXPECT_THAT(ValuesOf<float>(got->at(0)), ElementsAre(1.5f, 8));
      EXPECT_EQ(got->at(1).shape(), Shape({2}));
      EXPECT_THAT(ValuesOf<float>(got->at(2)), ElementsAre(3, 8));
    }
    return OkStatus();
  });
  ExpectAllOk(statuses);
}

// Names of tasks are not in the order of their numbers then.
TEST(ProcessGroup, KeepsMoreThanTenRanksInTheirOrder) {
  constexpr int kMany = 12;
  RanksInProcess many(kMany, {.timeout_seconds = 60});
  ExpectAllOk(many.statuses());
  ExpectAllOk(many.All([&](int rank) -> Status {
    const auto all = many.group(rank)->AllGather(Tensor::FromValues<int32_t>({rank}));
    if (!all.ok()) return all.status();
    for (int i = 0; i < kMany; ++i) EXPECT_EQ(all->data<int32_t>()[i], i);
    return OkStatus();
  }));
}

TEST(ProcessGroup, IsOneRankWithoutACluster) {
  const auto group = ProcessGroup::Create();
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->size(), 1);
  const Tensor own = Tensor::FromValues<float>({1, 2});
  EXPECT_TRUE(TensorsEqual((*group)->AllReduce(ReduceOp::kMean, own).value(), own));
  EXPECT_TRUE(TensorsEqual((*group)->AllGather(own).value(), own));
  EXPECT_TRUE(TensorsEqual((*group)->Broadcast(own).value(), own));
  EXPECT_TRUE(TensorsEqual((*group)->AllToAll(own).value().value, own));
  EXPECT_TRUE((*group)->Barrier().ok());
}

TEST(ProcessGroup, RefusesOptionsThatCannotBe) {
  using Options = ProcessGroupOptions;
  const std::pair<Options, const char*> refused[] = {
      {{.communication = {.implementation = CommunicationImplementation::kNccl}}, "needs a GPU"},
      {{.communication = {.bytes_per_pack = -1}}, "bytes_per_pack"},
      {{.communication = {.timeout_seconds = -1}}, "timeout_seconds"},
      {{.start_timeout = std::chrono::milliseconds(0)}, "start_timeout"}};
  for (const auto& [options, text] : refused) {
    const Status status = ProcessGroup::Create(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr(text));
  }
}

}  // namespace
}  // namespace millrace
