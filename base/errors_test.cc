// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"

#include <gtest/gtest.h>

#include "base/status_macros.h"

namespace millrace {
namespace {

TEST(ErrorsTest, MakerSetsCodeAndJoinsTheMessage) {
  const Status status = errors::NotFound("no node ", "x", " among ", 3);
  EXPECT_TRUE(errors::IsNotFound(status));
  EXPECT_FALSE(errors::IsInternal(status));
  EXPECT_EQ(Message(status), "no node x among 3");
}

TEST(ErrorsTest, AnnotateKeepsCodeAndPayloads) {
  Status status = errors::Aborted("gone");
  status.SetPayload(kWorkerRestartedPayload, "p");
  const Status annotated = Annotate(status, "; on task 1");
  EXPECT_EQ(annotated.code(), StatusCode::kAborted);
  EXPECT_EQ(Message(annotated), "gone; on task 1");
  EXPECT_TRUE(annotated.GetPayload(kWorkerRestartedPayload).has_value());
  EXPECT_TRUE(Annotate(OkStatus(), "x").ok());
}

TEST(ErrorsTest, DerivedMarkTravelsWithTheStatus) {
  const Status root = errors::Cancelled("step over");
  EXPECT_FALSE(IsDerived(root));
  EXPECT_TRUE(IsDerived(MarkDerived(root)));
  EXPECT_TRUE(IsDerived(WithMessage(MarkDerived(root), "else")));
  EXPECT_TRUE(MarkDerived(OkStatus()).ok());
}

TEST(ErrorsTest, CodesHaveTheirWireNames) {
  EXPECT_EQ(StatusCodeName(StatusCode::kOk), "OK");
  EXPECT_EQ(StatusCodeName(StatusCode::kInvalidArgument), "INVALID_ARGUMENT");
  EXPECT_EQ(StatusCodeName(StatusCode::kUnauthenticated), "UNAUTHENTICATED");
}

StatusOr<int> Half(int v) {
  if (v % 2 != 0) return errors::InvalidArgument(v, " is odd");
  return v / 2;
}

Status Quarter(int v, int* out) {
  MR_ASSIGN_OR_RETURN(const int half, Half(v));
  MR_ASSIGN_OR_RETURN(*out, Half(half));
  MR_RETURN_IF_ERROR(OkStatus());
  return OkStatus();
}

TEST(StatusMacrosTest, StopAtTheFirstError) {
  int out = 0;
  EXPECT_TRUE(Quarter(8, &out).ok());
  EXPECT_EQ(out, 2);
  EXPECT_EQ(Message(Quarter(6, &out)), "3 is odd");
  EXPECT_EQ(out, 2);
}

}  // namespace
}  // namespace millrace
