// SPDX-License-Identifier: Apache-2.0
// A server that keeps graphs to one folder. A program of its own: that holds for the whole process.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "session/client_session.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/credentials.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

TaskServerOptions Options(const TestEngine& engine, const std::string& file_root,
                          const std::string& host = "127.0.0.1") {
  TaskServerOptions options;
  options.server.cluster = *ClusterSpec::Parse(StrCat("worker|", host, ":0"));
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

// The folder with the one "root" that this process has.
const std::string& Base() {
  static const std::string base = [] {
    std::string made =
        (fs::path(::testing::TempDir()) / ("root_server_" + Hex16(RandomId()))).string();
    fs::create_directories(made + "/root");
    return made;
  }();
  return base;
}

// A file within, one beside it, and links that lead out.
const std::string& BaseWithFiles() {
  static const std::string& base = []() -> const std::string& {
    const std::string& made = Base();
    std::ofstream(made + "/secret") << "secret";
    std::ofstream(made + "/root/open") << "open";
    fs::create_symlink(made + "/secret", made + "/root/link");
    fs::create_symlink(made + "/made", made + "/root/dangling");
    return made;
  }();
  return base;
}

TEST(FileRootServerTest, GraphsOpenNothingOutsideOfIt) {
  const std::string& base = BaseWithFiles();
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
    for (const std::string scheme : {"", "file://", "file://localhost"}) {
      const Status within = run(scheme + base + "/root/open", write);
      EXPECT_TRUE(within.ok()) << within;
    }
    const Status elsewhere = run("gs://bucket/open", write);
    EXPECT_TRUE(errors::IsUnimplemented(elsewhere)) << elsewhere;
    EXPECT_NE(
        Message(elsewhere).find("File system scheme 'gs' not implemented (file: 'gs://bucket"),
        std::string_view::npos)
        << elsewhere;
    for (const std::string& path :
         {base + "/secret", base + "/root/../secret", base + "/root/link", base + "/root/dangling",
          base + "/root/none/../../secret", std::string("/etc/hostname"),
          "file://" + base + "/secret", "file://" + base + "/root/../secret"}) {
      const Status refused = run(path, write);
      EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << path << ": " << refused;
      EXPECT_NE(Message(refused).find("--file_root"), std::string_view::npos) << refused;
    }
  }
  EXPECT_FALSE(fs::exists("file:"));
  EXPECT_FALSE(fs::exists(base + "/made"));
  EXPECT_EQ(fs::file_size(base + "/secret"), 6u);
  // Another server of the process cannot mean another folder.
  EXPECT_EQ(TaskServer::Create(Options(engine, base)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(FileRootServerTest, GraphsFindNoNamesOutsideOfIt) {
  const std::string& base = BaseWithFiles();
  StatusOr<std::unique_ptr<TaskServer>> server =
      TaskServer::Create(Options(TheTestEngine(), base + "/root"));
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  const auto match = [&](const std::string& pattern) {
    TestGraph graph;
    AddText(&graph, "pattern", pattern);
    graph.Add("op", "MatchingFiles", {"pattern"});
    auto session = ClientSession::Create(NewGrpcRemoteMaster((*server)->address(), ClientPool()),
                                         graph.def(), {});
    std::vector<std::string> names;
    if (!session.ok()) return std::vector{session.status().ToString()};
    const auto found = (*session)->Run({}, {"op:0"}, {});
    if (!found.ok()) return std::vector{found.status().ToString()};
    for (const std::string& name : found->at(0).flat<std::string>()) names.push_back(name);
    return names;
  };
  const std::vector<std::string> within = {base + "/root/open"};
  for (const std::string pattern : {"/root/o*", "/root/open", "/root/*n"}) {
    EXPECT_EQ(match(base + pattern), within) << pattern;
  }
  for (const std::string pattern : {"/root/none", "/root/none/*"}) {
    EXPECT_EQ(match(base + pattern), std::vector<std::string>()) << pattern;
  }
  const auto expect_rule = [](const std::string& error) {
    EXPECT_TRUE(error.starts_with("PERMISSION_DENIED")) << error;
    EXPECT_NE(error.find("(--file_root)"), std::string::npos) << error;
    EXPECT_NE(error.find("op"), std::string::npos) << error;
  };
  for (const std::string pattern : {"/*", "/secret", "/root/../s*", "/root/link"}) {
    const std::vector<std::string> refused = match(base + pattern);
    ASSERT_EQ(refused.size(), 1u) << pattern;
    expect_rule(refused[0]);
    EXPECT_EQ(refused[0].find("leads to"), std::string::npos) << refused[0];
  }
  EXPECT_EQ(match("file://" + base + "/root/o*"),
            std::vector<std::string>{"file://" + base + "/root/open"});
  expect_rule(match("file://" + base + "/*").at(0));
  EXPECT_NE(match("s3://bucket/*").at(0).find("'s3' not implemented"), std::string::npos);
}

// As one on loopback does, and other than one without a folder (admission_test).
TEST(FileRootServerTest, ATaskThatOthersReachLetsGraphsWriteInIt) {
  const std::string& base = Base();
  std::ofstream(base + "/token") << "correct-horse-battery-staple";
  fs::permissions(base + "/token", fs::perms::owner_read | fs::perms::owner_write);
  TaskServerOptions reached = Options(TheTestEngine(), base + "/root", "0.0.0.0");
  reached.server.credentials.token_file = base + "/token";
  const auto credentials = LoadedCredentials::Load(reached.server.credentials);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(reached);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  const auto write = [&](const std::string& path) {
    TestGraph graph;
    AddText(&graph, "path", path);
    AddText(&graph, "text", "x");
    graph.Add("op", "WriteFile", {"path", "text"});
    auto session = ClientSession::Create(
        NewGrpcRemoteMaster((*server)->address(), ClientPool(), *credentials), graph.def(), {});
    return session.ok() ? (*session)->Run({}, {}, {"op"}).status() : session.status();
  };
  const Status written = write(base + "/root/new");
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_EQ(fs::file_size(base + "/root/new"), 1u);
  const Status outside = write(base + "/made");
  EXPECT_EQ(outside.code(), StatusCode::kPermissionDenied) << outside;
  EXPECT_FALSE(fs::exists(base + "/made"));
}

}  // namespace
}  // namespace millrace
