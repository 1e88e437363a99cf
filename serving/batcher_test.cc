// SPDX-License-Identifier: Apache-2.0
// Which calls go through one step, and what each of them gets.
#include "serving/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/errors.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A step that doubles. While the gate is closed, steps wait in it; their rows are noted.
class BatcherTest : public ::testing::Test {
 protected:
  Batcher::Step Doubling() {
    return [this](std::span<const Tensor> inputs, std::vector<Tensor>* outputs) {
      {
        MutexLock lock(&mu_);
        rows_.push_back(inputs[0].dim(0));
      }
      entered_.Notify();
      gate_.Wait();
      outputs->clear();
      for (const Tensor& input : inputs) {
        Tensor& doubled = outputs->emplace_back(input.Clone());
        for (float& value : doubled.flat<float>()) {
          if (value < 0) return errors::InvalidArgument("a negative number");
          value *= 2;
        }
      }
      return OkStatus();
    };
  }

  struct Answer {
    Notification done;
    Status status;
    std::vector<Tensor> outputs;
  };
  void Ask(Batcher* batcher, Tensor input, Answer* answer, Deadline deadline = kNoDeadline) {
    batcher->Submit({std::move(input)}, deadline,
                    [answer](const Status& status, std::vector<Tensor> outputs) {
                      answer->status = status;
                      answer->outputs = std::move(outputs);
                      answer->done.Notify();
                    });
  }
  static void Wait(Answer* answer) {
    ASSERT_TRUE(answer->done.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
  }
  std::vector<int64_t> rows() {
    MutexLock lock(&mu_);
    return rows_;
  }

  ThreadPool pool_{"steps", 2};
  Mutex mu_;
  std::vector<int64_t> rows_ ABSL_GUARDED_BY(mu_);
  Notification entered_, gate_;
};

Tensor Rows(std::initializer_list<float> values) {
  return Tensor::FromValues<float>(values, {static_cast<int64_t>(values.size()), 1});
}

TEST_F(BatcherTest, CallsThatComeWhileAStepRunsShareTheNext) {
  Answer first, second, third;
  Batcher batcher(Doubling(), /*joins=*/true, {}, &pool_);
  Ask(&batcher, Rows({1}), &first);
  entered_.Wait();
  Ask(&batcher, Rows({2, 3}), &second);
  Ask(&batcher, Rows({4}), &third);
  gate_.Notify();
  for (Answer* answer : {&first, &second, &third}) Wait(answer);
  EXPECT_THAT(rows(), ElementsAre(1, 3));
  EXPECT_THAT(first.outputs[0].flat<float>(), ElementsAre(2));
  EXPECT_THAT(second.outputs[0].flat<float>(), ElementsAre(4, 6));
  EXPECT_THAT(third.outputs[0].flat<float>(), ElementsAre(8));
}

TEST_F(BatcherTest, AStepHasNoMoreRowsThanAllowedUnlessOneCallHas) {
  Answer answers[4];
  Batcher batcher(Doubling(), /*joins=*/true, {.max_rows = 3}, &pool_);
  Ask(&batcher, Rows({1}), &answers[0]);
  entered_.Wait();
  Ask(&batcher, Rows({1, 2}), &answers[1]);
  Ask(&batcher, Rows({3, 4}), &answers[2]);
  Ask(&batcher, Rows({1, 2, 3, 4, 5}), &answers[3]);
  gate_.Notify();
  for (Answer& answer : answers) Wait(&answer);
  EXPECT_THAT(rows(), ElementsAre(1, 2, 2, 5));
}

TEST_F(BatcherTest, OtherShapesAndModelsWithoutRowsAreNotJoined) {
  for (const bool joins : {true, false}) {
    Answer answers[3];
    {
      Batcher batcher(Doubling(), joins, {}, &pool_);
      Ask(&batcher, Rows({1}), &answers[0]);
      entered_.Wait();
      Ask(&batcher, Rows({1}), &answers[1]);
      Ask(&batcher, joins ? Tensor::FromValues<float>({1, 2}, {1, 2}) : Rows({1}), &answers[2]);
      if (joins) gate_.Notify();
    }
    for (Answer& answer : answers) Wait(&answer);
  }
  EXPECT_THAT(rows(), ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST_F(BatcherTest, AFailureIsThatOfTheCallThatCausesIt) {
  Answer first, good, bad;
  Batcher batcher(Doubling(), /*joins=*/true, {}, &pool_);
  Ask(&batcher, Rows({1}), &first);
  entered_.Wait();
  Ask(&batcher, Rows({2}), &good);
  Ask(&batcher, Rows({-1}), &bad);
  gate_.Notify();
  for (Answer* answer : {&first, &good, &bad}) Wait(answer);
  EXPECT_TRUE(good.status.ok()) << good.status;
  EXPECT_THAT(good.outputs[0].flat<float>(), ElementsAre(4));
  EXPECT_TRUE(errors::IsInvalidArgument(bad.status)) << bad.status;
}

TEST_F(BatcherTest, ACallThatWaitedBeyondItsDeadlineIsNotComputed) {
  Answer first, late;
  Batcher batcher(Doubling(), /*joins=*/true, {}, &pool_);
  Ask(&batcher, Rows({1}), &first);
  entered_.Wait();
  Ask(&batcher, Rows({2}), &late, SteadyClock::now());
  gate_.Notify();
  Wait(&first);
  Wait(&late);
  EXPECT_TRUE(errors::IsDeadlineExceeded(late.status)) << late.status;
  EXPECT_THAT(rows(), ElementsAre(1));
}

TEST_F(BatcherTest, TooManyCallsAreRefused) {
  Answer first, second, third;
  Batcher batcher(Doubling(), /*joins=*/true, {.max_waiting = 1}, &pool_);
  Ask(&batcher, Rows({1}), &first);
  entered_.Wait();
  Ask(&batcher, Rows({2}), &second);
  Ask(&batcher, Rows({3}), &third);
  Wait(&third);
  EXPECT_TRUE(errors::IsResourceExhausted(third.status));
  EXPECT_THAT(std::string(Message(third.status)), HasSubstr("1 calls are waiting"));
  gate_.Notify();
  Wait(&first);
  Wait(&second);
  EXPECT_TRUE(second.status.ok());
}

}  // namespace
}  // namespace millrace
