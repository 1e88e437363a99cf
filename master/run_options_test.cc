// SPDX-License-Identifier: Apache-2.0
#include "master/run_options.h"

#include <gtest/gtest.h>

#include <string_view>

#include "master/session_test_util.h"

namespace millrace {
namespace {

TEST(RunOptionsTest, WatchesWithNoPlaceToWriteToHarmNothing) {
  TestCluster cluster;
  TestGraph graph;
  graph.Placeholder("x");
  graph.Sum("y", "x", "x");
  auto session = cluster.NewSession(graph.def());
  ClientSession::RunRequest request;
  request.feeds = {{"x", Tensor::Scalar(1.0f)}};
  request.fetches = {"y"};
  pb::DebugTensorWatch& watch =
      *request.options.mutable_debug_options()->add_debug_tensor_watch_opts();
  watch.set_node_name("y");
  watch.add_debug_ops("DebugIdentity");
  const auto ran = session->Run(request);
  ASSERT_TRUE(ran.ok()) << ran.status();
  EXPECT_EQ(ran->size(), 1u);
  watch.add_debug_urls("file:///tmp/dumps");
  const Status refused = session->Run(request).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented) << refused;
  EXPECT_NE(refused.message().find("y:0 is to be written to file:///tmp/dumps"),
            std::string_view::npos)
      << refused;
}

}  // namespace
}  // namespace millrace
