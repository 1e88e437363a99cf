// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ops/attr_map.h"
#include "ops/op_def_builder.h"
#include "ops/op_registry.h"
#include "ops/shape_inference.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(const Status& status) { return std::string(status.message()); }

pb::OpDef Parse(const OpSpec& spec) {
  StatusOr<pb::OpDef> def = ParseOpSpec(spec);
  EXPECT_TRUE(def.ok()) << def.status();
  return def.ok() ? *def : pb::OpDef();
}

TEST(AttrMapTest, KeepsOneValuePerNameSortedByName) {
  AttrMap attrs;
  attrs.Set("b", 1);
  attrs.Set("a", "x");
  attrs.Set("b", 2);
  std::vector<std::string> names;
  for (const auto& [name, value] : attrs) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("a", "b"));
  EXPECT_EQ(attrs.Get<int64_t>("b").value(), 2);
  EXPECT_TRUE(attrs.Erase("a"));
  EXPECT_FALSE(attrs.Erase("a"));
}

TEST(AttrMapTest, AWrongKindIsNamed) {
  AttrMap attrs;
  attrs.Set("N", "three");
  const Status status = attrs.Get<int64_t>("N").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), HasSubstr("'N'"));
  EXPECT_THAT(Text(attrs.Get<bool>("gone").status()), HasSubstr("'gone'"));
  EXPECT_EQ(attrs.GetOr<int64_t>("gone", 7), 7);
}

TEST(AttrMapTest, AnEmptyListIsAnyVector) {
  AttrMap attrs;
  attrs.Set("list", AttrValue(AttrValue::EmptyList()));
  EXPECT_TRUE(attrs.Get<std::vector<float>>("list").value().empty());
  EXPECT_TRUE(attrs.Get<std::vector<std::string>>("list").value().empty());
}

TEST(AttrMapTest, ANumberThatDoesNotFitInt32IsRefused) {
  AttrMap attrs;
  attrs.Set("big", int64_t{1} << 40);
  EXPECT_FALSE(attrs.Get<int32_t>("big").ok());
  EXPECT_TRUE(attrs.Get<int64_t>("big").ok());
}

TEST(AttrProtoTest, EveryKindComesBackAsItWent) {
  FunctionName function{"f", {}};
  function.attrs["T"] = kFloat;
  const AttrValue values[] = {AttrValue("text"),
                              AttrValue(-5),
                              AttrValue(0.5f),
                              AttrValue(true),
                              AttrValue(kInt32),
                              AttrValue(PartialShape({-1, 3})),
                              AttrValue(PartialShape()),
                              AttrValue(Tensor::FromValues<float>({1, 2})),
                              AttrValue(function),
                              AttrValue(AttrPlaceholder{"T"}),
                              AttrValue(AttrValue::EmptyList()),
                              AttrValue(std::vector<int64_t>{1, 2}),
                              AttrValue(std::vector<std::string>{"a", ""}),
                              AttrValue(std::vector<DataType>{kFloat, kString}),
                              AttrValue(std::vector<PartialShape>{PartialShape({2})})};
  for (const AttrValue& value : values) {
    pb::AttrValue proto;
    AttrToProto(value, &proto);
    const StatusOr<AttrValue> back = AttrFromProto(proto);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == value) << value.DebugString();
  }
}

TEST(AttrProtoTest, AListOfTwoTypesIsRefused) {
  pb::AttrValue proto;
  proto.mutable_list()->add_i(1);
  proto.mutable_list()->add_f(1);
  EXPECT_EQ(AttrFromProto(proto).status().code(), StatusCode::kInvalidArgument);
}

TEST(OpSpecTest, ReadsEveryFormOfArgumentAndAttribute) {
  const pb::OpDef def = Parse({"Sample", "a: T, b: Ref(float), c: N * T, d: Ts", "o: int32",
                               "T: {float, int32} = float; N: int >= 1; Ts: list(type) >= 0; "
                               "mode: {'a', 'b'} = 'a'; s: shape = ?; l: list(int) = [1, 2]"});
  ASSERT_EQ(def.input_arg_size(), 4);
  EXPECT_EQ(def.input_arg(0).type_attr(), "T");
  EXPECT_TRUE(def.input_arg(1).is_ref());
  EXPECT_EQ(def.input_arg(2).number_attr(), "N");
  EXPECT_EQ(def.input_arg(3).type_list_attr(), "Ts");
  ASSERT_EQ(def.attr_size(), 6);
  EXPECT_EQ(def.attr(0).default_value().type(), pb::DT_FLOAT);
  EXPECT_EQ(def.attr(1).minimum(), 1);
  EXPECT_EQ(def.attr(3).allowed_values().list().s_size(), 2);
  EXPECT_TRUE(def.attr(4).default_value().shape().unknown_rank());
  EXPECT_EQ(def.attr(5).default_value().list().i_size(), 2);
}

TEST(OpSpecTest, SaysWhichTextItCannotRead) {
  const Status status = ParseOpSpec({"Odd", "x: flaot", "", ""}).status();
  EXPECT_THAT(Text(status), HasSubstr("Odd"));
  EXPECT_THAT(Text(status), HasSubstr("x: flaot"));
}

