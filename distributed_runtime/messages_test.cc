// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "distributed_runtime/recent_ids.h"
#include "proto/master.pb.h"
#include "proto/worker.pb.h"
#include "transport/status_payloads.h"

namespace millrace {
namespace {

std::string Hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

// Reads a flattened message; the bytes live as long as this.
struct Flat {
  explicit Flat(const WireWriter& writer) : bytes(writer.Flatten()) {}
  WireReader reader() {
    piece = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    return WireReader({&piece, 1});
  }
  std::string bytes;
  WirePiece piece;
};

std::string RecvTensorHex(const Tensor& tensor, bool is_dead = false) {
  WireWriter writer;
  EXPECT_TRUE(EncodeRecvTensorResponse(tensor, is_dead, 5, false, &writer).ok());
  return Hex(writer.Flatten());
}

// The bytes that a 2.21 worker of TensorFlow was seen to send.
TEST(RecvTensorResponse, HasTensorFlowsBytes) {
  EXPECT_EQ(RecvTensorHex(Tensor::FromValues<float>({1, 2, 3})),
            "1805"
            "0a16"
            "0801"
            "120412020803"
            "220c"
            "0000803f0000004000004040");
  EXPECT_EQ(RecvTensorHex(Tensor::Scalar<int32_t>(7)), "18050a080803220407000000");
  EXPECT_EQ(RecvTensorHex(Tensor(kFloat, Shape({0}))), "18050a0a08011204120208002200");
  EXPECT_EQ(RecvTensorHex(Tensor::FromValues<std::string>({"ab", "c"})),
            "0a0f08071204120208022205020161626318"
            "05");
}

TEST(RecvTensorResponse, CarriesDeadness) {
  for (const Tensor& value : {Tensor(), Tensor::Scalar<float>(1)}) {
    WireWriter writer;
    ASSERT_TRUE(EncodeRecvTensorResponse(value, true, 5, false, &writer).ok());
    Tensor read;
    bool is_dead = false;
    ASSERT_TRUE(DecodeRecvTensorResponse(Flat(writer).reader(), &read, &is_dead).ok());
    EXPECT_TRUE(is_dead);
  }
  // A peer may leave the tensor of a dead value out, but of no other.
  WireWriter writer;
  writer.AppendVarintField(2, 1);
  Tensor read;
  bool is_dead = false;
  EXPECT_TRUE(DecodeRecvTensorResponse(Flat(writer).reader(), &read, &is_dead).ok());
  EXPECT_TRUE(is_dead);
  EXPECT_FALSE(read.IsInitialized());
  EXPECT_FALSE(DecodeRecvTensorResponse(Flat(WireWriter()).reader(), &read, &is_dead).ok());
}

TEST(RecvTensorResponse, IsReadInAnyOrderOfFields) {
  const Tensor value = Tensor::FromValues<int64_t>({1, 2});
  WireWriter writer;
  ASSERT_TRUE(writer.AppendTensorField(1, value).ok());
  writer.AppendVarintField(99, 7);  // a field of a later version
  writer.AppendVarintField(2, 0);
  Tensor read;
  bool is_dead = true;
  ASSERT_TRUE(DecodeRecvTensorResponse(Flat(writer).reader(), &read, &is_dead).ok());
  EXPECT_FALSE(is_dead);
  EXPECT_TRUE(TensorsEqual(read, value));
}

TEST(RunGraphMessages, ComeBackAsTheyWereSent) {
  RunGraphArgs args;
  args.session_handle = "s";
  args.graph_handle = "0000000000000001";
  args.step_id = int64_t{1} << 56;
  args.sends = {{"key a", Tensor(kFloat, Shape({100, 100}))}, {"key b", Tensor::String("x")}};
  args.recv_keys = {"r1", "r2"};
  args.record_timeline = true;
  args.is_partial = true;
  WireWriter request;
  ASSERT_TRUE(
      EncodeRunGraphRequest(args, {.request_id = 9, .store_errors_in_body = true}, &request).ok());
  EXPECT_EQ(request.segments().size(), 1u);
  RunGraphArgs read;
  RequestMeta meta;
  ASSERT_TRUE(DecodeRunGraphRequest(Flat(request).reader(), &read, &meta).ok());
  EXPECT_EQ(meta.request_id, 9);
  EXPECT_TRUE(meta.store_errors_in_body);
  EXPECT_EQ(read.session_handle, "s");
  EXPECT_EQ(read.graph_handle, args.graph_handle);
  EXPECT_EQ(read.step_id, args.step_id);
  EXPECT_EQ(read.recv_keys, args.recv_keys);
  EXPECT_TRUE(read.record_timeline);
  EXPECT_FALSE(read.record_costs);
  EXPECT_TRUE(read.is_partial);
  ASSERT_EQ(read.sends.size(), 2u);
  EXPECT_EQ(read.sends[1].first, "key b");
  EXPECT_TRUE(TensorsEqual(read.sends[0].second, args.sends[0].second));
  EXPECT_TRUE(TensorsEqual(read.sends[1].second, args.sends[1].second));
}

TEST(RunGraphMessages, GiveValuesInTheOrderOfTheKeysWhateverOrderTheyCameIn) {
  RunGraphArgs args;
  args.recv_keys = {"a", "b"};
  WireWriter response;
  ASSERT_TRUE(response.AppendNamedTensorField(1, "b", Tensor::Scalar<int32_t>(2)).ok());
  ASSERT_TRUE(response.AppendNamedTensorField(1, "a", Tensor::Scalar<int32_t>(1)).ok());
  RunGraphResult result;
  ASSERT_TRUE(DecodeRunGraphResponse(Flat(response).reader(), args, &result).ok());
  EXPECT_EQ(result.recvs[0].scalar<int32_t>(), 1);
  EXPECT_EQ(result.recvs[1].scalar<int32_t>(), 2);
  args.recv_keys = {"a", "c"};
  EXPECT_EQ(DecodeRunGraphResponse(Flat(response).reader(), args, &result).code(),
            StatusCode::kInternal);
}

TEST(RunGraphMessages, CarryErrorsInTheirBodyWithWhatIsAttached) {
  Status sent = MarkDerived(errors::Aborted("gone"));
  sent.SetPayload(kWorkerRestartedPayload, "");
  WireWriter response;
  EncodeRunGraphError(sent, &response);
  RunGraphResult result;
  EXPECT_EQ(DecodeRunGraphResponse(Flat(response).reader(), RunGraphArgs(), &result), sent);
  // TensorFlow's own decoder sees code and text.
  pb::RunGraphResponse proto;
  ASSERT_TRUE(proto.ParseFromString(response.Flatten()));
  EXPECT_EQ(proto.status_code(), pb::error::ABORTED);
  EXPECT_EQ(proto.status_error_message(), "gone");
}

TEST(RunGraphMessages, CarryErrorsThatQuoteBytesAsTextThatPeersCanRead) {
  WireWriter response;
  EncodeRunGraphError(
      errors::InvalidArgument("no \xff\xc3, \xe2\x82 or \xed\xa0\x80 but \xc3\xa4\xe2\x82\xac"),
      &response);
  pb::RunGraphResponse proto;
  ASSERT_TRUE(proto.ParseFromString(response.Flatten()));  // refuses what is not UTF-8
  EXPECT_EQ(proto.status_error_message(),
            "no \\377\\303, \\342\\202 or \\355\\240\\200 but \xc3\xa4\xe2\x82\xac");
}

TEST(RunGraphMessages, KnowTheOldMarkOfDerivedErrors) {
  WireWriter response;
  EncodeRunGraphError(errors::Cancelled("[_Derived_]step cancelled"), &response);
  RunGraphResult result;
  EXPECT_TRUE(IsDerived(DecodeRunGraphResponse(Flat(response).reader(), RunGraphArgs(), &result)));
}

TEST(RunStepMessages, MatchFetchesByNameAndKeepRepeatedOnes) {
  RunStepArgs args;
  args.feeds = {{"x:0", Tensor::Scalar<float>(1)}};
  args.fetches = {"y:0", "z:0", "y:0"};
  args.targets = {"t"};
  args.options.set_timeout_in_ms(7);
  WireWriter request;
  ASSERT_TRUE(EncodeRunStepRequest(args, RequestMeta{}, &request).ok());
  RunStepArgs read;
  RequestMeta meta;
  ASSERT_TRUE(DecodeRunStepRequest(Flat(request).reader(), &read, &meta).ok());
  EXPECT_EQ(read.fetches, args.fetches);
  EXPECT_EQ(read.targets, args.targets);
  EXPECT_EQ(read.options.timeout_in_ms(), 7);
  EXPECT_EQ(read.feeds[0].first, "x:0");

  RunStepResult result;
  result.fetches = {Tensor::Scalar<int32_t>(1), Tensor::Scalar<int32_t>(2),
                    Tensor::Scalar<int32_t>(1)};
  WireWriter response;
  ASSERT_TRUE(EncodeRunStepResponse(args, result, &response).ok());
  pb::RunStepResponse proto;
  ASSERT_TRUE(proto.ParseFromString(response.Flatten()));
  EXPECT_EQ(proto.tensor_size(), 2);
  EXPECT_TRUE(proto.has_metadata());
  RunStepResult back;
  ASSERT_TRUE(DecodeRunStepResponse(Flat(response).reader(), args, &back).ok());
  ASSERT_EQ(back.fetches.size(), 3u);
  EXPECT_EQ(back.fetches[1].scalar<int32_t>(), 2);
  EXPECT_EQ(back.fetches[2].scalar<int32_t>(), 1);
}

TEST(RunStepMessages, FindAFetchUnderItsFullName) {
  RunStepArgs args;
  args.fetches = {"y"};
  WireWriter response;
  ASSERT_TRUE(response.AppendNamedTensorField(1, "y:0", Tensor::Scalar<int32_t>(3)).ok());
  RunStepResult result;
  ASSERT_TRUE(DecodeRunStepResponse(Flat(response).reader(), args, &result).ok());
  EXPECT_EQ(result.fetches[0].scalar<int32_t>(), 3);
}

TEST(RunCallableMessages, KeepTheOrderOfFeedsAndFetches) {
  RunCallableArgs args;
  args.session_handle = "s";
  args.callable = 3;
  args.feeds = {Tensor::Scalar<int32_t>(1), Tensor::String("two")};
  WireWriter request;
  ASSERT_TRUE(EncodeRunCallableRequest(args, RequestMeta{}, &request).ok());
  RunCallableArgs read;
  RequestMeta meta;
  ASSERT_TRUE(DecodeRunCallableRequest(Flat(request).reader(), &read, &meta).ok());
  EXPECT_EQ(read.callable, 3);
  ASSERT_EQ(read.feeds.size(), 2u);
  EXPECT_TRUE(TensorsEqual(read.feeds[1], args.feeds[1]));
  RunStepResult result, back;
  result.fetches = args.feeds;
  WireWriter response;
  ASSERT_TRUE(EncodeRunCallableResponse(result, &response).ok());
  ASSERT_TRUE(DecodeRunCallableResponse(Flat(response).reader(), &back).ok());
  ASSERT_EQ(back.fetches.size(), 2u);
  EXPECT_TRUE(TensorsEqual(back.fetches[0], args.feeds[0]));
}

TEST(RunStepMessages, RefuseATensorThatCannotBeParsed) {
  pb::RunStepRequest proto;
  auto* feed = proto.add_feed();
  feed->set_name("x:0");
  feed->mutable_tensor()->set_dtype(pb::DT_FLOAT);
  feed->mutable_tensor()->set_tensor_content("123");
  WireWriter request;
  request.AppendMessage(proto);
  RunStepArgs args;
  RequestMeta meta;
  const Status status = DecodeRunStepRequest(Flat(request).reader(), &args, &meta);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("x:0"), std::string_view::npos) << status;
}

TEST(StatusPayloads, AreReplacedByAMarkWhenTheyCannotBeDecoded) {
  Status status = errors::Internal("x");
  DecodeStatusPayloads("\xff\xff\xff", &status);
  EXPECT_TRUE(
      status.GetPayload("type.googleapis.com/tensorflow.distributed_runtime.GrpcPayloadsLost")
          .has_value());
}

TEST(RecentIds, RefusesADuplicateUntilItIsForgotten) {
  RecentIds ids(2);
  EXPECT_TRUE(ids.Track(1, "RunGraph").ok());
  EXPECT_EQ(ids.Track(1, "RunGraph").code(), StatusCode::kAborted);
  EXPECT_TRUE(ids.Track(0, "RunGraph").ok());
  EXPECT_TRUE(ids.Track(0, "RunGraph").ok());
  EXPECT_TRUE(ids.Track(2, "RunGraph").ok());
  EXPECT_TRUE(ids.Track(3, "RunGraph").ok());
  EXPECT_TRUE(ids.Track(1, "RunGraph").ok());
  EXPECT_EQ(ids.Track(3, "RunGraph").code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace millrace
