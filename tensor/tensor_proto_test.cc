// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_proto.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

std::string FromHex(std::string_view hex) {
  std::string out;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() == 2) {
      out += static_cast<char>(std::stoi(digits, nullptr, 16));
      digits.clear();
    }
  }
  return out;
}

StatusOr<Tensor> Decode(std::string_view bytes) {
  pb::TensorProto proto;
  EXPECT_TRUE(proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return TensorFromProto(proto);
}

// What a peer that writes around the buffer sends.
std::string EncodeByPrefix(const Tensor& tensor) {
  std::string bytes;
  AppendTensorProtoPrefix(tensor, &bytes);
  bytes.append(static_cast<const char*>(tensor.raw_data()), tensor.num_bytes());
  return bytes;
}

pb::TensorProto ProtoOf(DataType dtype, std::initializer_list<int64_t> dims) {
  pb::TensorProto proto;
  proto.set_dtype(static_cast<pb::DataType>(dtype));
  ShapeToProto(PartialShape(dims), proto.mutable_tensor_shape());
  return proto;
}

void ExpectCannotParse(const pb::TensorProto& proto, std::string_view why) {
  const StatusOr<Tensor> tensor = TensorFromProto(proto);
  ASSERT_TRUE(errors::IsInvalidArgument(tensor.status())) << why;
  EXPECT_EQ(Message(tensor.status()).find("Cannot parse tensor from proto"), 0u) << tensor.status();
  EXPECT_NE(Message(tensor.status()).find(why), std::string_view::npos) << tensor.status();
}

// One tensor of each type, with values at the ends of the range.
std::vector<Tensor> EveryType() {
  ResourceHandle handle;
  handle.device = "/job:a/replica:0/task:0/device:CPU:0";
  handle.container = "c";
  handle.name = "v";
  handle.hash_code = ~0ull;
  handle.type_name = "Var";
  handle.dtypes_and_shapes = {{kFloat, PartialShape({2, -1})}, {kInt32, PartialShape()}};
  return {
      Tensor::FromValues<float>({1.5f, -0.0f, 3e38f}),
      Tensor::FromValues<double>({1.5, -1e300}),
      Tensor::FromValues<int32_t>({INT32_MIN, -1, INT32_MAX}),
      Tensor::FromValues<uint8_t>({0, 255}),
      Tensor::FromValues<int16_t>({INT16_MIN, INT16_MAX}),
      Tensor::FromValues<int8_t>({INT8_MIN, INT8_MAX}),
      Tensor::FromValues<std::string>({"", "ab", std::string("\0\xff", 2), std::string(300, 'x')}),
      Tensor::FromValues<std::complex<float>>({{1, 2}, {3, -4}}),
      Tensor::FromValues<int64_t>({INT64_MIN, INT64_MAX}),
      Tensor::FromValues<bool>({true, false}),
      Tensor::FromValues<BFloat16>({BFloat16(1.0f), BFloat16(-2.0f)}),
      Tensor::FromValues<uint16_t>({0, 65535}),
      Tensor::FromValues<std::complex<double>>({{1, 2}, {3, -4}}),
      Tensor::FromValues<Half>({Half(1.0f), Half(-2.0f)}),
      Tensor::FromValues<Float8E5m2>({Float8E5m2(1.0f), Float8E5m2(-2.0f)}),
      Tensor::FromValues<Float8E4m3fn>({Float8E4m3fn(0.5f), Float8E4m3fn(-448.0f)}),
      Tensor::FromValues<uint8_t>({0x08, 0x07}).BitcastTo(static_cast<DataType>(29)),
      Tensor::FromValues<uint8_t>({0x00, 0x0f}).BitcastTo(static_cast<DataType>(30)),
      Tensor::FromValues<ResourceHandle>({handle, ResourceHandle()}),
      Tensor::FromValues<uint32_t>({0, UINT32_MAX}),
      Tensor::FromValues<uint64_t>({0, UINT64_MAX}),
      Tensor::FromValues<int8_t>({-3, 3}).BitcastTo(DataType::kQint8),
      Tensor::FromValues<uint16_t>({1, 65535}).BitcastTo(DataType::kQuint16),
      Tensor::FromValues<int32_t>({-3, 3}).BitcastTo(DataType::kQint32),
      Tensor::Scalar(7.0f),
      Tensor::String("scalar"),
      Tensor(kFloat, Shape({2, 0, 3})),
      Tensor(kString, Shape({0})),
  };
}

TEST(TensorProtoTest, EveryTypeSurvivesTheRoundTripInEveryForm) {
  for (const Tensor& tensor : EveryType()) {
    pb::TensorProto proto;
    TensorToProto(tensor, &proto);
    StatusOr<Tensor> back = Decode(proto.SerializeAsString());
    ASSERT_TRUE(back.ok()) << tensor.DebugString() << back.status();
    EXPECT_TRUE(TensorsEqual(*back, tensor)) << tensor.DebugString();

    TensorToReadableProto(tensor, &proto);
    EXPECT_TRUE(proto.tensor_content().empty());
    back = Decode(proto.SerializeAsString());
    ASSERT_TRUE(back.ok()) << tensor.DebugString() << back.status();
    EXPECT_TRUE(TensorsEqual(*back, tensor)) << tensor.DebugString();

    if (IsMemcpyable(tensor.dtype())) {
      back = Decode(EncodeByPrefix(tensor));
      ASSERT_TRUE(back.ok()) << tensor.DebugString() << back.status();
      EXPECT_TRUE(TensorsEqual(*back, tensor)) << tensor.DebugString();
    }
  }
}

// The bytes that a TensorFlow 2.21 worker answers with.
TEST(TensorProtoTest, PrefixFormIsTensorFlowsByteForByte) {
  EXPECT_EQ(EncodeByPrefix(Tensor::FromValues<float>({1, 2, 3})),
            FromHex("0801 1204 1202 0803 220c 0000803f 00000040 00004040"));
  EXPECT_EQ(EncodeByPrefix(Tensor::Scalar(int32_t{7})), FromHex("0803 2204 07000000"))
      << "a scalar has no shape at all";
  EXPECT_EQ(EncodeByPrefix(Tensor(kFloat, Shape({0}))), FromHex("0801 1204 1202 0800 2200"))
      << "an empty content is present";
  EXPECT_EQ(EncodeByPrefix(Tensor(kUint8, Shape({300}))).substr(0, 12),
            FromHex("0804 1205 1203 08ac02 22ac02"))
      << "sizes take as many bytes as they need";
}

TEST(TensorProtoTest, StringsAreTensorFlowsByteForByte) {
  pb::TensorProto proto;
  TensorToProto(Tensor::FromValues<std::string>({"ab", "c"}), &proto);
  EXPECT_EQ(proto.SerializeAsString(), FromHex("0807 1204 1202 0802 2205 02016162 63"));
}

TEST(TensorProtoTest, ShortListRepeatsItsLastValueAndAnEmptyOneMeansZeros) {
  pb::TensorProto proto = ProtoOf(kFloat, {4});
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(proto), Tensor::FromValues<float>({0, 0, 0, 0})));
  proto.add_float_val(1);
  proto.add_float_val(2);
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(proto), Tensor::FromValues<float>({1, 2, 2, 2})));

  pb::TensorProto strings = ProtoOf(kString, {2});
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(strings), Tensor(kString, Shape({2}))));
  strings.add_string_val("x");
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(strings), Tensor::FromValues<std::string>({"x", "x"})));

  pb::TensorProto complex = ProtoOf(kComplex64, {3});
  for (const float v : {1.0f, 2.0f, 3.0f}) complex.add_scomplex_val(v);  // half a pair too many
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(complex),
                           Tensor::FromValues<std::complex<float>>({{1, 2}, {1, 2}, {1, 2}})));
}

