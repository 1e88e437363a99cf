// SPDX-License-Identifier: Apache-2.0
// What crosses between tasks, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A long chain at the worker, and one value of the ps that only its end uses.
struct Program {
  Program() {
    const Scope ps = graph.root().WithDevice("/job:ps/task:0");
    const Scope worker = graph.root().WithDevice("/job:worker/task:0");
    third = Constant(ps, Tensor::Scalar(1.0f / 3));
    Output chain = Constant(worker, Tensor::Scalar(0.0f));
    for (int i = 0; i < 100; ++i) chain = ops::Neg(worker, chain);
    sum = ops::AddV2(worker, chain, third);
  }
  Graph graph;
  Output third, sum;
};

struct Outcome {
  float sum = 0;
  std::string graphs;  // of the partitions
};

Outcome RunOnce(const SessionOptions& options) {
  Program p;
  auto session = Session::Create(p.graph, options);
  EXPECT_TRUE(session.ok()) << session.status();
  RunMetadata metadata;
  const std::vector<Output> fetches = {p.sum};
  const auto values = session->Run({}, fetches, {}, {.partition_graphs = true}, &metadata);
  EXPECT_TRUE(values.ok()) << values.status();
  Outcome outcome;
  if (values.ok()) outcome.sum = values->at(0).scalar<float>();
  for (const std::string& graph : metadata.partition_graphs) outcome.graphs += graph;
  return outcome;
}

TEST(Transfers, CarryFloatsAsTheyAre) {
  InProcessCluster cluster(1, 1);
  const Outcome outcome = RunOnce({.target = cluster.Target("worker", 0)});
  EXPECT_EQ(outcome.sum, 1.0f / 3);
  EXPECT_THAT(outcome.graphs, Not(HasSubstr("ControlTrigger")));
}

TEST(Transfers, CarryFloatsInHalfTheBytesOnRequest) {
  InProcessCluster cluster(1, 1);
  const Outcome outcome =
      RunOnce({.target = cluster.Target("worker", 0), .bfloat16_transfers = true});
  EXPECT_EQ(outcome.sum, 0.33203125f);  // cut off after seven bits behind the point
}

TEST(Transfers, WaitUntilTheyAreNeededOnRequest) {
  InProcessCluster cluster(1, 1);
  const Outcome outcome =
      RunOnce({.target = cluster.Target("worker", 0), .schedule_receives = true});
  EXPECT_EQ(outcome.sum, 1.0f / 3);
  EXPECT_THAT(outcome.graphs, HasSubstr("synch_"));
}

}  // namespace
}  // namespace millrace::testing
