// SPDX-License-Identifier: Apache-2.0
#include "transport/server_call.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"

namespace millrace {
namespace {

class FakeCall final : public ServerCall {
 public:
  std::span<const WirePiece> request() override { return {}; }
  CallOptions options() override { return {}; }
  Deadline arrival() const override { return SteadyClock::now(); }
  void Finish(const Status& status) override { answers.push_back(status); }
  void Finish(WireWriter) override { answers.push_back(OkStatus()); }

  std::vector<Status> answers;
};

TEST(ServerCallTest, WhatAHandlerThrowsIsTheAnswer) {
  FakeCall call;
  Serve([](ServerCall*) { throw std::bad_alloc(); }, &call);
  ASSERT_EQ(call.answers.size(), 1u);
  EXPECT_TRUE(errors::IsResourceExhausted(call.answers[0])) << call.answers[0];
}

TEST(ServerCallTest, AHandlerThatAnswersAnswersOnce) {
  FakeCall call;
  Serve([](ServerCall* served) { served->Finish(errors::NotFound("gone")); }, &call);
  ASSERT_EQ(call.answers.size(), 1u);
  EXPECT_TRUE(errors::IsNotFound(call.answers[0]));
}

}  // namespace
}  // namespace millrace
