// SPDX-License-Identifier: Apache-2.0
#include "collective/step_sequences.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/errors.h"

namespace millrace {
namespace {

TEST(StepSequences, KeepNoMoreKeysThanTheyMay) {
  StepSequences sequences;
  for (std::size_t key = 0; key < StepSequences::kMostKeys; ++key) {
    ASSERT_TRUE(sequences.Peek(static_cast<int64_t>(key)).ok());
  }
  const auto more = static_cast<int64_t>(StepSequences::kMostKeys);
  EXPECT_EQ(sequences.Peek(more).status().code(), StatusCode::kResourceExhausted);
  Status status;
  sequences.Next(more, nullptr, nullptr,
                 [&](const StatusOr<int64_t>& id) { status = id.status(); });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(sequences.Peek(7).ok());
}

TEST(StepSequences, AStepThatIsCancelledTakesItsQuestionBack) {
  StepSequences sequences;
  CancellationManager step;
  StepSequences::Wanted asked;
  StepSequences::Done answer;
  const StepSequences::Refresh refresh = [&](StepSequences::Done done,
                                             const StepSequences::Wanted& wanted) {
    answer = std::move(done);
    asked = wanted;
  };
  Status status;
  sequences.Next(1, refresh, &step, [&](const StatusOr<int64_t>& id) { status = id.status(); });
  ASSERT_NE(asked, nullptr);
  EXPECT_FALSE(asked->IsCancelled());
  step.StartCancel(errors::Cancelled("enough"));
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(asked->IsCancelled());
  answer(errors::Cancelled("the call was cancelled"));
  // The next one has its turn.
  asked = nullptr;
  sequences.Next(1, refresh, nullptr, [&](const StatusOr<int64_t>& id) { status = id.status(); });
  ASSERT_NE(asked, nullptr);
  answer(5);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace millrace
