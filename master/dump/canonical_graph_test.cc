// SPDX-License-Identifier: Apache-2.0
#include "master/dump/canonical_graph.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/strings.h"
#include "graph/graph_def_io.h"
#include "ops/all_ops.h"
#include "partitioner/partition.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kA[] = "/job:a/replica:0/task:0/device:CPU:0";
constexpr char kB[] = "/job:b/replica:0/task:0/device:CPU:0";

// A loop on a whose body is on b, and a node whose name looks like a made one.
constexpr char kLoop[] = R"(
    node { name: 'zero' op: 'Const' device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'dtype' value { type: DT_INT32 } }
           attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 0 } } } }
    node { name: 'x_S0' op: 'Identity' input: 'zero'
           device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } } }
    node { name: 'enter' op: 'Enter' input: 'x_S0' device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } }
           attr { key: 'frame_name' value { s: 'loop' } } }
    node { name: 'merge' op: 'Merge' input: 'enter' input: 'next'
           device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } } attr { key: 'N' value { i: 2 } } }
    node { name: 'limit' op: 'Const' input: '^merge' device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'dtype' value { type: DT_INT32 } }
           attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 9 } } } }
    node { name: 'less' op: 'Less' input: 'merge' input: 'limit'
           device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } } }
    node { name: 'cond' op: 'LoopCond' input: 'less'
           device: '/job:a/replica:0/task:0/device:CPU:0' }
    node { name: 'switch' op: 'Switch' input: 'merge' input: 'cond'
           device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } } }
    node { name: 'body' op: 'Neg' input: 'switch:1' device: '/job:b/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } } }
    node { name: 'next' op: 'NextIteration' input: 'body'
           device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } } }
    node { name: 'exit' op: 'Exit' input: 'switch' device: '/job:a/replica:0/task:0/device:CPU:0'
           attr { key: 'T' value { type: DT_INT32 } } })";

class CanonicalGraphTest : public testing::Test {
 protected:
  CanonicalGraphTest() : graph_(&ops_) {
    EXPECT_TRUE(RegisterAllOps(ops_).ok());
    pb::GraphDef def;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kLoop, &def));
    const Status imported = ImportGraphDef({.devices_are_assigned = true}, def, &graph_);
    EXPECT_TRUE(imported.ok()) << imported;
  }

  // The parts of `graph`, by device; made names end in `kind` and numbers from `first` on.
  std::vector<pb::GraphDef> Cut(const DataflowGraph& graph, const char* kind, int first,
                                uint64_t incarnation) {
    PartitionOptions options;
    options.node_to_location = [](const Node& node) { return node.assigned_device(); };
    options.new_name = [kind, first](std::string_view prefix) mutable {
      return StrCat(prefix, kind, first++);
    };
    options.get_incarnation = [incarnation](std::string_view device) {
      return device == kA ? incarnation : incarnation + 1;
    };
    StatusOr<std::vector<Partition>> parts = PartitionGraph(graph, options);
    EXPECT_TRUE(parts.ok()) << parts.status();
    std::vector<pb::GraphDef> defs;
    for (const Partition& part : *parts) {
      EXPECT_TRUE(ExportGraphDef(*part.graph, {}, &defs.emplace_back()).ok());
    }
    return defs;
  }

  static std::vector<std::string> Texts(const std::vector<pb::GraphDef>& parts) {
    std::vector<std::string> texts;
    for (const pb::GraphDef& part : parts) texts.push_back(GraphText(part));
    return texts;
  }

  OpRegistry ops_;
  DataflowGraph graph_;
};

