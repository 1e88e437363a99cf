// SPDX-License-Identifier: Apache-2.0
// Random programs of branches, loops and functions, step by step against TensorFlow: values,
// gradients, and what each step leaves in the variables.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "graph/node_name.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "tensor/tensor_proto.h"
#include "tests/goldens/compare.h"
#include "tests/goldens/kernels/golden.pb.h"

namespace millrace::testing {
namespace {

const golden::CaseSet& Cases() {
  static const golden::CaseSet* const cases = [] {
    auto* set = new golden::CaseSet;
    std::ifstream file("tests/goldens/control_flow/cases.pb", std::ios::binary);
    EXPECT_TRUE(set->ParseFromIstream(&file));
    EXPECT_GT(set->case__size(), 40);
    return set;
  }();
  return *cases;
}

Tensor ReadTensor(const std::string& bytes) {
  pb::TensorProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes));
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return tensor.ok() ? *std::move(tensor) : Tensor();
}

StatusOr<std::vector<Tensor>> RunStep(const golden::Step& step, const Graph& graph,
                                      Session& session) {
  std::vector<Output> fetches;
  for (const std::string& fetch : step.fetch()) {
    MR_ASSIGN_OR_RETURN(const TensorName name, ParseTensorName(fetch));
    fetches.push_back(graph.FindOperation(name.node).output(name.index));
  }
  std::vector<Operation> targets;
  for (const std::string& target : step.target()) targets.push_back(graph.FindOperation(target));
  return session.Run({}, fetches, targets);
}

class ControlFlowGolden : public ::testing::TestWithParam<int> {};

TEST_P(ControlFlowGolden, EveryStepGivesTensorFlowsValues) {
  const golden::Case& golden = Cases().case_(GetParam());
  const Tolerance tolerance{golden.compare() == "bits", golden.rtol(), golden.atol()};
  Graph graph;
  const Status imported = graph.ImportGraphDef(golden.graph_def());
  ASSERT_TRUE(imported.ok()) << imported;
  SessionOptions options;
  options.step_timeout = std::chrono::seconds(60);
  StatusOr<Session> session = Session::Create(graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int s = 0; s < golden.step_size(); ++s) {
    const golden::Step& step = golden.step(s);
    const StatusOr<std::vector<Tensor>> values = RunStep(step, graph, *session);
    ASSERT_TRUE(values.ok()) << "step " << s << ": " << values.status();
    ASSERT_EQ(static_cast<int>(values->size()), step.expected_size());
    for (int i = 0; i < step.expected_size(); ++i) {
      EXPECT_TRUE(Matches((*values)[i], ReadTensor(step.expected(i)), tolerance))
          << "step " << s << ", " << step.fetch(i);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, ControlFlowGolden, ::testing::Range(0, Cases().case__size()),
                         [](const ::testing::TestParamInfo<int>& info) {
                           return Cases().case_(info.param).name();
                         });

}  // namespace
}  // namespace millrace::testing
