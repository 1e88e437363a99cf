// SPDX-License-Identifier: Apache-2.0
// Reductions in the order of the ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "collective/combine.h"
#include "collective/tasks_in_process.h"
#include "millrace/float16.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CollectiveParams InRankOrder(int group_size, const Tensor& input) {
  CollectiveParams params = Reduce(group_size, input);
  params.in_rank_order = true;
  return params;
}

// What each member ends with.
std::vector<Tensor> RunAll(const std::vector<int>& layout, const std::vector<Tensor>& inputs,
                           const std::function<void(CollectiveParams*)>& change = nullptr,
                           ThreadPool* pool = nullptr) {
  Cluster cluster(layout, pool);
  Step step(cluster, 1);
  const int n = step.size();
  for (int i = 0; i < n; ++i) {
    CollectiveParams params = InRankOrder(n, inputs[i]);
    if (change != nullptr) change(&params);
    step.Begin(i, params, inputs[i]);
  }
  std::vector<Tensor> outputs;
  for (int i = 0; i < n; ++i) {
    EXPECT_TRUE(step.End(i).status.ok()) << step.End(i).status;
    outputs.push_back(step.End(i).output);
  }
  return outputs;
}

int SizeOf(const std::vector<int>& layout) {
  int size = 0;
  for (const int devices : layout) size += devices;
  return size;
}

TEST(RankOrder, AddsAllElementsInTheOrderOfTheRanks) {
  for (const std::vector<int>& layout : Layouts()) {
    for (const int64_t count : {0, 1, 5, 16, 17, 100, 5000}) {
      const int n = SizeOf(layout);
      std::vector<Tensor> inputs;
      for (int i = 0; i < n; ++i) inputs.push_back(Floats(count, i));
      for (const Tensor& output : RunAll(layout, inputs)) {
        for (int64_t k = 0; k < count; ++k) {
          float sum = inputs[0].data<float>()[k];
          for (int r = 1; r < n; ++r) sum += inputs[r].data<float>()[k];
          ASSERT_EQ(output.data<float>()[k], sum) << n << " members, element " << k;
        }
      }
    }
  }
}

// Where an element lies among others, and which member adds it up, is not to be seen in its sum.
TEST(RankOrder, GivesTheSameBitsInOnePackAsInMany) {
  constexpr int64_t kCount = 999, kCut = 333;
  const std::vector<int> layout = {1, 1, 1, 1};
  std::vector<Tensor> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(Floats(kCount, i));
  const Tensor whole = RunAll(layout, inputs)[0];
  for (int64_t begin = 0; begin < kCount; begin += kCut) {
    std::vector<Tensor> parts;
    for (const Tensor& input : inputs) parts.push_back(input.Slice(begin, begin + kCut));
    const auto other_key = [&](CollectiveParams* params) {
      params->instance_key = static_cast<int32_t>(begin);
    };
    EXPECT_TRUE(
        TensorsEqual(RunAll(layout, parts, other_key)[2], whole.Slice(begin, begin + kCut)));
  }
}

TEST(RankOrder, CutsLargeTensorsIntoPiecesThatThePoolAddsUp) {
  constexpr int64_t kCount = 3'300'000;  // two pieces for each member
  ThreadPool pool("reduce", 2);
  std::vector<Tensor> inputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(Floats(kCount, i));
  for (const Tensor& output : RunAll({1, 2}, inputs, nullptr, &pool)) {
    int64_t wrong = 0;
    for (int64_t k = 0; k < kCount; ++k) {
      const float two = inputs[0].data<float>()[k] + inputs[1].data<float>()[k];
      if (output.data<float>()[k] != two + inputs[2].data<float>()[k]) ++wrong;
    }
    EXPECT_EQ(wrong, 0);
  }
}

template <typename T>
Tensor WholeNumbers(DataType dtype, int member) {
  Tensor values(dtype, Shape({40}));
  for (int k = 0; k < 40; ++k) {
    values.data<T>()[k] = static_cast<T>(static_cast<float>(1 + (k * 7 + member * 3) % 5));
  }
  return values;
}

