// SPDX-License-Identifier: Apache-2.0
#include "ranks/rank_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kNames = {"rank 0", "rank 1", "rank 2", "rank 3"};

RankCall CallOf(std::string_view kind, std::vector<std::string> values = {}) {
  RankCall call = MakeCall(kind, values, "");
  call.number = 7;
  return call;
}

TEST(RankCalls, TravelAsTheyAre) {
  RankCall call = CallOf("AllReduce(sum)", {"float[3]"});
  call.payload_bytes = 12345678901;
  const Tensor words = EncodeCall(call);
  const auto back = DecodeCall(words.flat<int32_t>());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->number, 7);
  EXPECT_EQ(back->signature, call.signature);
  EXPECT_EQ(back->payload_bytes, 12345678901);
  EXPECT_FALSE(back->refused);
  EXPECT_EQ(back->text, "AllReduce(sum) of float[3]");
}

TEST(RankCalls, AreCutIfTheyAreLongAndStillTold) {
  const RankCall call = CallOf(std::string(5000, 'x'));
  const auto back = DecodeCall(EncodeCall(call).flat<int32_t>());
  ASSERT_TRUE(back.ok());
  EXPECT_LT(back->text.size(), 1024u);
  EXPECT_EQ(back->signature, call.signature);
}

TEST(RankCalls, AreRefusedIfTheyCannotBe) {
  Tensor words = EncodeCall(CallOf("Barrier"));
  EXPECT_FALSE(DecodeCall(words.flat<int32_t>().subspan(1)).ok());
  std::fill_n(words.data<int32_t>(), kCallWords, -1);
  EXPECT_FALSE(DecodeCall(words.flat<int32_t>()).ok());
}

TEST(RankCalls, OfMostRanksAreRight) {
  const RankCall a = CallOf("Barrier"), b = CallOf("AllGather", {"int32[?]"});
  EXPECT_TRUE(CompareCalls(std::vector{a, a, a, a}, kNames).ok());
  const Status one = CompareCalls(std::vector{b, a, a, a}, kNames);
  EXPECT_EQ(one.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(one.ToString(),
              HasSubstr("rank 0 calls AllGather of int32[?] (its call 7), where rank 1, rank 2, "
                        "rank 3 call Barrier"));
  const Status half = CompareCalls(std::vector{b, b, a, a}, kNames);
  EXPECT_THAT(half.ToString(), HasSubstr("rank 2 calls Barrier"));
}

TEST(RankCalls, ThatAreRefusedByOneAreToldToAll) {
  const RankCall wrong = RefusedCall("AllReduce(sum)", errors::InvalidArgument("no strings"));
  const Status status = CompareCalls(std::vector{CallOf("Barrier"), wrong}, kNames);
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("rank 1 cannot take part in AllReduce(sum): no strings"),
                    Not(HasSubstr("rank 0"))));
}

TEST(RankCalls, OfLongListsDifferInWhatTheyDoNotName) {
  std::vector<std::string> values(100, "float[1]");
  const RankCall a = CallOf("AllReduce(sum)", values);
  values.back() = "float[2]";
  const RankCall b = CallOf("AllReduce(sum)", values);
  EXPECT_NE(a.signature, b.signature);
  EXPECT_NE(a.text, b.text);
  EXPECT_LT(a.text.size(), 200u);
}

}  // namespace
}  // namespace millrace
