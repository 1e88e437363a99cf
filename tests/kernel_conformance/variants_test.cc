// SPDX-License-Identifier: Apache-2.0
// Elements of variants that come in graphs, messages and files: numbers, lists and optionals in
// TensorFlow's form.
#include <cstring>
#include <string>
#include <vector>

#include "base/strings.h"
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

// A list that is empty, a list of it, and so on; the last is node "list<count - 1>".
std::vector<pb::NodeDef> ListsWithinLists(int count, int times) {
  std::vector<pb::NodeDef> nodes = {Const("any", Tensor::Scalar(int32_t{-1}))};
  for (int i = 0; i < count; ++i) {
    std::string last = StrCat(i == 0 ? "list" : "empty", i);
    nodes.push_back(Node(last, "EmptyTensorList", {"any", "any"}));
    AddType(&nodes.back(), "element_dtype", kVariant);
    AddType(&nodes.back(), "shape_type", kInt32);
    for (int k = 0; i > 0 && k < times; ++k) {
      const std::string name = k + 1 == times ? StrCat("list", i) : StrCat("part", i, "_", k);
      nodes.push_back(Node(name, "TensorListPushBack", {last, StrCat("list", i - 1)}));
      AddType(&nodes.back(), "element_dtype", kVariant);
      last = name;
    }
  }
  return nodes;
}

// Released one from within the other, they would use up the stack.
TEST(VariantsTest, ListsWithinListsEndSomewhere) {
  EXPECT_EQ(Evaluate(ListsWithinLists(1000, 1)).dtype(), kVariant);
  EXPECT_NONFATAL_FAILURE(Evaluate(ListsWithinLists(1001, 1)), "more than 1000 deep");
}

TEST(VariantsTest, ListsWithinOptionalsWithinListsEndSomewhere) {
  const auto of_both = [](int pairs) {
    std::vector<pb::NodeDef> nodes = {Const("any", Tensor::Scalar(int32_t{-1})),
                                      Const("it", Tensor::Scalar(1.0f))};
    for (int i = 0; i < pairs; ++i) {
      nodes.push_back(Node(StrCat("optional", i), "OptionalFromValue",
                           {i == 0 ? "it" : StrCat("list", i - 1)}));
      (*nodes.back().mutable_attr())["Toutput_types"].mutable_list()->add_type(
          i == 0 ? pb::DT_FLOAT : pb::DT_VARIANT);
      nodes.push_back(Node(StrCat("empty", i), "EmptyTensorList", {"any", "any"}));
      AddType(&nodes.back(), "element_dtype", kVariant);
      AddType(&nodes.back(), "shape_type", kInt32);
      nodes.push_back(Node(StrCat("list", i), "TensorListPushBack",
                           {StrCat("empty", i), StrCat("optional", i)}));
      AddType(&nodes.back(), "element_dtype", kVariant);
    }
    return nodes;
  };
  EXPECT_EQ(Evaluate(of_both(500)).dtype(), kVariant);
  EXPECT_NONFATAL_FAILURE(Evaluate(of_both(501)), "more than 1000 deep");
}

// Data sets of lists of data sets are both.
TEST(VariantsTest, ListsWithinDataSetsEndSomewhere) {
  const auto of_both = [](int pairs) {
    std::vector<pb::NodeDef> nodes = {Const("any", Tensor::Scalar(int32_t{-1})),
                                      Const("it", Tensor::Scalar(1.0f))};
    for (int i = 0; i < pairs; ++i) {
      nodes.push_back(
          Node(StrCat("data", i), "TensorDataset", {i == 0 ? "it" : StrCat("list", i - 1)}));
      auto& attrs = *nodes.back().mutable_attr();
      attrs["Toutput_types"].mutable_list()->add_type(i == 0 ? pb::DT_FLOAT : pb::DT_VARIANT);
      attrs["output_shapes"].mutable_list()->add_shape();
      nodes.push_back(Node(StrCat("empty", i), "EmptyTensorList", {"any", "any"}));
      AddType(&nodes.back(), "element_dtype", kVariant);
      AddType(&nodes.back(), "shape_type", kInt32);
      nodes.push_back(
          Node(StrCat("list", i), "TensorListPushBack", {StrCat("empty", i), StrCat("data", i)}));
      AddType(&nodes.back(), "element_dtype", kVariant);
    }
    return nodes;
  };
  EXPECT_EQ(Evaluate(of_both(500)).dtype(), kVariant);
  EXPECT_NONFATAL_FAILURE(Evaluate(of_both(501)), "stages");
}

