// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/named_tensor.pb.h"
#include "proto/tensor.pb.h"
#include "tensor/tensor_proto.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {
namespace {

WirePiece PieceOf(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// `bytes` in pieces of `size`, the way they may arrive.
std::vector<WirePiece> Cut(std::string_view bytes, std::size_t size) {
  std::vector<WirePiece> pieces;
  for (std::size_t i = 0; i < bytes.size(); i += size) {
    pieces.push_back(PieceOf(bytes.substr(i, size)));
    pieces.push_back({});  // empty pieces may stand between
  }
  return pieces;
}

StatusOr<Tensor> ReadWhole(std::string_view bytes) {
  const WirePiece piece = PieceOf(bytes);
  return ReadTensor(WireReader({&piece, 1}));
}

TEST(WireReader, ReadsATensorHoweverItsBytesAreCut) {
  const Tensor sent = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, Shape({2, 3}));
  pb::TensorProto proto;
  TensorToProto(sent, &proto);
  const std::string bytes = proto.SerializeAsString();
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    const std::vector<WirePiece> pieces = Cut(bytes, size);
    const StatusOr<Tensor> read = ReadTensor(WireReader(pieces));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(TensorsEqual(*read, sent)) << size;
  }
}

TEST(WireReader, AcceptsContentBeforeTypeAndShape) {
  std::string bytes("\x22\x04\x07\x00\x00\x00", 6);  // tensor_content
  bytes += "\x08\x03";                               // dtype
  const StatusOr<Tensor> read = ReadWhole(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->scalar<int32_t>(), 7);
}

