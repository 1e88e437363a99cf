// SPDX-License-Identifier: Apache-2.0
// Values that travel together in packs: when each of them leaves, and what becomes of their sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "millrace/core.h"
#include "millrace/math.h"
#include "tests/ranks/ranks_in_process.h"

namespace millrace {
namespace {

using testing::RanksInProcess;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kOfEverything = std::numeric_limits<int64_t>::max();

void ExpectAllOk(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// A graph of each rank, and what a step of it fetches.
using Build = std::function<std::vector<Output>(int rank, const Scope& scope, ProcessGroup& group)>;
std::vector<std::vector<Tensor>> RunStep(const RanksInProcess& ranks, const Build& build) {
  std::vector<std::vector<Tensor>> all(static_cast<std::size_t>(ranks.size()));
  ExpectAllOk(ranks.statuses());
  ExpectAllOk(ranks.All([&](int rank) -> Status {
    ProcessGroup& group = *ranks.group(rank);
    Graph graph;
    const std::vector<Output> outputs = build(rank, graph.root(), group);
    SessionOptions options;
    Status status = graph.status();
    if (status.ok()) status = group.ConfigureSession(&options);
    if (!status.ok()) return status;
    auto session = Session::Create(graph, options);
    if (!session.ok()) return session.status();
    const auto got = session->Run({}, outputs);
    if (got.ok()) all[static_cast<std::size_t>(rank)] = *got;
    return got.status();
  }));
  return all;
}

int CountReductions(const Graph& graph) {
  int count = 0;
  for (const Operation& op : graph.operations()) count += op.type() == "CollectiveReduce" ? 1 : 0;
  return count;
}

TEST(Packs, AreOfAMebibyteWhereNothingElseIsSaid) {
  for (const auto& [bytes, wanted] :
       {std::pair<int64_t, int>{0, 2}, {kOfEverything, 1}, {1, 3}, {8 * kMiB, 1}}) {
    const RanksInProcess two(2, {.bytes_per_pack = bytes, .timeout_seconds = 60});
    ExpectAllOk(two.statuses());
    ExpectAllOk(two.All([&](int rank) -> Status {
      Graph graph;
      // The last two are more than a pack has, and leave together.
      const std::vector<Output> values(3, Zeros(graph.root(), Shape({3 * kMiB / 16}), kFloat));
      two.group(rank)->AllReduce(graph.root(), ReduceOp::kSum, values);
      EXPECT_EQ(CountReductions(graph), wanted) << bytes << " bytes";
      return graph.status();
    }));
  }
}

// As gradients: the last layer's are there first. Here the first value is not made before the sum
// of the last has come back, for which a pack of both would wait without end.
TEST(Packs, LeaveWhileTheValuesOfTheNextAreComputed) {
  const RanksInProcess two(2, {.timeout_seconds = 60});
  const int64_t many = kMiB / 4 + 1;
  const auto results = RunStep(two, [&](int rank, const Scope& scope, ProcessGroup& group) {
    const Output queue = ops::FIFOQueueV2(scope, {kFloat});
    const Output first =
        ops::EnsureShape(scope, ops::QueueDequeueV2(scope, queue, {kFloat})[0], Shape({2}));
    const Output last = ops::Fill(scope, {many}, Tensor::Scalar(static_cast<float>(1 + rank)));
    const std::vector<Output> sums =
        group.AllReduce(scope, ReduceOp::kSum, std::vector<Output>{first, last});
    const Output come = ops::StridedSlice(scope, sums[1], {many - 2}, {many}, {1});
    const Operation put = ops::QueueEnqueueV2(scope, queue, {come});
    return std::vector<Output>{ops::Identity(scope.WithControlDependencies({put}), sums[0])};
  });
  for (const std::vector<Tensor>& result : results) {
    ASSERT_EQ(result.size(), 1u);
    EXPECT_TRUE(TensorsEqual(result[0], Tensor::FromValues<float>({6, 6})));
  }
}

Tensor Floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor values(kFloat, Shape({count}));
  for (float& v : values.flat<float>()) v = std::uniform_real_distribution<float>(-2, 2)(random);
  return values;
}

// Sums of three and more floats depend on their order, which packs do not change.
TEST(Packs, GiveTheSameBitsWhateverTheirSize) {
  constexpr int64_t kCounts[] = {1, 100, 17, 1000, 333, 64};
  const auto own = [&](int rank) {
    std::vector<Tensor> values;
    for (uint32_t i = 0; i < std::size(kCounts); ++i) {
      values.push_back(Floats(kCounts[i], 100 * i + static_cast<uint32_t>(rank)));
    }
    return values;
  };
  std::vector<Tensor> wanted;
  for (const int64_t bytes : {kOfEverything, int64_t{0}, int64_t{1}, int64_t{500}}) {
    const RanksInProcess three(3, {.bytes_per_pack = bytes, .timeout_seconds = 60});
    const auto in_steps = RunStep(three, [&](int rank, const Scope& scope, ProcessGroup& group) {
      std::vector<Output> values;
      for (const Tensor& value : own(rank)) values.push_back(Constant(scope, value));
      return group.AllReduce(scope, ReduceOp::kSum, values);
    });
    if (wanted.empty()) wanted = in_steps[0];
    ASSERT_EQ(wanted.size(), std::size(kCounts));
    std::vector<std::vector<Tensor>> in_calls(3);
    ExpectAllOk(three.All([&](int rank) -> Status {
      const auto sums = three.group(rank)->AllReduce(ReduceOp::kSum, own(rank));
      if (sums.ok()) in_calls[static_cast<std::size_t>(rank)] = *sums;
      return sums.status();
    }));
    for (const auto& results : {in_steps, in_calls}) {
      for (const std::vector<Tensor>& result : results) {
        ASSERT_EQ(result.size(), wanted.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_TRUE(TensorsEqual(result[i], wanted[i])) << bytes << " bytes, value " << i;
        }
      }
    }
  }
  // The order is that of the ranks.
  const std::vector<std::vector<Tensor>> of_ranks = {own(0), own(1), own(2)};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (int64_t k = 0; k < kCounts[i]; ++k) {
      const float two = of_ranks[0][i].data<float>()[k] + of_ranks[1][i].data<float>()[k];
      ASSERT_EQ(wanted[i].data<float>()[k], two + of_ranks[2][i].data<float>()[k]);
    }
  }
}

// 2048 + 1 is 2048 again in half, and 256 + 1 is 256 in bfloat16: only sums that are rounded after
// all of them are right. The same of derivatives.
template <typename T>
void ExpectRoundedOnce(float large) {
  const RanksInProcess three(3, {.timeout_seconds = 60});
  const auto own = [&](int rank) {
    return Tensor::FromValues<T>({T(rank == 0 ? large : 1.0f), T(rank == 2 ? large : 1.0f)});
  };
  const Tensor wanted = Tensor::FromValues<T>({T(large + 2), T(large + 2)});
  const auto results = RunStep(three, [&](int rank, const Scope& scope, ProcessGroup& group) {
    const Output value = Constant(scope, own(rank)), weights = Constant(scope, own(rank));
    const Output sum = group.AllReduce(scope, ReduceOp::kSum, value);
    // What reaches a value are the weights of all ranks.
    const auto gradient = Gradients(scope, {{ops::Mul(scope, sum, weights)}}, {{value}});
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    return gradient.ok() ? std::vector<Output>{sum, (*gradient)[0]} : std::vector<Output>{sum};
  });
  for (const std::vector<Tensor>& result : results) {
    ASSERT_EQ(result.size(), 2u);
    EXPECT_TRUE(TensorsEqual(result[0], wanted));
    EXPECT_TRUE(TensorsEqual(result[1], wanted));
  }
  ExpectAllOk(three.All([&](int rank) -> Status {
    const auto sum = three.group(rank)->AllReduce(ReduceOp::kSum, own(rank));
    if (!sum.ok()) return sum.status();
    EXPECT_TRUE(TensorsEqual(*sum, wanted));
    return OkStatus();
  }));
}

TEST(Sums, OfHalfAreRoundedOnce) { ExpectRoundedOnce<Half>(2048); }
TEST(Sums, OfBfloat16AreRoundedOnce) { ExpectRoundedOnce<BFloat16>(256); }

// Of `less`, `less` and `less` + 1: a third above `less`. Their sum is not of the type, and the
// next one that is gives `less` + 1. The same of derivatives.
template <typename T>
void ExpectMeanRoundedOnce(float less, float large) {
  const RanksInProcess three(3, {.timeout_seconds = 60});
  const auto own = [&](int rank) {
    return Tensor::FromValues<T>({T(rank == 2 ? less + 1 : less), T(large)});
  };
  ASSERT_EQ(static_cast<float>(T(static_cast<float>(T(3 * less + 1)) / 3)), less + 1);
  const Tensor wanted = Tensor::FromValues<T>({T(less), T(large)});
  const auto results = RunStep(three, [&](int rank, const Scope& scope, ProcessGroup& group) {
    const Output value = Constant(scope, own(rank)), weights = Constant(scope, own(rank));
    const Output mean = group.AllReduce(scope, ReduceOp::kMean, value);
    const auto gradient = Gradients(scope, {{mean}}, {{value}}, {{weights}});
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    return gradient.ok() ? std::vector<Output>{mean, (*gradient)[0]} : std::vector<Output>{mean};
  });
  for (const std::vector<Tensor>& result : results) {
    ASSERT_EQ(result.size(), 2u);
    EXPECT_TRUE(TensorsEqual(result[0], wanted));
    EXPECT_TRUE(TensorsEqual(result[1], wanted));
  }
  ExpectAllOk(three.All([&](int rank) -> Status {
    const auto mean = three.group(rank)->AllReduce(ReduceOp::kMean, own(rank));
    if (!mean.ok()) return mean.status();
    EXPECT_TRUE(TensorsEqual(*mean, wanted));
    return OkStatus();
  }));
}

// Three times 60000 is infinite in half.
TEST(Means, OfHalfAreRoundedOnce) { ExpectMeanRoundedOnce<Half>(1374, 60000); }
TEST(Means, OfBfloat16AreRoundedOnce) { ExpectMeanRoundedOnce<BFloat16>(174, 0x1p126f); }

}  // namespace
}  // namespace millrace