TEST(TensorProtoTest, ExtraValuesAreIgnoredAndWideOnesCut) {
  pb::TensorProto proto = ProtoOf(kInt8, {1});
  proto.add_int_val(300);
  proto.add_int_val(5);
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(proto), Tensor::FromValues<int8_t>({44})));
}

TEST(TensorProtoTest, ContentWinsOverTheList) {
  pb::TensorProto proto = ProtoOf(kInt32, {1});
  proto.add_int_val(5);
  proto.set_tensor_content(FromHex("07000000"));
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(proto), Tensor::FromValues<int32_t>({7})));
}

TEST(TensorProtoTest, AnyNonZeroByteIsTrue) {
  pb::TensorProto proto = ProtoOf(kBool, {3});
  proto.set_tensor_content(FromHex("00 01 ff"));
  EXPECT_TRUE(TensorsEqual(*TensorFromProto(proto), Tensor::FromValues<bool>({false, true, true})));
}

pb::VariantTensorDataProto IntObject(char value) {
  pb::VariantTensorDataProto object;
  object.set_type_name("int");
  object.set_metadata(std::string({value, 0, 0, 0}));
  return object;
}

TEST(TensorProtoTest, ObjectsOfVariantsStayAsTheyCame) {
  pb::TensorProto proto = ProtoOf(kVariant, {3});
  *proto.add_variant_val() = IntObject(3);
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  const auto* const objects = static_cast<const RefPtr<RefCounted>*>(tensor->raw_data());
  EXPECT_NE(objects[0].get(), nullptr);
  EXPECT_EQ(objects[1].get(), nullptr) << "an object is not repeated";
  pb::TensorProto written;
  TensorToProto(*tensor, &written);
  ASSERT_EQ(written.variant_val_size(), 3);
  EXPECT_EQ(written.variant_val(0).SerializeAsString(), IntObject(3).SerializeAsString());
  EXPECT_EQ(written.variant_val(2).ByteSizeLong(), 0u);
  // As TensorFlow's workers send them: framed like strings.
  proto.clear_variant_val();
  const std::string bytes = IntObject(5).SerializeAsString();
  proto.set_tensor_content(std::string({static_cast<char>(bytes.size()), 0, 0}) + bytes);
  tensor = TensorFromProto(proto);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  TensorToProto(*tensor, &written);
  EXPECT_EQ(written.variant_val(0).metadata()[0], 5);
}