Tensor WholeNumbersOf(DataType dtype, int member) {
  switch (dtype) {
    case kFloat:
      return WholeNumbers<float>(dtype, member);
    case kDouble:
      return WholeNumbers<double>(dtype, member);
    case kHalf:
      return WholeNumbers<Half>(dtype, member);
    case kBfloat16:
      return WholeNumbers<BFloat16>(dtype, member);
    case kInt32:
      return WholeNumbers<int32_t>(dtype, member);
    default:
      return WholeNumbers<int64_t>(dtype, member);
  }
}

TEST(RankOrder, KnowsEveryOperationAndType) {
  for (const DataType dtype : {kFloat, kDouble, kHalf, kBfloat16, kInt32, kInt64}) {
    for (const MergeOp merge : {MergeOp::kAdd, MergeOp::kMul, MergeOp::kMin, MergeOp::kMax}) {
      for (const FinalOp final : {FinalOp::kId, FinalOp::kDiv}) {
        std::vector<Tensor> inputs;
        for (int i = 0; i < 3; ++i) inputs.push_back(WholeNumbersOf(dtype, i));
        // No more digits than any of the types has, before they are divided.
        Tensor expected = inputs[0].Clone();
        for (int i = 1; i < 3; ++i) {
          MergeInto(dtype, merge, expected.raw_data(), inputs[i].raw_data(), 40);
        }
        if (final == FinalOp::kDiv) DivideBy(dtype, expected.raw_data(), 40, 3);
        const auto change = [&](CollectiveParams* params) {
          params->merge = merge;
          params->final = final;
        };
        for (const Tensor& output : RunAll({2, 1}, inputs, change)) {
          EXPECT_TRUE(TensorsEqual(output, expected))
              << DataTypeName(dtype) << " " << ReductionName(merge, final);
        }
      }
    }
  }
}

// Sums of 16-bit floats, which have `digits` binary digits: rounded once, whatever the number of
// members. Rounded after each of them, they would be beyond that bound.
template <typename T>
void ExpectRoundedOnce(DataType dtype, int digits) {
  constexpr int kMembers = 8;
  constexpr int64_t kCount = 2000;
  std::vector<Tensor> inputs;
  for (int i = 0; i < kMembers; ++i) {
    const Tensor floats = Floats(kCount, i);
    Tensor input(dtype, Shape({kCount}));
    for (int64_t k = 0; k < kCount; ++k) input.data<T>()[k] = T(floats.data<float>()[k]);
    inputs.push_back(std::move(input));
  }
  std::vector<Tensor> means =
      RunAll(std::vector<int>(kMembers, 1), inputs,
             [](CollectiveParams* params) { params->final = FinalOp::kDiv; });
  const std::vector<Tensor> sums = RunAll(std::vector<int>(kMembers, 1), inputs);
  int beyond = 0;
  for (int64_t k = 0; k < kCount; ++k) {
    double exact = 0, sizes = 0;
    T by_hops = inputs[0].data<T>()[k];
    for (int i = 0; i < kMembers; ++i) {
      const auto value = static_cast<float>(inputs[i].data<T>()[k]);
      exact += value;
      sizes += std::abs(value);
      if (i > 0) by_hops = T(static_cast<float>(by_hops) + value);
    }
    // Half a unit in the last place, and what sums in float lose.
    const double bound = std::ldexp(std::abs(exact), -digits) +
                         (kMembers - 1) * std::ldexp(sizes, -24) + std::ldexp(1.0, -25);
    const auto sum = static_cast<double>(static_cast<float>(sums[3].data<T>()[k]));
    ASSERT_LE(std::abs(sum - exact), bound) << "element " << k;
    const auto mean = static_cast<double>(static_cast<float>(means[5].data<T>()[k]));
    ASSERT_LE(std::abs(mean - exact / kMembers), bound / kMembers + std::ldexp(1.0, -25));
    if (std::abs(static_cast<double>(static_cast<float>(by_hops)) - exact) > bound) ++beyond;
  }
  // Of sums that are rounded seven times, a good part.
  EXPECT_GT(beyond, kCount / 4);
}

