// SPDX-License-Identifier: Apache-2.0
#include "kernels/data_flow/staging.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/wait.h"

namespace millrace {
namespace {

struct Count {
  std::string Contents() const { return StrCat(count, " tuples"); }
  int count = 0;
};
class Shelf final : public Staging<Count> {
 public:
  Shelf() : Staging("Shelf", "s") {}
};

// What has become of an attempt.
struct Outcome {
  bool ended = false;
  Status status;
  Shelf::Done Set() {
    return [this](Status given) {
      ended = true;
      status = std::move(given);
    };
  }
};

Shelf::Attempt AddOne(int at_most) {
  return [at_most](Count& held) {
    if (held.count >= at_most) return false;
    ++held.count;
    return true;
  };
}
StatusOr<bool> TakeOne(Count& held) {
  if (held.count == 0) return false;
  --held.count;
  return true;
}

std::vector<Wait> Waits(const CancellationManager& cancellation) {
  std::vector<Wait> waits;
  for (const std::string& text : cancellation.DescribeWaits()) waits.push_back(DecodeWait(text));
  return waits;
}

TEST(StagingTest, WhatOneSideDoesLetsTheOtherGoOn) {
  auto shelf = MakeRef<Shelf>();
  Outcome take, put, full;
  shelf->Do(Shelf::Use::kTake, "an unstage", &TakeOne, nullptr, take.Set());
  EXPECT_FALSE(take.ended);
  shelf->Do(Shelf::Use::kPut, "a stage", AddOne(1), nullptr, put.Set());
  EXPECT_TRUE(put.ended);
  EXPECT_TRUE(take.ended);
  shelf->Do(Shelf::Use::kPut, "a stage", AddOne(1), nullptr, put.Set());
  shelf->Do(Shelf::Use::kPut, "a stage", AddOne(1), nullptr, full.Set());
  EXPECT_FALSE(full.ended);
  EXPECT_EQ(shelf->DebugString(), "Shelf, 1 tuples");
  shelf->Do(Shelf::Use::kTake, "an unstage", &TakeOne, nullptr, take.Set());
  EXPECT_TRUE(full.ended);
}

TEST(StagingTest, AnErrorOfAnAttemptEndsItAlone) {
  auto shelf = MakeRef<Shelf>();
  Outcome wrong, take;
  shelf->Do(Shelf::Use::kTake, "an unstage", &TakeOne, nullptr, take.Set());
  shelf->Do(
      Shelf::Use::kPut, "a stage",
      [](Count&) -> StatusOr<bool> { return errors::InvalidArgument("no such key"); }, nullptr,
      wrong.Set());
  EXPECT_EQ(wrong.status.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(take.ended);
  shelf->OnRemoved();
  EXPECT_EQ(take.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(take.status.message(), "Shelf 's' was removed");
}

TEST(StagingTest, WhoeverWaitsSaysForWhatAndEndsWithItsStep) {
  auto shelf = MakeRef<Shelf>();
  CancellationManager cancellation;
  Waiter waiter(&cancellation);
  waiter.node = "get";
  waiter.task = "/job:worker/replica:0/task:1";
  Outcome put, take, late;
  shelf->Do(Shelf::Use::kTake, "an unstage", &TakeOne, waiter, take.Set());
  std::vector<Wait> waits = Waits(cancellation);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].kind, Wait::Kind::kQueue);
  EXPECT_EQ(waits[0].name, "s");
  EXPECT_EQ(waits[0].node, "get");
  EXPECT_EQ(waits[0].text, "an unstage: Shelf 's' has 0 tuples, no stage yet, no unstage yet");
  shelf->Do(Shelf::Use::kPut, "a stage", AddOne(1), nullptr, put.Set());
  EXPECT_TRUE(take.ended);
  EXPECT_TRUE(Waits(cancellation).empty());
  shelf->Do(Shelf::Use::kTake, "an unstage", &TakeOne, waiter, take.Set());
  take.ended = false;
  waits = Waits(cancellation);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_NE(waits[0].text.find("the last unstage, of {{node get}} for "
                               "/job:worker/replica:0/task:1, was "),
            std::string::npos)
      << waits[0].text;
  cancellation.StartCancel(errors::Cancelled("over"));
  EXPECT_TRUE(take.ended);
  EXPECT_EQ(take.status.code(), StatusCode::kCancelled);
  shelf->Do(Shelf::Use::kTake, "an unstage", &TakeOne, waiter, late.Set());
  EXPECT_EQ(late.status.code(), StatusCode::kCancelled);
}

TEST(StagingTest, ATupleLargerThanTheLimitNeverFits) {
  EXPECT_TRUE(CheckFitsStaging(1 << 30, 0).ok());
  EXPECT_TRUE(CheckFitsStaging(8, 8).ok());
  const Status status = CheckFitsStaging(9, 8);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "Attempted to insert tensors with combined size of '9' bytes into Staging Area with a "
            "memory limit of '8'.");
}

}  // namespace
}  // namespace millrace
