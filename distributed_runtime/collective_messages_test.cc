// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/collective_messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

StatusOr<Tensor> Decode(const std::string& bytes, int64_t num_bytes) {
  const std::vector<WirePiece> pieces = {
      WirePiece(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())};
  return DecodeRecvBufResponse(WireReader(pieces), num_bytes);
}

Tensor Bytes(int64_t count) {
  Tensor t(kUint8, Shape({count}));
  for (int64_t i = 0; i < count; ++i) t.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  return t;
}

TEST(RecvBufResponse, IsTheMessageThatProtobufReads) {
  for (const int64_t count : {0, 1, 100, 5000, 100'000}) {
    const Tensor piece = Bytes(count);
    WireWriter writer;
    EncodeRecvBufResponse(piece, 12, &writer);
    const std::string bytes = writer.Flatten();
    ASSERT_EQ(bytes.size(), writer.size());
    pb::RecvBufResponse message;
    ASSERT_TRUE(message.ParseFromString(bytes));
    EXPECT_EQ(message.send_start_micros(), 12);
    EXPECT_EQ(message.transport_options().type_url(),
              "type.googleapis.com/tensorflow.RecvBufRespExtra");
    pb::RecvBufRespExtra extra;
    ASSERT_TRUE(extra.ParseFromString(message.transport_options().value()));
    ASSERT_EQ(extra.tensor_content_size(), 1);
    EXPECT_EQ(extra.tensor_content(0).size(), static_cast<std::size_t>(count));
    const auto decoded = Decode(bytes, count);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(TensorsEqual(*decoded, piece));
  }
}

TEST(RecvBufResponse, MayComeInChunks) {
  pb::RecvBufRespExtra extra;
  extra.add_tensor_content("ab");
  extra.add_tensor_content("");
  extra.add_tensor_content("c");
  pb::RecvBufResponse message;
  message.mutable_transport_options()->set_type_url(
      "type.googleapis.com/tensorflow.RecvBufRespExtra");
  message.mutable_transport_options()->set_value(extra.SerializeAsString());
  const auto decoded = Decode(message.SerializeAsString(), 3);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(decoded->data<uint8_t>()), 3), "abc");
  EXPECT_EQ(Decode(message.SerializeAsString(), 4).status().code(), StatusCode::kInternal);
  EXPECT_EQ(Decode(message.SerializeAsString(), -1).status().code(), StatusCode::kInternal);
  message.mutable_transport_options()->set_type_url("something else");
  EXPECT_EQ(Decode(message.SerializeAsString(), 3).status().code(), StatusCode::kInvalidArgument);
}

TEST(RecvBufResponse, ThatIsCutShortIsAnError) {
  WireWriter writer;
  EncodeRecvBufResponse(Bytes(3000), 12, &writer);
  const std::string bytes = writer.Flatten();
  for (std::size_t size = 0; size < bytes.size(); size += size < 100 ? 1 : 97) {
    EXPECT_FALSE(Decode(bytes.substr(0, size), 3000).ok()) << size;
  }
}

TEST(CollectiveRequests, ComeBackAsTheyWere) {
  GroupRequest group{4, 3, CollectiveKind::kGather, {}};
  group.device.name = "/job:worker/replica:0/task:1/device:CPU:2";
  group.device.device_type = "CPU";
  group.device.incarnation = uint64_t{1} << 63;
  pb::CompleteGroupRequest group_proto;
  ToProto(group, &group_proto);
  const auto same_group = FromProto(group_proto);
  ASSERT_TRUE(same_group.ok());
  EXPECT_EQ(same_group->group_size, 3);
  EXPECT_EQ(same_group->kind, CollectiveKind::kGather);
  EXPECT_EQ(same_group->device.name, group.device.name);
  EXPECT_EQ(same_group->device.incarnation, group.device.incarnation);
  EXPECT_TRUE(same_group->tells_steps);

  InstanceRequest instance;
  instance.node = "sum";
  instance.dtype = kBfloat16;
  instance.shape = Shape({2, 0, 3});
  instance.instance_key = -4;
  instance.step_id = 77;
  instance.subdiv_offsets = {0, -1};
  instance.is_source = true;
  instance.reduction = "Add/Div";
  pb::CompleteInstanceRequest instance_proto;
  ToProto(instance, &instance_proto);
  const auto same = FromProto(instance_proto);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->node, "sum");
  EXPECT_EQ(same->reduction, "Add/Div");
  EXPECT_EQ(same->dtype, kBfloat16);
  EXPECT_EQ(same->shape, instance.shape);
  EXPECT_EQ(same->instance_key, -4);
  EXPECT_EQ(same->step_id, 77);
  EXPECT_EQ(same->subdiv_offsets, instance.subdiv_offsets);
  EXPECT_TRUE(same->is_source);
  instance_proto.mutable_shape()->set_unknown_rank(true);
  EXPECT_EQ(FromProto(instance_proto).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