TEST_F(CanonicalGraphTest, WhereTheCountersStoodDoesNotShow) {
  std::vector<std::vector<std::string>> texts;
  // The second time two-digit numbers come in, which sort differently.
  for (const auto& [first, incarnation] : {std::pair<int, uint64_t>(0, 77), {95, 1234567}}) {
    CanonicalNames names(graph_, NumberIncarnations({{kA, incarnation}, {kB, incarnation + 1}}));
    std::vector<pb::GraphDef> parts = Cut(graph_, "_S", first, incarnation);
    ASSERT_EQ(parts.size(), 2u);
    names.Apply(parts);
    texts.push_back(Texts(parts));
    EXPECT_THAT(texts.back()[1], HasSubstr("name: \"_cloop"));
    EXPECT_THAT(texts.back()[0], HasSubstr("name: \"x_S0\"\n  op: \"Identity\""));
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(CanonicalGraphTest, TheTextIsAGraphThatCanBeReadAgain) {
  CanonicalNames names(graph_, NumberIncarnations({{kA, 5}, {kB, 6}}));
  std::vector<pb::GraphDef> parts = Cut(graph_, "_S", 400, 5);
  names.Apply(parts);
  for (const std::string& text : Texts(parts)) {
    pb::GraphDef def;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def));
    DataflowGraph read(&ops_);
    const Status imported = ImportGraphDef({.internal_names = true}, def, &read);
    EXPECT_TRUE(imported.ok()) << imported << "\n" << text;
  }
}

TEST_F(CanonicalGraphTest, AWorkersNamesFollowTheMasters) {
  pb::GraphDef master, worker;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(node { name: 'zero_S31' op: '_Recv' attr { key: 'send_device_incarnation' value { i: 7 } } }
         node { name: 'body_S17' op: 'Identity' input: 'zero_S31' input: '^zero_S4' }
         node { name: 'zero_S4' op: 'NoOp' })",
      &master));
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(node { name: 'zero_S31/ctrl_G8' op: 'Const' input: '^zero_S31' }
         node { name: 'zero_S31' op: '_Recv' attr { key: 'send_device_incarnation' value { i: 9 } } }
         node { name: 'zero_S31_G9' op: '_Send' input: 'zero_S31/ctrl_G8'
                attr { key: 'tensor_name' value { s: 'edge_12_zero_S31' } }
                attr { key: '_src' value { s: 'zero_S31' } } })",
      &worker));
  CanonicalNames names(graph_, NumberIncarnations({{kA, 3}, {kB, 7}}));
  names.Apply(std::span(&master, 1));
  names.Apply(std::span(&worker, 1));
  const auto name = [](const pb::GraphDef& def, int i) { return def.node(i).name(); };
  EXPECT_EQ(name(master, 0), "zero_S0");
  EXPECT_EQ(name(master, 1), "body_S1");
  EXPECT_EQ(name(master, 2), "zero_S2");
  EXPECT_THAT(master.node(1).input(), ElementsAre("zero_S0", "^zero_S2"));
  EXPECT_EQ(master.node(0).attr().at("send_device_incarnation").i(), 2);
  EXPECT_EQ(name(worker, 0), "zero_S0/ctrl_G0");
  EXPECT_EQ(name(worker, 1), "zero_S0");
  EXPECT_EQ(name(worker, 2), "zero_S0_G1");
  EXPECT_THAT(worker.node(2).input(), ElementsAre("zero_S0/ctrl_G0"));
  EXPECT_EQ(worker.node(2).attr().at("tensor_name").s(), "edge_12_zero_S0");
  EXPECT_EQ(worker.node(2).attr().at("_src").s(), "zero_S0");
  EXPECT_EQ(worker.node(1).attr().at("send_device_incarnation").i(), -1) << "nobody's";
}

TEST(GraphText, ShowsTheNumbersOfSmallTensorsOnly) {
  pb::GraphDef def;
  for (const int size : {2, 1000}) {
    Tensor tensor(kFloat, Shape({size}));
    for (float& value : tensor.flat<float>()) value = 1.5f;
    TensorToProto(tensor, (*def.add_node()->mutable_attr())["value"].mutable_tensor());
  }
  const std::string text = GraphText(def);
  EXPECT_THAT(text, HasSubstr("float_val: [1.5, 1.5]"));
  EXPECT_EQ(text.find("tensor_content"), text.rfind("tensor_content"));
  EXPECT_NE(text.find("tensor_content"), std::string::npos);
}

}  // namespace
}  // namespace millrace
