// SPDX-License-Identifier: Apache-2.0
#include "graph/dot.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "graph/graph_def_io.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DotTest : public testing::Test {
 protected:
  DotTest() : graph_(&ops_) { EXPECT_TRUE(RegisterAllOps(ops_).ok()); }

  void Import(const char* text) {
    pb::GraphDef def;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def));
    Status status = ImportGraphDef({.internal_names = true}, def, &graph_);
    ASSERT_TRUE(status.ok()) << status;
    status = shapes_.AddGraph(graph_);
    ASSERT_TRUE(status.ok()) << status;
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  ShapeRefiner shapes_;
};

TEST_F(DotTest, AnEdgeBetweenDevicesSaysHowManyBytesItCarries) {
  Import(R"(
      node { name: 'x' op: 'Placeholder' device: '/job:ps/task:0/device:CPU:0'
             attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'shape' value { shape { dim { size: 2 } dim { size: 3 } } } } }
      node { name: 'y' op: 'Identity' input: 'x' input: '^x' device: '/job:worker/task:0/device:CPU:0'
             attr { key: 'T' value { type: DT_FLOAT } } })");
  const std::string dot = ToDot(graph_, &shapes_);
  EXPECT_THAT(dot, HasSubstr("n2 -> n3 [penwidth=2, label=\"24 B\"];"));
  EXPECT_THAT(dot, HasSubstr("n2 -> n3 [style=dashed, penwidth=2];"));
  EXPECT_THAT(dot, HasSubstr("label=\"/job:ps/task:0\""));
  EXPECT_THAT(ToDot(graph_, nullptr), Not(HasSubstr(" B\"")));
  EXPECT_EQ(ToText(graph_),
            "x = Placeholder() @ /job:ps/task:0/device:CPU:0\n"
            "y = Identity(x, ^x) @ /job:worker/task:0/device:CPU:0\n");
}

TEST_F(DotTest, ASendIsJoinedToItsReceive) {
  Import(R"(
      node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 's' op: '_Send' input: 'x'
             attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'tensor_name' value { s: 't' } }
             attr { key: 'send_device' value { s: 'a' } }
             attr { key: 'send_device_incarnation' value { i: 1 } }
             attr { key: 'recv_device' value { s: 'b' } } }
      node { name: 'r' op: '_Recv'
             attr { key: 'tensor_type' value { type: DT_FLOAT } }
             attr { key: 'tensor_name' value { s: 't' } }
             attr { key: 'send_device' value { s: 'a' } }
             attr { key: 'send_device_incarnation' value { i: 1 } }
             attr { key: 'recv_device' value { s: 'b' } } })");
  EXPECT_THAT(ToDot(graph_, &shapes_), HasSubstr("n3 -> n4 [style=dotted"));
}

TEST_F(DotTest, ASendToAnotherPartIsJoinedToItsReceiveThere) {
  Import(R"(
      node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'value' value { tensor { dtype: DT_FLOAT
                    tensor_shape { dim { size: 5 } } float_val: 1 } } } }
      node { name: 's' op: '_Send' input: 'c'
             attr { key: 'T' value { type: DT_FLOAT } } attr { key: 'tensor_name' value { s: 't' } }
             attr { key: 'send_device' value { s: 'a' } }
             attr { key: 'send_device_incarnation' value { i: 1 } }
             attr { key: 'recv_device' value { s: 'b' } } })");
  EXPECT_THAT(ToDot(graph_, &shapes_), HasSubstr("x0 [shape=plaintext, label=\"b\"]"));
  EXPECT_THAT(ToDot(graph_, &shapes_),
              HasSubstr("n3 -> x0 [style=dotted, constraint=false, label=\"20 B\"]"));

  DataflowGraph other(&ops_);
  pb::GraphDef def;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      node { name: 'r' op: '_Recv'
             attr { key: 'tensor_type' value { type: DT_FLOAT } }
             attr { key: 'tensor_name' value { s: 't' } }
             attr { key: 'send_device' value { s: 'a' } }
             attr { key: 'send_device_incarnation' value { i: 1 } }
             attr { key: 'recv_device' value { s: 'b' } } })",
                                                            &def));
  const Status imported = ImportGraphDef({.internal_names = true}, def, &other);
  ASSERT_TRUE(imported.ok()) << imported;
  const DataflowGraph* parts[] = {&graph_, &other};
  const std::string dot = ToDot(parts, [](const Node&, int) { return 7; });
  EXPECT_THAT(dot, HasSubstr("p0n3 -> p1n2 [style=dotted, constraint=false, label=\"7 B\"]"));
  EXPECT_THAT(dot, Not(HasSubstr("plaintext")));
}

}  // namespace
}  // namespace millrace
