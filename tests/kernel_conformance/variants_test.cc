// SPDX-License-Identifier: Apache-2.0
// Elements of variants that come in graphs, messages and files: numbers, lists and optionals in
// TensorFlow's form.
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "kernels/common/variant_codec.h"
#include "tensor/tensor_proto.h"
#include "tests/kernel_conformance/node_runner.h"

namespace millrace::testing {
namespace {

constexpr char kGolden[] = "tests/goldens/checkpoints/variants";  // TensorFlow 2.21 wrote it

void AddType(pb::NodeDef* node, const char* name, DataType type) {
  (*node->mutable_attr())[name] = TypeAttr(type);
}

pb::NodeDef Node(const std::string& name, const std::string& op,
                 const std::vector<std::string>& inputs) {
  pb::NodeDef node;
  node.set_name(name);
  node.set_op(op);
  for (const std::string& input : inputs) node.add_input(input);
  return node;
}

pb::NodeDef Const(const std::string& name, const pb::TensorProto& value) {
  pb::NodeDef node = Node(name, "Const", {});
  AddType(&node, "dtype", static_cast<DataType>(value.dtype()));
  *(*node.mutable_attr())["value"].mutable_tensor() = value;
  return node;
}
pb::NodeDef Const(const std::string& name, const Tensor& value) {
  pb::TensorProto proto;
  TensorToProto(value, &proto);
  return Const(name, proto);
}

pb::TensorProto Object(const std::string& type_name, const std::string& metadata) {
  pb::TensorProto proto;
  proto.set_dtype(pb::DT_VARIANT);
  proto.mutable_tensor_shape();
  pb::VariantTensorDataProto* const object = proto.add_variant_val();
  object->set_type_name(type_name);
  object->set_metadata(metadata);
  return proto;
}

Tensor Evaluate(const std::vector<pb::NodeDef>& nodes) {
  pb::GraphDef graph;
  for (const pb::NodeDef& node : nodes) *graph.add_node() = node;
  return RunGraph(graph, {}, nodes.back().name(), 0);
}

// One entry of the checkpoint, as node "read".
std::vector<pb::NodeDef> ReadNodes(const std::string& key) {
  pb::NodeDef read = Node("read", "RestoreV2", {"prefix", "names", "slices"});
  (*read.mutable_attr())["dtypes"].mutable_list()->add_type(pb::DT_VARIANT);
  return {Const("prefix", Tensor::String(kGolden)),
          Const("names", Tensor::FromValues<std::string>({key})),
          Const("slices", Tensor::FromValues<std::string>({""})), read};
}

// The list at `input`, as a tensor.
std::vector<pb::NodeDef> StackNodes(const std::string& input) {
  pb::NodeDef stack = Node("stack", "TensorListStack", {input, "element_shape"});
  AddType(&stack, "element_dtype", kFloat);
  return {Const("element_shape", Tensor::FromValues<int32_t>({2})), stack};
}

std::vector<pb::NodeDef> operator+(std::vector<pb::NodeDef> a, const std::vector<pb::NodeDef>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(VariantsTest, ListsOfACheckpointOfTensorFlowsAreLists) {
  EXPECT_EQ(Evaluate(ReadNodes("list") + StackNodes("read")).DebugString(),
            "Tensor<float [3,2]: 0 0 1.5 -2 0 0>");
  pb::NodeDef item = Node("item", "TensorListGetItem", {"read", "zero", "scalar"});
  AddType(&item, "element_dtype", kVariant);
  const std::vector<pb::NodeDef> first = {Const("zero", Tensor::Scalar(int32_t{0})),
                                          Const("scalar", Tensor(kInt32, Shape({0}))), item};
  EXPECT_EQ(Evaluate(ReadNodes("nested") + first + StackNodes("item")).DebugString(),
            "Tensor<float [3,2]: 0 0 1.5 -2 0 0>");
}

TEST(VariantsTest, OptionalsOfACheckpointOfTensorFlowsAreOptionals) {
  for (const bool has_value : {false, true}) {
    const Tensor got =
        Evaluate(ReadNodes(has_value ? "optional" : "none") +
                 std::vector<pb::NodeDef>{Node("has", "OptionalHasValue", {"read"})});
    ASSERT_EQ(got.dtype(), kBool);
    EXPECT_EQ(got.scalar<bool>(), has_value);
  }
  pb::NodeDef value = Node("value", "OptionalGetValue", {"read"});
  for (const auto type : {pb::DT_INT32, pb::DT_STRING}) {
    (*value.mutable_attr())["output_types"].mutable_list()->add_type(type);
    (*value.mutable_attr())["output_shapes"].mutable_list()->add_shape();
  }
  EXPECT_EQ(Evaluate(ReadNodes("optional") + std::vector<pb::NodeDef>{value}).DebugString(),
            "Tensor<int32 []: 7>");
}

int32_t IntOf(const Variant& object) {
  const auto* const plain = dynamic_cast<const PlainValue*>(object.get());
  return plain != nullptr && plain->type_name == "int" ? plain->value.scalar<int32_t>() : -1;
}

// What an initial value of a variable of variants goes through.
TEST(VariantsTest, AreFilledGatheredAddedAndMadeZero) {
  pb::NodeDef fill = Node("fill", "Fill", {"dims", "value"});
  AddType(&fill, "T", kVariant);
  AddType(&fill, "index_type", kInt32);
  pb::NodeDef gather = Node("gather", "GatherV2", {"fill", "dims", "axis"});
  AddType(&gather, "Tparams", kVariant);
  AddType(&gather, "Tindices", kInt32);
  AddType(&gather, "Taxis", kInt32);
  pb::NodeDef sum = Node("sum", "AddN", {"gather", "gather"});
  AddType(&sum, "T", kVariant);
  (*sum.mutable_attr())["N"].set_i(2);
  std::vector<pb::NodeDef> nodes = {
      Const("dims", Tensor::FromValues<int32_t>({3})), Const("axis", Tensor::Scalar(int32_t{0})),
      Const("value", Object("int", std::string("\5\0\0\0", 4))), fill};
  const Tensor filled = Evaluate(nodes);
  ASSERT_EQ(filled.shape(), Shape({3}));
  EXPECT_EQ(IntOf(filled.data<Variant>()[2]), 5);
  nodes[0] = Const("dims", Tensor::FromValues<int32_t>({1}));
  EXPECT_EQ(IntOf(Evaluate(nodes + std::vector<pb::NodeDef>{Const("dims2",
                                                                  Tensor::FromValues<int32_t>({0})),
                                                            [&] {
                                                              pb::NodeDef node = gather;
                                                              node.set_input(1, "dims2");
                                                              return node;
                                                            }(),
                                                            sum})
                      .data<Variant>()[0]),
            10);
  pb::NodeDef zeros = Node("zeros", "ZerosLike", {"fill"});
  AddType(&zeros, "T", kVariant);
  EXPECT_EQ(IntOf(Evaluate(nodes + std::vector<pb::NodeDef>{zeros}).data<Variant>()[0]), 0);
}

std::string MessageOf(const Tensor& tensor) {
  const StatusOr<Tensor> encoded = EncodedObjects(tensor);
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  pb::TensorProto proto;
  if (encoded.ok()) TensorToProto(*encoded, &proto);
  return proto.SerializeAsString();
}

// Goes out and comes back as in messages between tasks.
TEST(VariantsTest, ComeBackFromMessagesAsTheyWere) {
  for (const char* key : {"list", "nested", "none", "optional", "numbers"}) {
    const Tensor there = Evaluate(ReadNodes(key));
    pb::TensorProto proto;
    ASSERT_TRUE(proto.ParseFromString(MessageOf(there)));
    const Tensor back = Evaluate({Const("back", proto)});
    ASSERT_EQ(back.shape(), there.shape()) << key;
    EXPECT_EQ(MessageOf(back), proto.SerializeAsString()) << key;
  }
}

TEST(VariantsTest, WhatIsDamagedIsRefused) {
  const std::string huge(9, '\xff');
  const pb::TensorProto damaged[] = {
      Object("int", "abc"),
      Object("double", "abcd"),
      Object("bool", ""),
      Object("tensorflow::Tensor", ""),
      Object("tensorflow::data::Optional", ""),
      Object("tensorflow::TensorList", ""),
      Object("tensorflow::TensorList", huge + "\1"),                   // so many are missing
      Object("tensorflow::TensorList", "\2\1\0" + huge),               // not in order
      Object("tensorflow::TensorList", "\1\7\1\1"),                    // not in the list
      Object("tensorflow::TensorList", std::string("\0", 1)),          // no type
      Object("tensorflow::TensorList", std::string("\0\1\1\xff", 4)),  // no shape
  };
  for (const pb::TensorProto& proto : damaged) {
    EXPECT_NONFATAL_FAILURE(Evaluate({Const("c", proto)}), "is damaged");
  }
  EXPECT_NONFATAL_FAILURE(Evaluate({Const("c", Object("tensorflow::Unheard", "x"))}),
                          "Could not decode variant with type_name: \"tensorflow::Unheard\"");
}

TEST(VariantsTest, ListsMayNotStandForMoreThanMemoryHas) {
  pb::TensorProto proto = Object("tensorflow::TensorList", std::string("\0\1\1\x18\1", 5));
  for (int i = 0; i < 100; ++i) {
    pb::TensorProto* const element = proto.mutable_variant_val(0)->add_tensors();
    element->set_dtype(pb::DT_FLOAT);
    element->mutable_tensor_shape()->add_dim()->set_size(int64_t{1} << 26);
  }
  EXPECT_NONFATAL_FAILURE(Evaluate({Const("c", proto)}), "too large to be filled");
}

TEST(VariantsTest, ObjectsWithinObjectsEndSomewhere) {
  pb::TensorProto proto = Object("int", std::string(4, '\0'));
  for (int i = 0; i < 45; ++i) {
    pb::TensorProto around = Object("tensorflow::data::Optional", "\1");
    *around.mutable_variant_val(0)->add_tensors() = proto;
    proto = around;
  }
  EXPECT_NONFATAL_FAILURE(Evaluate({Const("c", proto)}), "more than 40 deep");
}

}  // namespace
}  // namespace millrace::testing
