// SPDX-License-Identifier: Apache-2.0
// Any GraphDef either is refused or becomes a graph that survives the round trip, with static
// shapes or without.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "graph/graph_def_io.h"
#include "graph/shape_refiner.h"
#include "ops/all_ops.h"
#include "proto/graph.pb.h"
#include "tensor/fuzz_guard.h"
#include "tests/goldens/kernels/golden.pb.h"

namespace millrace {
namespace {

const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    MR_CHECK(RegisterAllOps(*registry).ok());
    return registry;
  }();
  return *ops;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  constexpr std::size_t kMaxSeeds = 40, kMaxBytes = 4000;
  std::ifstream file("tests/goldens/opdefs/graphs.pb", std::ios::binary);
  golden::CaseSet cases;
  MR_CHECK(cases.ParseFromIstream(&file));
  std::vector<std::string> seeds;
  const int stride = 1 + cases.case__size() / static_cast<int>(kMaxSeeds);
  for (int i = 0; i < cases.case__size(); i += stride) {
    if (cases.case_(i).graph_def().size() < kMaxBytes) seeds.push_back(cases.case_(i).graph_def());
  }
  return seeds;
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  pb::GraphDef def;
  if (!def.ParseFromArray(data, static_cast<int>(size)) || StandsForMuch(def)) return 0;
  DataflowGraph graph(&Ops());
  if (!ImportGraphDef({}, def, &graph).ok()) return 0;
  pb::GraphDef exported;
  MR_CHECK(ExportGraphDef(graph, {}, &exported).ok());
  DataflowGraph again(&Ops());
  MR_CHECK(ImportGraphDef({}, exported, &again).ok());
  MR_CHECK(again.num_node_ids() == graph.num_node_ids());
  ShapeRefiner shapes;
  if (!shapes.AddGraph(graph).ok()) return 0;
  ShapeRefiner same;
  MR_CHECK(same.AddGraph(again).ok());
  return 0;
}