TEST(OpRegistryTest, SuggestsTheNearestName) {
  OpRegistry ops;
  const OpSpec specs[] = {{"MatMul", "", "", ""}, {"Identity", "", "", ""}};
  ASSERT_TRUE(RegisterOps(ops, specs).ok());
  const Status status = ops.Lookup("MatMull").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(Text(status), HasSubstr("Op type not registered 'MatMull' in binary running on "));
  EXPECT_THAT(Text(status), HasSubstr("'MatMul'"));
}

TEST(OpRegistryTest, RefusesDefinitionsThatContradictThemselves) {
  OpRegistry ops;
  const OpSpec bad_name[] = {{"lower", "", "", ""}};
  EXPECT_EQ(RegisterOps(ops, bad_name).code(), StatusCode::kInvalidArgument);
  const OpSpec twice[] = {{"A", "x: float, x: float", "", ""}};
  EXPECT_EQ(RegisterOps(ops, twice).code(), StatusCode::kInvalidArgument);
  const OpSpec bad_default[] = {{"B", "", "", "T: {float} = int32"}};
  EXPECT_EQ(RegisterOps(ops, bad_default).code(), StatusCode::kInvalidArgument);
}

TEST(SignatureTest, ExpandsLengthsListsAndReferences) {
  const pb::OpDef def =
      Parse({"Sample", "a: Ref(T), b: N * T, c: Ts", "o: T", "T: type; N: int; Ts: list(type)"});
  AttrMap attrs;
  attrs.Set("T", kFloat);
  attrs.Set("N", 2);
  attrs.Set("Ts", std::vector<DataType>{kInt32, kBool});
  std::vector<DataType> inputs, outputs;
  ASSERT_TRUE(ExpandTypes(def, attrs, &inputs, &outputs).ok());
  EXPECT_THAT(inputs, ElementsAre(MakeRefType(kFloat), kFloat, kFloat, kInt32, kBool));
  EXPECT_THAT(outputs, ElementsAre(kFloat));
  int begin, end;
  ASSERT_TRUE(ArgRange(def, attrs, "c", /*is_input=*/true, &begin, &end).ok());
  EXPECT_EQ(begin, 3);
  EXPECT_EQ(end, 5);
  attrs.Set("N", -1);
  EXPECT_EQ(ExpandTypes(def, attrs, &inputs, &outputs).code(), StatusCode::kInvalidArgument);
  attrs.Set("N", int64_t{1} << 40);
  EXPECT_EQ(ExpandTypes(def, attrs, &inputs, &outputs).code(), StatusCode::kInvalidArgument);
}

TEST(SignatureTest, DefaultsComeAndGo) {
  const pb::OpDef def = Parse({"Sample", "", "", "a: int = 3; b: bool = false; T: type"});
  AttrMap attrs;
  attrs.Set("b", true);
  AddDefaultAttrs(def, &attrs);
  EXPECT_EQ(attrs.Get<int64_t>("a").value(), 3);
  EXPECT_FALSE(attrs.Has("T"));
  StripDefaultAttrs(def, &attrs);
  EXPECT_FALSE(attrs.Has("a"));
  EXPECT_TRUE(attrs.Has("b"));
}

TEST(SignatureTest, AttributesAreHeldToTheDefinition) {
  const pb::OpDef def = Parse({"Sample", "", "", "N: int >= 1; T: {float, int32}"});
  AttrMap attrs;
  attrs.Set("N", 1);
  EXPECT_THAT(Text(ValidateAttrs(def, attrs)), HasSubstr("NodeDef missing attr 'T'"));
  attrs.Set("T", kBool);
  EXPECT_THAT(Text(ValidateAttrs(def, attrs)),
              HasSubstr("Value for attr 'T' of bool is not in the list of allowed values"));
  attrs.Set("T", kInt32);
  attrs.Set("unknown", 1);
  EXPECT_TRUE(ValidateAttrs(def, attrs).ok());
  attrs.Set("N", 0);
  EXPECT_THAT(Text(ValidateAttrs(def, attrs)), HasSubstr("must be at least minimum 1"));
  attrs.Set("N", "1");
  EXPECT_THAT(Text(ValidateAttrs(def, attrs)), HasSubstr("AttrValue had value with type 'string'"));
}

TEST(BroadcastShapesTest, UnknownSizesGiveWayOnlyToSizesOtherThanOne) {
  EXPECT_EQ(BroadcastShapes({-1, 3}, {2, 1}).value(), PartialShape({2, 3}));
  EXPECT_EQ(BroadcastShapes({-1}, {1}).value(), PartialShape({-1}));
  EXPECT_EQ(BroadcastShapes({4}, {5, 1}).value(), PartialShape({5, 4}));
  EXPECT_EQ(BroadcastShapes(PartialShape(), {1}).value(), PartialShape());
  EXPECT_EQ(BroadcastShapes({2}, {3}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
