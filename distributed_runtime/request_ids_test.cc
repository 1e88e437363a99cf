// SPDX-License-Identifier: Apache-2.0
// The way from a client's error to the server's log.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/errors.h"
#include "base/strings.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "session/client_session.h"
#include "transport/grpc/client_pool.h"

namespace millrace {
namespace {

TEST(RequestIdsTest, TheErrorOfAStepIsFoundInTheLogOfTheServer) {
  const TestEngine& engine = TheTestEngine();
  TaskServerOptions options;
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0");
  options.server.job_name = "worker";
  options.ops = &engine.ops;
  options.kernels = &engine.kernels;
  StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  TestGraph graph;
  pb::NodeDef* const path = graph.Add("path", "Const");
  (*path->mutable_attr())["dtype"].set_type(pb::DT_STRING);
  pb::TensorProto& value = *(*path->mutable_attr())["value"].mutable_tensor();
  value.set_dtype(pb::DT_STRING);
  value.mutable_tensor_shape();
  value.add_string_val("/there/is/no/such/file");
  graph.Add("read", "ReadFile", {"path"});
  auto session = ClientSession::Create(NewGrpcRemoteMaster((*server)->address(), ClientPool()),
                                       graph.def(), {});
  ASSERT_TRUE(session.ok()) << session.status();
  std::string last;
  for (int step = 0; step < 2; ++step) {
    ::testing::internal::CaptureStderr();
    const Status status = (*session)->Run({}, {"read:0"}, {}).status();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
    const std::string text(status.message());
    const std::size_t at = text.rfind(" [request ");
    ASSERT_NE(at, std::string::npos) << text;
    const std::string name = text.substr(at);
    EXPECT_EQ(name.size(), std::string(" [request 0123456789abcdef]").size()) << text;
    EXPECT_NE(log.find("failed" + name), std::string::npos) << name << "\n" << log;
    EXPECT_NE(name, last);
    last = name;
  }
}

}  // namespace
}  // namespace millrace
