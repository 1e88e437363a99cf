// SPDX-License-Identifier: Apache-2.0
// Evaluations in splits: every example counts once, whatever becomes of the workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/errors.h"
#include "millrace/evaluator.h"
#include "millrace/millrace.h"
#include "tests/coordinator/coordinated_program.h"
#include "tests/coordinator/process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kExamples = 1003, kBatch = 10;

Dataset Numbers(int64_t count = kExamples) { return Dataset::Range(count).Batch(kBatch); }

// Their sum, how many are even, and the sum once more as often as the variable says; after a pause
// that is long enough to be killed in.
SplitSums SumsOf(const CoordinatedProgram& program, int64_t matrix = 2) {
  return [&program, matrix](const Scope& s, std::span<const Output> element) {
    const Output noise = RandomUniform(s, Shape({matrix, matrix}), -1, 1);
    const Operation pause = ops::MatMul(s, noise, noise).op();
    const Scope after = s.WithControlDependencies({pause});
    const Expr numbers(after, ops::Cast(after, element[0], kDouble));
    const Output even =
        ops::Equal(after, ops::FloorMod(after, element[0], Tensor::Scalar<int64_t>(2)),
                   Tensor::Scalar<int64_t>(0));
    return std::vector<Output>{
        numbers.Sum(), ReduceSum(after, ops::Cast(after, even, kInt32)),
        ops::Mul(after, numbers.Sum(), ops::ReadVariableOp(after, program.sum.handle, kDouble))};
  };
}

void ExpectAll(const StatusOr<SplitResult>& result, double variable = 0) {
  ASSERT_TRUE(result.ok()) << result.status();
  const double sum = kExamples * (kExamples - 1) / 2.0;
  EXPECT_EQ(result->examples, kExamples);
  EXPECT_EQ(result->elements, (kExamples + kBatch - 1) / kBatch);
  EXPECT_THAT(result->sums, ElementsAre(sum, (kExamples + 1) / 2, sum * variable));
}