TEST(WireReader, AcceptsTypedLists) {
  pb::TensorProto proto;
  proto.set_dtype(pb::DT_FLOAT);
  proto.mutable_tensor_shape()->add_dim()->set_size(3);
  proto.add_float_val(2.5f);  // the last value is repeated
  const StatusOr<Tensor> read = ReadWhole(proto.SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(TensorsEqual(*read, Tensor::FromValues<float>({2.5f, 2.5f, 2.5f})));
}

TEST(WireReader, ReadsStringsFromListsAndFromContent) {
  const Tensor sent = Tensor::FromValues<std::string>({"ab", "", "c"});
  pb::TensorProto proto;
  TensorToProto(sent, &proto);
  StatusOr<Tensor> read = ReadWhole(proto.SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(TensorsEqual(*read, sent));
  proto.clear_tensor_content();
  for (const char* text : {"ab", "", "c"}) proto.add_string_val(text);
  read = ReadWhole(proto.SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(TensorsEqual(*read, sent));
}

TEST(WireReader, RefusesAShapeThatDoesNotFitTheContentBeforeTakingMemory) {
  pb::TensorProto proto;
  proto.set_dtype(pb::DT_FLOAT);
  proto.mutable_tensor_shape()->add_dim()->set_size(int64_t{1} << 50);
  proto.set_tensor_content("1234");
  const Status huge = ReadWhole(proto.SerializeAsString()).status();
  EXPECT_EQ(huge.code(), StatusCode::kInvalidArgument) << huge;
  proto.mutable_tensor_shape()->mutable_dim(0)->set_size(-1);
  EXPECT_EQ(ReadWhole(proto.SerializeAsString()).status().code(), StatusCode::kInvalidArgument);
}

TEST(WireReader, RefusesRefTypesAndNoType) {
  pb::TensorProto proto;
  proto.set_tensor_content("1234");
  EXPECT_EQ(ReadWhole(proto.SerializeAsString()).status().code(), StatusCode::kInvalidArgument);
  proto.set_dtype(pb::DT_FLOAT_REF);
  EXPECT_EQ(ReadWhole(proto.SerializeAsString()).status().code(), StatusCode::kInvalidArgument);
}

TEST(WireReader, MakesBoolsOfAnyByteWellDefined) {
  pb::TensorProto proto;
  proto.set_dtype(pb::DT_BOOL);
  proto.mutable_tensor_shape()->add_dim()->set_size(3);
  proto.set_tensor_content(std::string("\x00\x01\x7f", 3));
  const StatusOr<Tensor> read = ReadWhole(proto.SerializeAsString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(TensorsEqual(*read, Tensor::FromValues<bool>({false, true, true})));
}

TEST(WireReader, SurvivesEveryTruncation) {
  WireWriter writer;
  const Tensor big(kFloat, Shape({1000}));
  ASSERT_TRUE(writer.AppendNamedTensorField(2, "big", big).ok());
  ASSERT_TRUE(writer.AppendNamedTensorField(2, "text", Tensor::String("x")).ok());
  WireWriter first;
  ASSERT_TRUE(first.AppendNamedTensorField(2, "big", big).ok());
  const std::string bytes = writer.Flatten();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const WirePiece piece = PieceOf(std::string_view(bytes).substr(0, size));
    pb::NamedTensorProto rest;
    std::string name;
    Tensor tensor;
    int seen = 0;
    const Status status = ReadMessageWithTensors(
        WireReader({&piece, 1}), 2,
        [&](WireReader body) {
          ++seen;
          return ReadNamedTensor(body, &name, &tensor);
        },
        &rest);
    EXPECT_LT(seen, 2);
    EXPECT_EQ(status.ok(), size == 0 || size == first.size()) << size;
  }
}

TEST(WireReader, RefusesWhatIsNotAMessage) {
  for (const std::string& bytes :
       {std::string("\x00", 1), std::string("\x0b\x0c", 2), std::string(12, '\xff'),
        std::string("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10)}) {
    const WirePiece piece = PieceOf(bytes);
    pb::NamedTensorProto rest;
    const Status status = ReadMessageWithTensors(
        WireReader({&piece, 1}), 2, [](WireReader) { return OkStatus(); }, &rest);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
}

TEST(WireWriter, SharesTheBufferOfALargeTensor) {
  const Tensor big(kFloat, Shape({10000}));
  WireWriter writer;
  writer.AppendVarintField(1, 5);
  ASSERT_TRUE(writer.AppendTensorField(2, big).ok());
  writer.AppendBytesField(3, "end");
  ASSERT_EQ(writer.segments().size(), 1u);
  EXPECT_EQ(writer.segments()[0].tensor.raw_data(), big.raw_data());
  EXPECT_LT(writer.text().size(), 100u);
  EXPECT_EQ(writer.size(), writer.Flatten().size());
}

TEST(WireWriter, WritesWhatTheMessageWouldWrite) {
  const Tensor values[] = {Tensor::FromValues<int64_t>({1, -2}), Tensor::String("text"),
                           Tensor::Scalar<bool>(true), Tensor(kFloat, Shape({0, 3}))};
  WireWriter writer;
  for (const Tensor& value : values) {
    ASSERT_TRUE(writer.AppendNamedTensorField(1, "a name", value).ok());
  }
  // Read back field by field by protobuf itself.
  const std::string bytes = writer.Flatten();
  const WirePiece piece = PieceOf(bytes);
  WireReader reader({&piece, 1});
  for (const Tensor& value : values) {
    uint32_t field, type;
    WireReader body;
    ASSERT_TRUE(reader.ReadTag(&field, &type) && reader.ReadBody(&body));
    std::string named;
    ASSERT_TRUE(body.ReadString(&named, body.remaining()));
    pb::NamedTensorProto proto;
    ASSERT_TRUE(proto.ParseFromString(named));
    EXPECT_EQ(proto.name(), "a name");
    const StatusOr<Tensor> read = TensorFromProto(proto.tensor());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(TensorsEqual(*read, value));
  }
  EXPECT_TRUE(reader.AtEnd());
}

TEST(WireWriter, RefusesATensorWithoutAType) {
  WireWriter writer;
  EXPECT_EQ(writer.AppendTensorField(1, Tensor()).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace millrace
