// SPDX-License-Identifier: Apache-2.0
#include "millrace/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(LocalClusterTest, RunsAGraphOverItsTasks) {
  auto cluster = LocalCluster::Start({.workers = 2, .ps = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->spec().num_tasks("worker"), 2);
  Graph graph;
  const Scope root = graph.root();
  const Variable v = MakeVariable(root.WithDevice("/job:ps/task:0"), "v",
                                  Constant(root, Tensor::Scalar<float>(2)));
  const Output sum =
      ops::Add(root.WithDevice("/job:worker/task:1"), v.read, Constant(root, Tensor::Scalar(3.0f)));
  const Operation init = InitializeVariables(root);
  auto session = Session::Create(graph, {.target = (*cluster)->target("worker", 0)});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({init}).ok());
  EXPECT_EQ(session->Eval(sum)->scalar<float>(), 5);
}

TEST(LocalClusterTest, ATaskCanBeStoppedAndStartedAgain) {
  auto cluster = LocalCluster::Start({.workers = 1, .ps = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  LocalCluster& it = **cluster;
  EXPECT_EQ(it.Restart("ps", 0).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(it.Stop("ps", 0).ok());
  EXPECT_EQ(it.Stop("ps", 0).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(it.Restart("ps", 0).ok());

  Graph graph;
  const Output two = Constant(graph.root().WithDevice("/job:ps/task:0"), Tensor::Scalar(2.0f));
  auto session = Session::Create(graph, {.target = it.target("worker", 0)});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->Eval(two)->scalar<float>(), 2);
}

TEST(LocalClusterTest, SaysWhatItCannotBe) {
  EXPECT_EQ(LocalCluster::Start({.workers = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(LocalCluster::Start({.workers = -1}).status().code(), StatusCode::kInvalidArgument);
  auto cluster = LocalCluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->Stop("ps", 0).code(), StatusCode::kNotFound);
  EXPECT_EQ((*cluster)->Restart("worker", 1).code(), StatusCode::kNotFound);
  EXPECT_EQ((*cluster)->target("worker", 1), "");
}

}  // namespace
}  // namespace millrace
