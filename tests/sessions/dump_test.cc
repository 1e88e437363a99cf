// SPDX-License-Identifier: Apache-2.0
// Graph dumps as programs ask for them: of a session in this process, and of a cluster.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "millrace/core.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

using Tree = std::map<std::string, std::string>;  // content by path

Tree ReadTree(const fs::path& folder) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    tree[fs::relative(entry.path(), folder).string()] = text.str();
  }
  return tree;
}

// A new folder of this test that is not there yet.
std::string NewFolder() {
  static int count = 0;
  return ::testing::TempDir() + "/dumps_" + std::to_string(getpid()) + "_" +
         std::to_string(++count);
}

// w (where `setter` puts variables) learns w * x = y.
struct Program {
  explicit Program(DeviceFunction setter) {
    Scope scope = graph.root();
    if (setter) scope = scope.WithDevice(std::move(setter));
    x = Placeholder(scope.WithOpName("x"), kFloat, {4, 3});
    const Variable w = MakeVariable(scope, "w", Zeros(scope, {3, 2}));
    const Output line = ops::MatMul(scope, x, w.read);
    loss = ReduceMean(scope.WithOpName("loss"), ops::Square(scope, line));
    const Variable step = GlobalStep(scope);
    auto made = GradientDescent({.learning_rate = 0.1f})->Minimize(scope, loss, &step);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) train = *made;
    init = InitializeVariables(scope);
    EXPECT_TRUE(graph.status().ok()) << graph.status();
  }

  void Run(const SessionOptions& options) {
    StatusOr<Session> session = Session::Create(graph, options);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({init}).ok());
    for (int i = 0; i < 3; ++i) {
      const auto out = session->Run({{x, Tensor(kFloat, Shape({4, 3}))}}, {loss}, {train});
      ASSERT_TRUE(out.ok()) << out.status();
    }
    EXPECT_TRUE(session->Close().ok());
  }

  Graph graph;
  Output x, loss;
  Operation train, init;
};

Tree LocalDump() {
  const std::string folder = NewFolder();
  Program(nullptr).Run({.dump_dir = folder});
  return ReadTree(folder);
}

TEST(Dump, TwoEqualLocalSessionsWriteTheSameBytes) {
  const Tree first = LocalDump();
  EXPECT_GT(first.size(), 10u);
  EXPECT_EQ(first, LocalDump());
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// A ps and a worker in this process; the worker's sessions are dumped.
struct Cluster {
  explicit Cluster(const std::string& dump_dir) {
    // Somebody else may take a port in between: then others are tried.
    for (int attempt = 0; attempt < 10; ++attempt) {
      const StatusOr<ClusterSpec> spec =
          ClusterSpec::Parse("ps|127.0.0.1:" + std::to_string(FreePort()) +
                             ",worker|127.0.0.1:" + std::to_string(FreePort()));
      if (!spec.ok()) continue;  // the same port twice
      ps = *Server::Create({.cluster = *spec, .job_name = "ps"});
      worker = *Server::Create({.cluster = *spec, .job_name = "worker", .dump_dir = dump_dir});
      if (ps->Start().ok() && worker->Start().ok()) return;
    }
    ADD_FAILURE() << "no two ports are free";
  }
  std::unique_ptr<Server> ps, worker;
};

DeviceFunction PsAndWorker() {
  ReplicaDeviceSetterOptions options;
  options.ps_tasks = 1;
  options.worker_device = "/job:worker/task:0";
  return ReplicaDeviceSetter(std::move(options));
}

Tree ClusterDump() {
  const std::string folder = NewFolder();
  const Cluster cluster(folder);
  Program(PsAndWorker()).Run({.target = cluster.worker->target()});
  return ReadTree(folder);
}

TEST(Dump, TwoEqualRunsOfAClusterWriteTheSameBytes) {
  const Tree first = ClusterDump();
  EXPECT_GT(first.size(), 10u);
  EXPECT_EQ(first, ClusterDump());
}

TEST(Dump, ShowsWhatTravelsBetweenTheTasksOfACluster) {
  int pictures = 0;
  for (const auto& [path, dot] : ClusterDump()) {
    if (!path.ends_with("_partitions.dot") || path.find("run_init") != std::string::npos) continue;
    ++pictures;
    // w and its gradient, 3 x 2 floats each, and what the client feeds and fetches.
    size_t transfers = 0;
    for (size_t at = 0; (at = dot.find("label=\"24 B\"", at)) != std::string::npos; ++at) {
      ++transfers;
    }
    EXPECT_EQ(transfers, 2u) << dot;
    EXPECT_THAT(dot, HasSubstr("label=\"client\""));
    EXPECT_THAT(dot, Not(HasSubstr("plaintext, label=\"/job"))) << "an end without its other end";
  }
  EXPECT_EQ(pictures, 1);
}

TEST(Dump, AClientDoesNotChooseWhereAServerWrites) {
  const std::string folder = NewFolder(), servers = NewFolder();
  const Cluster cluster(servers);
  Program program(PsAndWorker());
  const auto session =
      Session::Create(program.graph, {.target = cluster.worker->target(), .dump_dir = folder});
  EXPECT_EQ(session.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(session.status().message()), HasSubstr("dump_dir"));
  EXPECT_FALSE(fs::exists(folder));
}

TEST(Dump, AFolderThatCannotBeMadeIsToldBeforeAnythingRuns) {
  Program program(nullptr);
  const auto session = Session::Create(program.graph, {.dump_dir = "/dev/null/dumps"});
  EXPECT_THAT(std::string(session.status().message()), HasSubstr("/dev/null/dumps"));
  const auto spec = ClusterSpec::Parse("worker|127.0.0.1:0");
  const auto server =
      Server::Create({.cluster = *spec, .job_name = "worker", .dump_dir = "/dev/null/dumps"});
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("/dev/null/dumps"));
}

}  // namespace
}  // namespace millrace