// Sparse tensors may have variants for their values: packed ones.
TEST(VariantsTest, SparseTensorsPackedWithinEachOtherEndSomewhere) {
  const auto packed = [](int count) {
    std::vector<pb::NodeDef> nodes = {
        Const("indices", Tensor::FromValues<int64_t>({0, 1, 2}, Shape({3, 1}))),
        Const("values", Tensor::FromValues<float>({1, 2, 3})),
        Const("shape", Tensor::FromValues<int64_t>({3}))};
    for (int i = 0; i < count; ++i) {
      nodes.push_back(Node(StrCat("packed", i), "SerializeSparse",
                           {"indices", i == 0 ? "values" : StrCat("packed", i - 1), "shape"}));
      AddType(&nodes.back(), "T", i == 0 ? kFloat : kVariant);
      AddType(&nodes.back(), "out_type", kVariant);
    }
    return nodes;
  };
  EXPECT_EQ(Evaluate(packed(1000)).dtype(), kVariant);
  EXPECT_NONFATAL_FAILURE(Evaluate(packed(1001)), "more than 1000 deep");
}

// As a message it would hold the innermost list 2^29 times.
TEST(VariantsTest, ListsThatHoldAnotherTwiceAreNotWrittenWithoutEnd) {
  const Status status = EncodedObjects(Evaluate(ListsWithinLists(30, 2))).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.ToString().find("too large for a message or a file"), std::string::npos);
}

TEST(VariantsTest, ListsThatHoldAnotherTwiceHaveZerosAndSums) {
  for (const char* op : {"ZerosLike", "AddN"}) {
    std::vector<pb::NodeDef> nodes = ListsWithinLists(90, 2);
    nodes.push_back(Node("made", op, {"list89"}));
    AddType(&nodes.back(), "T", kVariant);
    if (op == std::string("AddN")) {
      nodes.back().add_input("list89");
      (*nodes.back().mutable_attr())["N"].set_i(2);
    }
    nodes.push_back(Node("length", "TensorListLength", {"made"}));
    EXPECT_EQ(Evaluate(nodes).DebugString(), "Tensor<int32 []: 2>") << op;
  }
}

// A string of it would have been empty.
TEST(VariantsTest, TensorsThatNoMessageHoldsAreNoTexts) {
  pb::NodeDef text = Node("text", "SerializeTensor", {});
  AddType(&text, "T", kUint8);
  EXPECT_NONFATAL_FAILURE(RunNode(text, {Tensor(kUint8, Shape({int64_t{1} << 31}))}, 1),
                          "a message of 2147483648 bytes; it may have 2 GiB at most");
}

TEST(VariantsTest, AreTextsAndBack) {
  pb::NodeDef text = Node("text", "SerializeTensor", {"read"});
  AddType(&text, "T", kVariant);
  pb::NodeDef back = Node("back", "ParseTensor", {"text"});
  AddType(&back, "out_type", kVariant);
  EXPECT_EQ(Evaluate(ReadNodes("list") + std::vector<pb::NodeDef>{text, back} + StackNodes("back"))
                .DebugString(),
            "Tensor<float [3,2]: 0 0 1.5 -2 0 0>");
  pb::TensorProto damaged = Object("tensorflow::TensorList", "");
  back.set_input(0, "damaged");
  EXPECT_NONFATAL_FAILURE(
      Evaluate({Const("damaged", Tensor::String(damaged.SerializeAsString())), back}),
      "is damaged");
}

}  // namespace
}  // namespace millrace::testing
