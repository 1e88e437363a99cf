// SPDX-License-Identifier: Apache-2.0
// Random graphs go where TensorFlow puts them.
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "device/device_name.h"
#include "graph/dataflow_graph.h"
#include "gtest/gtest.h"
#include "ops/op_registry.h"
#include "placer/placer.h"
#include "proto/op_def.pb.h"

namespace millrace {
namespace {

constexpr char kOps[] = "tests/goldens/opdefs/ops.pb";
constexpr char kGraphs[] = "tests/goldens/placement/random_graphs.txt";

struct Case {
  std::string seed, master, error;
  bool soft = false;
  std::vector<std::string> filters;
  std::vector<std::vector<std::string>> nodes;
};

std::vector<Case> ReadCases() {
  std::ifstream file(kGraphs);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    if (line[0] == ' ') {
      cases.back().nodes.push_back(fields);
      continue;
    }
    Case& added = cases.emplace_back();
    added.seed = fields[1];
    for (const std::string& field : fields) {
      const std::string value = field.substr(field.find('=') + 1);
      if (field.starts_with("master=")) added.master = value;
      if (field.starts_with("soft=")) added.soft = value == "1";
      if (field.starts_with("filter=")) added.filters.push_back(value);
      if (field.starts_with("error=")) added.error = value;
    }
  }
  return cases;
}

void ReadOps(OpRegistry* ops) {
  std::ifstream file(kOps, std::ios::binary);
  pb::OpList list;
  ASSERT_TRUE(list.ParseFromIstream(&file));
  for (const pb::OpDef& def : list.op()) {
    const Status status = ops->Register({.def = def});
    ASSERT_TRUE(status.ok()) << status;
  }
}

// Adds the node of a line; its types are all float, but for handles.
Status AddNode(const std::vector<std::string>& fields, DataflowGraph* graph) {
  std::string op = fields[1];
  DataType type = kFloat;
  if (op == "Identity:resource") {
    op = "Identity";
    type = kResource;
  }
  AttrMap attrs;
  const OpInfo* info = graph->ops().Find(op);
  for (const pb::OpDef::AttrDef& attr : info->def.attr()) {
    if (attr.has_default_value()) continue;
    if (attr.type() == "type") attrs.Set(attr.name(), type);
    if (attr.type() == "shape") attrs.Set(attr.name(), PartialShape({8, 8}));
    if (attr.type() == "tensor") attrs.Set(attr.name(), Tensor(kFloat, Shape({8, 8})));
  }
  std::vector<std::string> labels;
  for (std::size_t i = 4; i < fields.size(); ++i) {
    if (fields[i].starts_with("loc:@")) labels.push_back(fields[i]);
  }
  if (!labels.empty()) attrs.Set("_class", labels);
  const auto node = graph->AddNode(fields[0], op, std::move(attrs));
  if (!node.ok()) return node.status();
  if (fields[2] != "-") (*node)->set_requested_device(fields[2]);
  int slot = 0;
  for (std::size_t i = 4; i < fields.size(); ++i) {
    if (fields[i].starts_with("loc:@")) continue;
    if (fields[i][0] == '^') {
      graph->AddControlEdge(graph->FindNode(fields[i].substr(1)), *node);
    } else {
      const auto edge = graph->AddEdge(graph->FindNode(fields[i]), 0, *node, slot++);
      if (!edge.ok()) return edge.status();
    }
  }
  return OkStatus();
}

// The devices of the cluster that the filters leave; the master's own are always there.
std::vector<PlacerDevice> Devices(const Case& test) {
  std::vector<PlacerDevice> devices;
  for (const char* task :
       {"/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1"}) {
    const DeviceName name = DeviceName::Parse(task).value();
    const bool is_local = test.master == task;
    bool wanted = is_local || test.filters.empty();
    for (const std::string& filter : test.filters) {
      wanted |= DeviceName::Parse(filter).value().Matches(name);
    }
    if (!wanted) continue;
    for (int cpu = 0; cpu < 2; ++cpu) {
      devices.push_back({.name = StrCat(MakeTaskName(*name.job, *name.task), "/device:CPU:", cpu),
                         .type = "CPU",
                         .is_local = is_local});
    }
  }
  return devices;
}

TEST(PlacementGoldenTest, EveryNodeGoesWhereTensorFlowPutsIt) {
  OpRegistry ops;
  ReadOps(&ops);
  const std::vector<Case> cases = ReadCases();
  ASSERT_EQ(cases.size(), 60u);
  int compared = 0, errors = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(StrCat("seed ", test.seed));
    DataflowGraph graph(&ops);
    for (const auto& fields : test.nodes) {
      const Status status = AddNode(fields, &graph);
      ASSERT_TRUE(status.ok()) << status;
    }
    graph.FixSourceAndSink();
    PlacerInput input;
    input.devices = Devices(test);
    input.allow_soft_placement = test.soft;
    input.kernel = [&](const OpInfo& op, const AttrMap&, std::string_view) {
      return ops.Find(op.def.name()) != nullptr ? std::optional<int>(0) : std::nullopt;
    };
    PlacementLog log;
    const Status status = Place(&graph, input, &log);
    if (!test.error.empty()) {
      ++errors;
      ASSERT_EQ(test.error, "InvalidArgumentError");
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
      continue;
    }
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& fields : test.nodes) {
      if (fields[3] == "-") continue;
      ++compared;
      const DeviceName got =
          DeviceName::Parse(graph.FindNode(fields[0])->assigned_device()).value();
      const DeviceName want = DeviceName::Parse(fields[3]).value();
      EXPECT_TRUE(want.Matches(got)) << fields[0] << ": want " << fields[3] << "\n"
                                     << log.ToText(fields[0]);
      EXPECT_EQ(log.Replay(fields[0]), graph.FindNode(fields[0])->assigned_device());
    }
  }
  EXPECT_EQ(errors, 23);
  EXPECT_GT(compared, 3000);
}

}  // namespace
}  // namespace millrace