TEST(TensorProtoTest, RefusesObjectsThatCannotBe) {
  pb::TensorProto proto = ProtoOf(kVariant, {});
  proto.add_variant_val()->set_metadata("x");
  ExpectCannotParse(proto, "no name");
  proto.set_tensor_content("xyz");
  ExpectCannotParse(proto, "are left");
  proto = ProtoOf(kVariant, {int64_t{1} << 40});
  ExpectCannotParse(proto, "too large");
  // One that has no form in messages.
  class Private : public RefCounted {};
  Tensor tensor(kVariant, Shape());
  static_cast<RefPtr<RefCounted>*>(tensor.raw_data())[0] = RefPtr<RefCounted>(new Private);
  TensorToProto(tensor, &proto);
  ExpectCannotParse(proto, "stay in the process");
}

TEST(TensorProtoTest, RefusesTypesThatTensorsCannotHave) {
  for (const int number : {0, 101, 109, 31, 77, -3}) {
    pb::TensorProto proto = ProtoOf(static_cast<DataType>(number), {1});
    ExpectCannotParse(proto, "type");
  }
}

TEST(TensorProtoTest, RefusesShapesThatAreNotKnown) {
  ExpectCannotParse(ProtoOf(kFloat, {-1}), "negative");
  pb::TensorProto proto = ProtoOf(kFloat, {});
  proto.mutable_tensor_shape()->set_unknown_rank(true);
  ExpectCannotParse(proto, "unknown rank");
  const int64_t big = int64_t{1} << 40;
  ExpectCannotParse(ProtoOf(kFloat, {big, big}), "63 bits");
}

TEST(TensorProtoTest, RefusesContentOfTheWrongSize) {
  for (const char* content : {"00", "0000000000", "000000000000000000"}) {
    pb::TensorProto proto = ProtoOf(kInt32, {1});
    proto.set_tensor_content(FromHex(content));
    ExpectCannotParse(proto, "bytes");
  }
  pb::TensorProto empty = ProtoOf(kInt32, {0});
  empty.set_tensor_content("x");
  ExpectCannotParse(empty, "bytes");
}

TEST(TensorProtoTest, ChecksSizesBeforeItTakesMemory) {
  const int64_t big = int64_t{1} << 40;
  pb::TensorProto proto = ProtoOf(kFloat, {big});
  proto.add_float_val(1);
  ExpectCannotParse(proto, "too large");
  pb::TensorProto strings = ProtoOf(kString, {big});
  strings.set_tensor_content("xx");
  ExpectCannotParse(strings, "bytes");
}

TEST(TensorProtoTest, RefusesStringsWhoseLengthsDoNotAddUp) {
  const struct {
    const char* content;
    const char* why;
  } kCases[] = {
      {"0201 6162", "left"},                   // one byte missing
      {"0201 61626364", "left over"},          // one byte too many
      {"02", "bytes"},                         // not even the lengths
      {"ffffffffffffffffff01 01 61", "left"},  // the longest length
      {"ffffffffffffffffffff 01", "damaged"},  // longer than a varint
      {"0280", "damaged"},                     // ends inside a length
  };
  for (const auto& c : kCases) {
    pb::TensorProto proto = ProtoOf(kString, {2});
    proto.set_tensor_content(FromHex(c.content));
    ExpectCannotParse(proto, c.why);
  }
}

TEST(TensorProtoTest, HandlesAreAlsoReadFramed) {
  pb::ResourceHandleProto handle;
  handle.set_name("v");
  const std::string bytes = handle.SerializeAsString();
  pb::TensorProto proto = ProtoOf(kResource, {1});
  proto.set_tensor_content(std::string(1, static_cast<char>(bytes.size())) + bytes);
  const StatusOr<Tensor> tensor = TensorFromProto(proto);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->flat<ResourceHandle>()[0].name, "v");
  proto.set_tensor_content(FromHex("02 ffff"));
  ExpectCannotParse(proto, "damaged");
}

TEST(ShapeProtoTest, ShapesSurviveTheRoundTrip) {
  for (const PartialShape& shape :
       {PartialShape(), PartialShape({}), PartialShape({-1, 0, 784}), PartialShape({1})}) {
    pb::TensorShapeProto proto;
    ShapeToProto(shape, &proto);
    EXPECT_EQ(ShapeFromProto(proto), shape) << shape.DebugString();
  }
}

}  // namespace
}  // namespace millrace
