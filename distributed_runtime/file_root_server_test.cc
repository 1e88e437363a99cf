// A server that keeps graphs to one folder. A program of its own: that holds for the whole process.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "session/client_session.h"
#include "transport/grpc/client_pool.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

TaskServerOptions Options(const TestEngine& engine, const std::string& file_root) {
  TaskServerOptions options;
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0");
  options.server.job_name = "worker";
  options.server.inter_op_threads = 2;
  options.server.intra_op_threads = 1;
  options.server.file_root = file_root;
  options.ops = &engine.ops;
  options.kernels = &engine.kernels;
  return options;
}

void AddText(TestGraph* graph, const std::string& name, const std::string& text) {
  pb::NodeDef* const node = graph->Add(name, "Const");
  (*node->mutable_attr())["dtype"].set_type(pb::DT_STRING);
  auto& value = *(*node->mutable_attr())["value"].mutable_tensor();
  value.set_dtype(pb::DT_STRING);
  value.mutable_tensor_shape();
  value.add_string_val(text);
}

TEST(FileRootServerTest, GraphsOpenNothingOutsideOfIt) {
  const std::string base = StrCat(::testing::TempDir(), "/root_server_", Hex16(RandomId()));
  fs::create_directories(base + "/root");
  std::ofstream(base + "/secret") << "secret";
  std::ofstream(base + "/root/open") << "open";
  fs::create_symlink(base + "/secret", base + "/root/link");
  fs::create_symlink(base + "/made", base + "/root/dangling");
  const TestEngine& engine = TheTestEngine();
  StatusOr<std::unique_ptr<TaskServer>> server =
      TaskServer::Create(Options(engine, base + "/root"));
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  const auto run = [&](const std::string& path, bool write) {
    TestGraph graph;
    AddText(&graph, "path", path);
    AddText(&graph, "text", "x");
    if (write) {
      graph.Add("op", "WriteFile", {"path", "text"});
    } else {
      graph.Add("op", "ReadFile", {"path"});
    }
    auto session = ClientSession::Create(NewGrpcRemoteMaster((*server)->address(), ClientPool()),
                                         graph.def(), {});
    if (!session.ok()) return session.status();
    return write ? (*session)->Run({}, {}, {"op"}).status()
                 : (*session)->Run({}, {"op:0"}, {}).status();
  };
  for (const bool write : {false, true}) {
    const Status within = run(base + "/root/open", write);
    EXPECT_TRUE(within.ok()) << within;
    for (const std::string& path :
         {base + "/secret", base + "/root/../secret", base + "/root/link", base + "/root/dangling",
          base + "/root/none/../../secret", std::string("/etc/hostname")}) {
      const Status refused = run(path, write);
      EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << path << ": " << refused;
      EXPECT_NE(Message(refused).find("--file_root"), std::string_view::npos) << refused;
    }
  }
  EXPECT_FALSE(fs::exists(base + "/made"));
  EXPECT_EQ(fs::file_size(base + "/secret"), 6u);
  // Another server of the process cannot mean another folder.
  EXPECT_EQ(TaskServer::Create(Options(engine, base)).status().code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace millrace