TEST(RankOrder, RoundsSumsOfHalfOnce) { ExpectRoundedOnce<Half>(kHalf, 11); }
TEST(RankOrder, RoundsSumsOfBfloat16Once) { ExpectRoundedOnce<BFloat16>(kBfloat16, 8); }

TEST(RankOrder, DoesNotOverflowOnTheWayToAMeanOfHalf) {
  Tensor large(kHalf, Shape({3}));
  for (Half& value : large.flat<Half>()) value = Half(60'000.f);
  const auto mean = [](CollectiveParams* params) { params->final = FinalOp::kDiv; };
  for (const Tensor& output : RunAll({1, 1, 1}, {large, large, large}, mean)) {
    EXPECT_TRUE(TensorsEqual(output, large));
  }
}

// Where a member does not know rank order, all go around the ring.
TEST(RankOrder, IsLeftInGroupsWithServersOfTensorFlow) {
  Cluster cluster({1, 1, 1});
  Step step(cluster, 1);
  constexpr int64_t kCount = 100;
  std::vector<Tensor> inputs, outputs(3);
  std::vector<Outcome> outcomes(3);
  const auto members = cluster.Members();
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(Floats(kCount, i));
    outputs[i] = Tensor(kFloat, Shape({kCount}));
  }
  for (int i = 0; i < 3; ++i) {
    step.executor(i).ResolveAsync(
        InRankOrder(3, inputs[i]), *members[i].second,
        [&, i](StatusOr<std::shared_ptr<const ResolvedCollective>> resolved) {
          ASSERT_TRUE(resolved.ok()) << resolved.status();
          auto mixed = std::make_shared<ResolvedCollective>(**resolved);
          mixed->group = MakeGroup(1, mixed->group->members, /*tells_steps=*/false).value();
          step.executor(i).RunAsync(mixed, "1:7:0:0", inputs[i], outputs[i],
                                    [&, i](const Status& status) {
                                      outcomes[i].status = status;
                                      outcomes[i].ended.Notify();
                                    });
        });
  }
  const int64_t chunk = ChunkElements(4, kCount, 3);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(outcomes[i].ended.WaitUntil(DeadlineAfter(std::chrono::seconds(30))));
    ASSERT_TRUE(outcomes[i].status.ok()) << outcomes[i].status;
    for (int64_t k = 0; k < kCount; ++k) {
      const auto first = static_cast<int>(k / chunk);
      float sum = inputs[first].data<float>()[k];
      for (int r = 1; r < 3; ++r) sum += inputs[(first + r) % 3].data<float>()[k];
      ASSERT_EQ(outputs[i].data<float>()[k], sum) << "element " << k;
    }
  }
}

TEST(RankOrder, IsAskedForByAllMembersOrRefused) {
  Cluster cluster({1, 1});
  Step step(cluster, 1);
  const Tensor input = Floats(10, 0);
  step.Begin(0, InRankOrder(2, input), input);
  step.Begin(1, Reduce(2, input), input);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(std::string(Message(step.End(i).status)),
                AllOf(HasSubstr("Add/Id in rank order"), HasSubstr("computes Add/Id ")));
  }
}

TEST(RankOrder, EndsEverywhereWhenOneMembersStepFails) {
  Cluster cluster({1, 1, 1});
  const Tensor input = Floats(1000, 0);
  {
    // Members find each other.
    Step step(cluster, 1);
    for (int i = 0; i < 3; ++i) step.Begin(i, InRankOrder(3, input), input);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(step.End(i).status.ok()) << step.End(i).status;
  }
  Step step(cluster, 2);
  for (int i = 0; i < 2; ++i) step.Begin(i, InRankOrder(3, input), input);
  step.executor(2).Abort(Status(StatusCode::kInternal, "something else broke"));
  step.Begin(2, InRankOrder(3, input), input);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(std::string(Message(step.End(i).status)), HasSubstr("something else broke"));
  }
}

}  // namespace
}  // namespace millrace::testing
