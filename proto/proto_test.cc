// SPDX-License-Identifier: Apache-2.0
// The messages read what TensorFlow writes, and write the same bytes as it does.

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "proto/config.pb.h"
#include "proto/graph.pb.h"
#include "proto/master.pb.h"
#include "proto/meta_graph.pb.h"
#include "proto/op_def.pb.h"
#include "proto/tensor.pb.h"
#include "proto/worker.pb.h"

namespace millrace {
namespace {

// The bytes of a text like "0a 01 61".
std::string FromHex(const std::string& hex) {
  std::string bytes;
  std::istringstream words(hex);
  for (std::string word; words >> word;) {
    bytes.push_back(static_cast<char>(std::stoi(word, nullptr, 16)));
  }
  return bytes;
}

const pb::OpDef* FindOp(const pb::OpList& list, const std::string& name) {
  for (const pb::OpDef& op : list.op()) {
    if (op.name() == name) return &op;
  }
  return nullptr;
}

const pb::OpDef::AttrDef* FindAttr(const pb::OpDef& op, const std::string& name) {
  for (const pb::OpDef::AttrDef& attr : op.attr()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

class GoldenOpsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file("tests/goldens/opdefs/ops.pb", std::ios::binary);
    ASSERT_TRUE(file) << "the golden file is not among the test's data";
    std::stringstream content;
    content << file.rdbuf();
    bytes_ = content.str();
    ASSERT_TRUE(ops_.ParseFromString(bytes_));
  }

  std::string bytes_;
  pb::OpList ops_;
};

TEST_F(GoldenOpsTest, EveryFieldOfTheCoreOpsIsKnown) {
  EXPECT_GT(ops_.op_size(), 300);
  // A field that we do not know would come out at another place of its message.
  EXPECT_EQ(ops_.SerializeAsString(), bytes_);
  for (const pb::OpDef& op : ops_.op()) {
    EXPECT_EQ(op.GetReflection()->GetUnknownFields(op).field_count(), 0) << op.name();
  }
}

TEST_F(GoldenOpsTest, MatMulHasItsArgumentsAndDefaults) {
  const pb::OpDef* op = FindOp(ops_, "MatMul");
  ASSERT_NE(op, nullptr);
  ASSERT_EQ(op->input_arg_size(), 2);
  EXPECT_EQ(op->input_arg(0).name(), "a");
  EXPECT_EQ(op->input_arg(1).type_attr(), "T");
  ASSERT_EQ(op->output_arg_size(), 1);
  EXPECT_EQ(op->output_arg(0).name(), "product");

  const pb::OpDef::AttrDef* transpose = FindAttr(*op, "transpose_a");
  ASSERT_NE(transpose, nullptr);
  EXPECT_EQ(transpose->type(), "bool");
  EXPECT_EQ(transpose->default_value().value_case(), pb::AttrValue::kB);
  EXPECT_FALSE(transpose->default_value().b());

  const pb::OpDef::AttrDef* type = FindAttr(*op, "T");
  ASSERT_NE(type, nullptr);
  EXPECT_GT(type->allowed_values().list().type_size(), 3);
}

TEST_F(GoldenOpsTest, VariablesAndSendsCarryTheirFlags) {
  const pb::OpDef* variable = FindOp(ops_, "VariableV2");
  ASSERT_NE(variable, nullptr);
  EXPECT_TRUE(variable->is_stateful());
  ASSERT_EQ(variable->output_arg_size(), 1);
  EXPECT_TRUE(variable->output_arg(0).is_ref());

  const pb::OpDef* send = FindOp(ops_, "_Send");
  ASSERT_NE(send, nullptr);
  EXPECT_TRUE(send->is_stateful());
  EXPECT_NE(FindAttr(*send, "send_device_incarnation"), nullptr);

  const pb::OpDef* assign = FindOp(ops_, "Assign");
  ASSERT_NE(assign, nullptr);
  EXPECT_TRUE(assign->allows_uninitialized_input());
}

TEST(ProtoBytesTest, ATensorOfThreeFloats) {
  pb::TensorProto tensor;
  tensor.set_dtype(pb::DT_FLOAT);
  tensor.mutable_tensor_shape()->add_dim()->set_size(3);
  const float values[] = {1.0f, 2.0f, 3.0f};
  tensor.set_tensor_content(values, sizeof(values));

  EXPECT_EQ(tensor.SerializeAsString(),
            FromHex("08 01 12 04 12 02 08 03 22 0c 00 00 80 3f 00 00 00 40 00 00 40 40"));
}

TEST(ProtoBytesTest, TypedListsArePacked) {
  pb::TensorProto tensor;
  tensor.set_dtype(pb::DT_INT64);
  tensor.add_int64_val(7);
  tensor.add_int64_val(-1);

  EXPECT_EQ(tensor.SerializeAsString(), FromHex("08 09 52 0b 07 ff ff ff ff ff ff ff ff ff 01"));
}

TEST(ProtoBytesTest, ANodeWithAnInputADeviceAndAnAttribute) {
  pb::NodeDef node;
  node.set_name("y");
  node.set_op("Relu");
  node.add_input("x:0");
  node.set_device("/cpu:0");
  (*node.mutable_attr())["T"].set_type(pb::DT_FLOAT);

  EXPECT_EQ(node.SerializeAsString(),
            FromHex("0a 01 79 12 04 52 65 6c 75 1a 03 78 3a 30 22 06 2f 63 70 75 3a 30 "
                    "2a 07 0a 01 54 12 02 30 01"));
}

TEST(ProtoBytesTest, AnAttributeAtItsZeroValueIsStillSet) {
  pb::AttrValue value;
  value.set_b(false);
  EXPECT_EQ(value.SerializeAsString(), FromHex("28 00"));

  pb::AttrValue list;
  list.mutable_list();
  EXPECT_EQ(list.SerializeAsString(), FromHex("0a 00"));
}

TEST(ProtoBytesTest, ReferenceTypesLieAHundredAboveTheirBase) {
  EXPECT_EQ(pb::DT_FLOAT_REF, pb::DT_FLOAT + 100);
  EXPECT_EQ(pb::DT_VARIANT_REF, pb::DT_VARIANT + 100);
  EXPECT_EQ(pb::DT_UINT64_REF, pb::DT_UINT64 + 100);
}

TEST(ProtoBytesTest, AnUnknownFieldSurvivesACopy) {
  // Field 1000 (a string "new") is in no release that we know of.
  const std::string bytes = FromHex("08 01 c2 3e 03 6e 65 77");
  pb::RunOptions options;
  ASSERT_TRUE(options.ParseFromString(bytes));
  EXPECT_EQ(options.trace_level(), pb::RunOptions::SOFTWARE_TRACE);

  const pb::RunOptions copy = options;
  EXPECT_EQ(copy.SerializeAsString(), bytes);
}

TEST(ProtoBytesTest, ServiceMessagesUseTheirPublishedNumbers) {
  pb::RunStepRequest step;
  step.set_session_handle("s");
  step.add_fetch("f:0");
  step.add_target("t");
  step.set_store_errors_in_response_body(true);
  step.set_request_id(5);
  EXPECT_EQ(step.SerializeAsString(), FromHex("0a 01 73 1a 03 66 3a 30 22 01 74 38 01 40 05"));

  pb::RunGraphRequest run;
  run.set_graph_handle("g");
  run.set_step_id(2);
  run.set_session_handle("s");
  run.set_create_worker_session_called(true);
  EXPECT_EQ(run.SerializeAsString(), FromHex("0a 01 67 10 02 42 01 73 50 01"));

  pb::DeviceAttributes device;
  device.set_incarnation(1);
  EXPECT_EQ(device.SerializeAsString(), FromHex("31 01 00 00 00 00 00 00 00"));
}

TEST(ProtoBytesTest, AMetaGraphCarriesGraphSaverAndSignature) {
  pb::MetaGraphDef meta;
  meta.mutable_meta_info_def()->add_tags("serve");
  meta.mutable_saver_def()->set_version(pb::SaverDef::V2);
  (*meta.mutable_signature_def())["d"].set_method_name("m");
  EXPECT_EQ(meta.SerializeAsString(), FromHex("0a 07 22 05 73 65 72 76 65 1a 02 38 02 "
                                              "2a 08 0a 01 64 12 03 1a 01 6d"));
}

}  // namespace
}  // namespace millrace