class SplitEvaluation : public ::testing::Test {
 protected:
  SplitEvaluation() : cluster_(1, 2), program_(cluster_.spec()) {
    program_.options.worker_timeout = seconds(1);
    program_.Open();
  }
  std::unique_ptr<SplitEvaluator> Evaluator(const Dataset& dataset, const SplitSums& sums,
                                            const SplitOptions& options = {}) {
    auto made = SplitEvaluator::Create(*program_.coordinator, dataset, sums, options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  // Does something to a worker once a part of the splits is done.
  template <typename Disturb>
  StatusOr<SplitResult> EvaluateWhile(SplitEvaluator& evaluator, int64_t done,
                                      const Disturb& disturb) {
    const int64_t before = program_.coordinator->stats().finished;
    std::thread other([&] {
      const auto limit = std::chrono::steady_clock::now() + kPatience;
      while (program_.coordinator->stats().finished < before + done &&
             std::chrono::steady_clock::now() < limit) {
        std::this_thread::sleep_for(milliseconds(2));
      }
      disturb();
    });
    StatusOr<SplitResult> result = evaluator.Evaluate();
    other.join();
    return result;
  }

  ProcessCluster cluster_;
  CoordinatedProgram program_;
};

TEST_F(SplitEvaluation, CountsEveryExampleOnceWithTheVariablesOfTheMoment) {
  const auto evaluator = Evaluator(Numbers(), SumsOf(program_));
  ASSERT_NE(evaluator, nullptr);
  const auto result = evaluator->Evaluate();
  ExpectAll(result);
  EXPECT_EQ(result->num_splits, 8);
  program_.Schedule(program_.add, 3);
  ASSERT_TRUE(program_.coordinator->Join().ok());
  ExpectAll(evaluator->Evaluate(), /*variable=*/3);
}

TEST_F(SplitEvaluation, CountsEveryExampleOnceWhenAWorkerIsKilled) {
  const auto evaluator = Evaluator(Numbers(), SumsOf(program_, 200), {.num_splits = 20});
  ASSERT_NE(evaluator, nullptr);
  // Each worker once, and until a kill has met a split that was under way.
  int rounds = 0;
  for (const auto limit = std::chrono::steady_clock::now() + kPatience;
       rounds < 2 ||
       (program_.coordinator->stats().retried < 1 && std::chrono::steady_clock::now() < limit);
       ++rounds) {
    const int victim = rounds % 2;
    const auto result = EvaluateWhile(*evaluator, 3, [&] { cluster_.Kill("worker", victim); });
    ExpectAll(result);
    cluster_.Start("worker", victim);
  }
  const CoordinatorStats stats = program_.coordinator->stats();
  EXPECT_GE(stats.retried, 1) << "splits were under way";
  EXPECT_EQ(stats.finished, rounds * 20);
}

TEST_F(SplitEvaluation, CountsEveryExampleOnceWhenAWorkerStandsStillAndGoesOn) {
  const auto evaluator = Evaluator(Numbers(), SumsOf(program_, 200), {.num_splits = 20});
  ASSERT_NE(evaluator, nullptr);
  // Until it has been stopped with a split that was under way.
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  do {
    ExpectAll(EvaluateWhile(*evaluator, 3, [&] { cluster_.Stop("worker", 1); }));
    // What it had begun it ends now: too late for anybody.
    ExpectAll(EvaluateWhile(*evaluator, 3, [&] { cluster_.Continue("worker", 1); }));
  } while (program_.coordinator->stats().retried < 1 && std::chrono::steady_clock::now() < limit);
  EXPECT_GE(program_.coordinator->stats().retried, 1);
}

TEST_F(SplitEvaluation, TakesFewerElementsThanSplits) {
  const auto evaluator = Evaluator(Numbers(15), SumsOf(program_), {.num_splits = 7});
  ASSERT_NE(evaluator, nullptr);
  const auto result = evaluator->Evaluate();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->examples, 15);
  EXPECT_THAT(result->sums, ElementsAre(105, 8, 0));
  const auto none = Evaluator(Numbers(15).Take(0), SumsOf(program_), {.name = "none"});
  ASSERT_NE(none, nullptr);
  const auto empty = none->Evaluate();
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->examples, 0);
  EXPECT_TRUE(empty->sums.empty());
}

TEST_F(SplitEvaluation, RefusesWhatCannotBeCountedOnce) {
  const auto error = [&](const Dataset& dataset, const SplitSums& sums) {
    return Text(SplitEvaluator::Create(*program_.coordinator, dataset, sums).status());
  };
  EXPECT_THAT(error(Numbers().Repeat(), SumsOf(program_)), HasSubstr("has no end"));
  EXPECT_THAT(error(Numbers().Shuffle(10, {.seed = 1}), SumsOf(program_)),
              AllOf(HasSubstr("Shuffle(10)"), HasSubstr("leave the shuffle out")));
  EXPECT_THAT(error(Numbers(), nullptr), HasSubstr("needs sums"));
  EXPECT_THAT(
      error(Numbers(), [](const Scope&, std::span<const Output>) { return std::vector<Output>(); }),
      HasSubstr("was given no sums"));
}

TEST_F(SplitEvaluation, ReturnsTheErrorOfAnElement) {
  const auto evaluator = Evaluator(Numbers(), [](const Scope& s, std::span<const Output> element) {
    const Output small = ops::Less(s, ops::Max(s, element[0], 0), Tensor::Scalar<int64_t>(500));
    const Operation fine = ops::Assert(s, small, {Input("too much")});
    return std::vector<Output>{
        ReduceSum(s.WithControlDependencies({fine}), ops::Cast(s, element[0], kDouble))};
  });
  ASSERT_NE(evaluator, nullptr);
  const auto result = evaluator->Evaluate();
  EXPECT_TRUE(errors::IsInvalidArgument(result.status())) << result.status();
  EXPECT_THAT(Text(result.status()), HasSubstr("too much"));
}

}  // namespace
}  // namespace millrace::testing
