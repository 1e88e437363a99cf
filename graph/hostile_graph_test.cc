// SPDX-License-Identifier: Apache-2.0
// Graphs made to do harm end in a named error, or in none, soon and within bounded memory.
#include <google/protobuf/text_format.h>

#include <functional>
#include <random>
#include <string>

#include "base/errors.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "gmock/gmock.h"
#include "graph/graph_def_io.h"
#include "gtest/gtest.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class HostileGraphTest : public ::testing::Test {
 protected:
  HostileGraphTest() {
    EXPECT_TRUE(RegisterAllOps(ops_).ok());
    def_.mutable_versions()->set_producer(1000);
  }

  pb::NodeDef* Add(const std::string& name, const std::string& op,
                   std::initializer_list<std::string> inputs = {}) {
    pb::NodeDef* const node = def_.add_node();
    node->set_name(name);
    node->set_op(op);
    for (const std::string& input : inputs) node->add_input(input);
    if (op != "NoOp") (*node->mutable_attr())["T"].set_type(pb::DT_FLOAT);
    return node;
  }

  Status Import() {
    DataflowGraph graph(&ops_);
    return ImportGraphDef({}, def_, &graph);
  }

  void ExpectError(StatusCode code, const std::string& phrase) {
    const Status status = Import();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(phrase));
    EXPECT_LT(Message(status).size(), 10'000u);
  }

  OpRegistry ops_;
  pb::GraphDef def_;
};

TEST_F(HostileGraphTest, CirclesAreNamed) {
  Add("a", "Identity", {"b"});
  Add("b", "Identity", {"a"});
  ExpectError(StatusCode::kInvalidArgument, "in a cycle");
  def_.clear_node();
  Add("self", "NoOp", {"^self"});
  ExpectError(StatusCode::kInvalidArgument, "in a cycle");
}

TEST_F(HostileGraphTest, ALargeCircleIsNamedInFewWords) {
  constexpr int kNodes = 100'000;
  for (int i = 0; i < kNodes; ++i) Add(StrCat("n", i), "NoOp", {StrCat("^n", (i + 1) % kNodes)});
  ExpectError(StatusCode::kInvalidArgument, "100000 nodes in a cycle");
}

TEST_F(HostileGraphTest, ChainsOfAMillionNodesDoNotOverflowTheStack) {
  Add("n0", "NoOp");
  for (int i = 1; i < 1'000'000; ++i) Add(StrCat("n", i), "NoOp", {StrCat("^n", i - 1)});
  EXPECT_TRUE(Import().ok());
}

TEST_F(HostileGraphTest, DanglingAndDuplicateNamesAreErrors) {
  Add("a", "NoOp", {"^nowhere"});
  ExpectError(StatusCode::kInvalidArgument, "Unknown input node");
  def_.clear_node();
  Add("a", "NoOp");
  Add("a", "NoOp");
  ExpectError(StatusCode::kInvalidArgument, "is not unique");
}

TEST_F(HostileGraphTest, AbsurdOutputNumbersAreErrors) {
  for (const char* input : {"a:1", "a:2147483647", "a:2147483648", "a:99999999999999999999", "a:-1",
                            "a:01", ":0", "^", "", "a:", "^a:0"}) {
    def_.clear_node();
    Add("a", "NoOp");
    Add("b", "Identity", {input});
    EXPECT_EQ(Import().code(), StatusCode::kInvalidArgument) << input;
  }
}

TEST_F(HostileGraphTest, ReservedAndMalformedNamesAreErrors) {
  for (const char* name : {"_SOURCE", "_SINK", "_x", "", "a b", "a:0", "-a", "a>", "\xff\xfe"}) {
    def_.clear_node();
    Add(name, "NoOp");
    ExpectError(StatusCode::kInvalidArgument, "Illegal op name");
  }
}

