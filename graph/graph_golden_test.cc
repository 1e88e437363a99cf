// SPDX-License-Identifier: Apache-2.0
// Graphs that TensorFlow accepts are accepted here, with the same static shapes; those that it
// refuses are refused with the same code.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "graph/graph_def_io.h"
#include "graph/node_name.h"
#include "graph/shape_refiner.h"
#include "ops/all_ops.h"
#include "tensor/tensor_proto.h"
#include "tests/goldens/kernels/golden.pb.h"

namespace millrace {
namespace {

class GraphGoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(RegisterAllOps(ops_).ok());
    std::ifstream file("tests/goldens/opdefs/graphs.pb", std::ios::binary);
    ASSERT_TRUE(cases_.ParseFromIstream(&file));
    ASSERT_GT(cases_.case__size(), 0);
  }

  // What creating a session checks before it places anything.
  Status Load(const std::string& bytes, DataflowGraph* graph, ShapeRefiner* shapes) {
    pb::GraphDef def;
    if (!def.ParseFromString(bytes)) return Status(StatusCode::kInvalidArgument, "no GraphDef");
    const Status status = ImportGraphDef({}, def, graph);
    return status.ok() ? shapes->AddGraph(*graph) : status;
  }

  static PartialShape ShapeOf(const DataflowGraph& graph, const ShapeRefiner& shapes,
                              const std::string& fetch) {
    const StatusOr<TensorName> name = ParseTensorName(fetch);
    EXPECT_TRUE(name.ok()) << fetch;
    const Node* node = graph.FindNode(name->node);
    EXPECT_NE(node, nullptr) << fetch;
    return node == nullptr ? PartialShape() : shapes.shape(node, name->index);
  }

  OpRegistry ops_;
  golden::CaseSet cases_;
};

TEST_F(GraphGoldenTest, AcceptsAndRefusesAsTensorFlowDoes) {
  int shapes_compared = 0;
  for (const golden::Case& golden : cases_.case_()) {
    SCOPED_TRACE(golden.name());
    ASSERT_EQ(golden.step_size(), 1);
    const golden::Step& step = golden.step(0);
    DataflowGraph graph(&ops_);
    ShapeRefiner shapes;
    const Status status = Load(golden.graph_def(), &graph, &shapes);
    EXPECT_EQ(static_cast<int>(status.code()), step.error_code()) << status;
    EXPECT_NE(std::string(status.message()).find(step.error_contains()), std::string::npos)
        << status;
    if (!status.ok() || step.error_code() != 0) continue;
    for (int i = 0; i < golden.inferred_shape_size(); ++i) {
      pb::TensorShapeProto expected;
      ASSERT_TRUE(expected.ParseFromString(golden.inferred_shape(i)));
      EXPECT_EQ(ShapeOf(graph, shapes, step.fetch(i)).DebugString(),
                ShapeFromProto(expected).DebugString())
          << step.fetch(i);
      ++shapes_compared;
    }
  }
  EXPECT_GT(shapes_compared, 0);
}

// A refused graph leaves what was there before as it was.
TEST_F(GraphGoldenTest, ARefusedExtensionChangesNothing) {
  for (const golden::Case& golden : cases_.case_()) {
    SCOPED_TRACE(golden.name());
    DataflowGraph graph(&ops_);
    ASSERT_TRUE(graph.AddNode("before", "NoOp", {}).ok());
    graph.mutable_versions()->set_producer(2000);
    graph.FixSourceAndSink();
    pb::GraphDef before, after, def;
    ASSERT_TRUE(ExportGraphDef(graph, {}, &before).ok());
    const int nodes = graph.num_node_ids(), edges = graph.num_edge_ids();
    ASSERT_TRUE(def.ParseFromString(golden.graph_def()));
    if (ImportGraphDef({}, def, &graph).ok()) continue;
    ASSERT_TRUE(ExportGraphDef(graph, {}, &after).ok());
    EXPECT_EQ(before.DebugString(), after.DebugString());
    EXPECT_EQ(graph.num_node_ids(), nodes);
    EXPECT_EQ(graph.num_edge_ids(), edges);
  }
}

}  // namespace
}  // namespace millrace
