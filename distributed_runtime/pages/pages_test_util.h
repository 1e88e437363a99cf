// SPDX-License-Identifier: Apache-2.0
// A ps and a worker with pages, and a session at the worker that needs both.
#ifndef DISTRIBUTED_RUNTIME_PAGES_PAGES_TEST_UTIL_H_
#define DISTRIBUTED_RUNTIME_PAGES_PAGES_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "distributed_runtime/pages/published_pages.h"
#include "distributed_runtime/task_server.h"
#include "master/session_test_util.h"
#include "session/client_session.h"
#include "tests/cluster/free_ports.h"

namespace millrace {

inline constexpr char kPs[] = "/job:ps/replica:0/task:0";
inline constexpr char kWorker[] = "/job:worker/replica:0/task:0";

struct Engine {
  Engine() { RegisterTestOpsAndKernels(ops, kernels); }
  OpRegistry ops;
  KernelRegistry kernels;
};
inline const Engine& TheEngine() {
  static const auto* const engine = new Engine;
  return *engine;
}

inline std::unique_ptr<TaskServer> MakePagesServer(const ClusterSpec& cluster, const char* job,
                                                   const Credentials& credentials = {}) {
  TaskServerOptions options;
  options.server.cluster = cluster;
  options.server.job_name = job;
  options.server.inter_op_threads = 2;
  options.server.intra_op_threads = 1;
  options.server.credentials = credentials;
  options.ops = &TheEngine().ops;
  options.kernels = &TheEngine().kernels;
  return *TaskServer::Create(options);
}

class PagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int attempt = 0; attempt < 10 && http_ == nullptr; ++attempt) {
      const std::vector<int> ports = testing::FreePorts(2);
      const ClusterSpec spec =
          *ClusterSpec::Parse(StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]));
      ps_ = MakePagesServer(spec, "ps");
      worker_ = MakePagesServer(spec, "worker");
      if (!ps_->Start().ok() || !worker_->Start().ok()) continue;
      http_ = *ServePublishedPages(worker_->address(), "127.0.0.1:0");
    }
    ASSERT_NE(http_, nullptr) << "no two ports are free";
    TestGraph graph;
    graph.Placeholder("x");
    graph.Const("far", 2, "/job:ps");
    graph.Sum("sum", "x", "far", "/job:worker");
    graph.Fail("fail", "/job:ps");
    graph.Const("near", 3, "/job:worker");
    session_ = *ClientSession::Create(*ConnectToMaster(worker_->target()), graph.def(), {});
  }

  void RunSteps(int count) {
    for (int i = 0; i < count; ++i) {
      const auto sum = session_->Run({{"x", Tensor::Scalar(1.0f)}}, {"sum"});
      ASSERT_TRUE(sum.ok()) << sum.status();
    }
  }

  std::unique_ptr<TaskServer> ps_, worker_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<ClientSession> session_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_PAGES_TEST_UTIL_H_