TEST_F(HostileGraphTest, NumbersOfInputsThatDoNotFitMemoryAreErrors) {
  for (const int64_t n : {int64_t{-1}, int64_t{0}, int64_t{1} << 31, int64_t{1} << 62}) {
    def_.clear_node();
    Add("a", "Placeholder");
    (*def_.mutable_node(0)->mutable_attr())["dtype"].set_type(pb::DT_FLOAT);
    pb::NodeDef* const node = Add("sum", "AddN", {"a"});
    (*node->mutable_attr())["N"].set_i(n);
    EXPECT_EQ(Import().code(), StatusCode::kInvalidArgument) << n;
  }
}

TEST_F(HostileGraphTest, ShapesAndTensorsBeyondMemoryAreErrorsOrNotMade) {
  pb::NodeDef* const node = Add("c", "Const");
  pb::AttrValue& value = (*node->mutable_attr())["value"];
  (*node->mutable_attr())["dtype"].set_type(pb::DT_FLOAT);
  value.mutable_tensor()->set_dtype(pb::DT_FLOAT);
  for (int i = 0; i < 8; ++i) {
    value.mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(int64_t{1} << 40);
  }
  value.mutable_tensor()->add_float_val(1);
  EXPECT_EQ(Import().code(), StatusCode::kInvalidArgument);
  value.mutable_tensor()->mutable_tensor_shape()->mutable_dim(0)->set_size(-5);
  EXPECT_EQ(Import().code(), StatusCode::kInvalidArgument);
}

TEST_F(HostileGraphTest, ManyAttributesOfAnyKindAreTaken) {
  pb::NodeDef* const node = Add("a", "NoOp");
  for (int i = 0; i < 20'000; ++i) (*node->mutable_attr())[StrCat("_x", i)].set_i(i);
  EXPECT_TRUE(Import().ok());
  (*node->mutable_attr())[""].set_s("empty name");
  Import().IgnoreError();  // either is right, a crash is not
}

TEST_F(HostileGraphTest, FunctionsThatCallThemselvesEndInAnAnswer) {
  pb::FunctionDef* const function = def_.mutable_library()->add_function();
  function->mutable_signature()->set_name("Again");
  pb::NodeDef* const body = function->add_node_def();
  body->set_name("call");
  body->set_op("Again");
  def_.add_node()->set_name("start");
  def_.mutable_node(0)->set_op("Again");
  Import().IgnoreError();  // the graph may be legal; walking it must end
}

// Changes bytes of a good message; whatever parses is imported.
TEST_F(HostileGraphTest, DamagedMessagesNeverCrash) {
  Add("p", "Placeholder");
  (*def_.mutable_node(0)->mutable_attr())["dtype"].set_type(pb::DT_FLOAT);
  Add("a", "Identity", {"p"});
  pb::NodeDef* const sum = Add("sum", "AddN", {"a", "p:0", "^a"});
  (*sum->mutable_attr())["N"].set_i(2);
  sum->set_device("/job:ps/task:1/gpu:0");
  const std::string good = def_.SerializeAsString();
  std::mt19937 random(3);
  int parsed = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::string bytes = good;
    for (unsigned i = 0; i <= random() % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (!def_.ParseFromString(bytes)) continue;
    ++parsed;
    Import().IgnoreError();
  }
  EXPECT_GT(parsed, 250);
}

TEST_F(HostileGraphTest, DeviceNamesOfAnyBytesAreParsedOrRefused) {
  std::mt19937 random(4);
  const std::string letters = "/:jobreplicatskdevicegpuCPU*0123456789_-\xff ";
  for (int round = 0; round < 50'000; ++round) {
    std::string text;
    for (unsigned i = random() % 40; i > 0; --i) text += letters[random() % letters.size()];
    const StatusOr<DeviceName> name = DeviceName::Parse(text);
    if (!name.ok()) continue;
    const StatusOr<DeviceName> again = DeviceName::Parse(name->ToString());
    if (name->type || !name->id) {  // a number without a type is not written
      ASSERT_TRUE(again.ok()) << text;
      EXPECT_EQ(*again, *name) << text;
    }
  }
  for (const char* text : {"/job:a/task:99999999999", "/task:-1", "/task:4294967296", "/cpu:1e3"}) {
    EXPECT_FALSE(DeviceName::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace millrace
