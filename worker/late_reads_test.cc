// SPDX-License-Identifier: Apache-2.0
#include "worker/late_reads.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "google/protobuf/text_format.h"
#include "graph/graph_def_io.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

// v -> read -> {waits (after the update), free}; v -> update.
constexpr char kGraph[] = R"(
  node { name: "v" op: "VariableV2" attr { key: "dtype" value { type: DT_INT64 } }
         attr { key: "shape" value { shape {} } } }
  node { name: "read" op: "Identity" input: "v" attr { key: "T" value { type: DT_INT64 } } }
  node { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT64 } }
         attr { key: "value" value { tensor { dtype: DT_INT64 tensor_shape {} int64_val: 1 } } } }
  node { name: "update" op: "AssignAdd" input: "v" input: "one"
         attr { key: "T" value { type: DT_INT64 } } }
  node { name: "waits" op: "Neg" input: "read" input: "^update"
         attr { key: "T" value { type: DT_INT64 } } }
  node { name: "two" op: "Const" input: "^update" attr { key: "dtype" value { type: DT_INT64 } }
         attr { key: "value" value { tensor { dtype: DT_INT64 tensor_shape {} int64_val: 2 } } } }
  node { name: "waits_too" op: "Mul" input: "two" input: "read"
         attr { key: "T" value { type: DT_INT64 } } }
  node { name: "both" op: "Mul" input: "read" input: "update"
         attr { key: "T" value { type: DT_INT64 } } }
  node { name: "free" op: "Neg" input: "read" attr { key: "T" value { type: DT_INT64 } } }
  versions { producer: 1000 }
)";

bool Waits(const Node& node, const Node& before) {
  for (const Edge* edge : node.in_edges()) {
    if (edge->IsControl() && edge->src == &before) return true;
  }
  return false;
}

TEST(LateReads, ANodeThatWaitsForAnUpdateReadsAfterIt) {
  OpRegistry ops;
  MR_CHECK(RegisterAllOps(ops).ok());
  pb::GraphDef def;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kGraph, &def));
  DataflowGraph graph(&ops);
  const Status imported = ImportGraphDef({}, def, &graph);
  ASSERT_TRUE(imported.ok()) << imported;
  ASSERT_TRUE(ReadLate(&graph).ok());

  const Node* early = graph.FindNode("read");
  const Node* late = graph.FindNode("waits")->input_edge(0)->src;
  EXPECT_NE(late, early);
  EXPECT_EQ(late->type(), "Identity");
  EXPECT_EQ(late->input_edge(0)->src, graph.FindNode("v"));
  EXPECT_TRUE(Waits(*late, *graph.FindNode("update")));
  EXPECT_TRUE(Waits(*late, *early));
  // So does one that waits through a constant alone.
  const Node* second = graph.FindNode("waits_too")->input_edge(1)->src;
  EXPECT_NE(second, early);
  EXPECT_TRUE(Waits(*second, *graph.FindNode("two")));
  // And one that takes what the update gives.
  const Node* third = graph.FindNode("both")->input_edge(0)->src;
  EXPECT_NE(third, early);
  EXPECT_TRUE(Waits(*third, *graph.FindNode("update")));
  // One that waits for nothing keeps the read it had.
  EXPECT_EQ(graph.FindNode("free")->input_edge(0)->src, early);
}

}  // namespace
}  // namespace millrace
