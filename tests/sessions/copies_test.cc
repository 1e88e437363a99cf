// SPDX-License-Identifier: Apache-2.0
// How often a tensor's bytes are copied in memory on their way from one task to another, from a
// client and to it: counted, of this process and every library in it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "runtime/registries.h"
#include "session/client_session.h"
#include "tests/cluster/in_process_cluster.h"
#include "transport/grpc/client_pool.h"

// Sanitizers have a memcpy of their own, and nothing is counted.
#if defined(__SANITIZE_ADDRESS__) || defined(_GLIBCXX_TSAN)
#define MR_COUNTS_COPIES 0
#else
#define MR_COUNTS_COPIES 1
#endif

namespace {

// What is smaller belongs to messages and tables.
constexpr std::size_t kLeastCounted = 1024;
std::atomic<int64_t> copied_bytes{0};

#if MR_COUNTS_COPIES
void* Copy(void* to, const void* from, std::size_t size, bool backwards) {
  if (size >= kLeastCounted) copied_bytes.fetch_add(static_cast<int64_t>(size));
  // No loop, which a compiler would make a call of these very functions.
#if defined(__x86_64__)
  void* end = to;
  const void* at = from;
  if (backwards) {
    end = static_cast<char*>(to) + size - 1;
    at = static_cast<const char*>(from) + size - 1;
    asm volatile("std\n\trep movsb\n\tcld" : "+D"(end), "+S"(at), "+c"(size) : : "memory");
  } else {
    asm volatile("rep movsb" : "+D"(end), "+S"(at), "+c"(size) : : "memory");
  }
#else
  volatile char* const target = static_cast<char*>(to);
  const volatile char* const source = static_cast<const char*>(from);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t at = backwards ? size - 1 - i : i;
    target[at] = source[at];
  }
#endif
  return to;
}

#endif

}  // namespace

#if MR_COUNTS_COPIES
// In place of libc's, for all that is loaded.
extern "C" void* memcpy(void* to, const void* from, std::size_t size) {
  return Copy(to, from, size, false);
}
extern "C" void* memmove(void* to, const void* from, std::size_t size) {
  const auto distance =
      reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  return Copy(to, from, size, distance < size);
}
#endif

namespace millrace::testing {
namespace {

using std::chrono::seconds;

constexpr int64_t kNumbers = 1 << 22;
constexpr int64_t kBytes = kNumbers * 4;

std::unique_ptr<TaskServer> MakeServer(const ClusterSpec& cluster, const char* job, bool links) {
  TaskServerOptions options;
  options.links = links;
  options.server.cluster = cluster;
  options.server.job_name = job;
  options.server.task_index = 0;
  options.ops = &AllOps();
  options.kernels = &AllKernels();
  auto server = TaskServer::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// A ps that keeps 16 MiB, and a worker that calculates with them.
struct Pair {
  explicit Pair(bool links) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::vector<int> ports = FreePorts(2);
      const ClusterSpec spec = *ClusterSpec::Parse("ps|127.0.0.1:" + std::to_string(ports[0]) +
                                                   ",worker|127.0.0.1:" + std::to_string(ports[1]));
      ps = MakeServer(spec, "ps", links);
      worker = MakeServer(spec, "worker", links);
      if (ps->Start().ok() && worker->Start().ok()) return;
    }
    ADD_FAILURE() << "no two ports are free";
  }
  std::unique_ptr<TaskServer> ps, worker;
};

struct Program {
  Program() {
    const Scope ps = graph.root().WithDevice("/job:ps/task:0");
    const Scope worker = graph.root().WithDevice("/job:worker/task:0");
    const Variable kept = MakeVariable(ps, "kept", Zeros(ps, {kNumbers}));
    mean = ReduceMean(worker.WithOpName("mean"), kept.read);
    const Variable near = MakeVariable(worker, "near", Zeros(worker, {kNumbers}));
    fetched = ops::Identity(worker.WithOpName("fetched"), near.read);
    fed = Placeholder(worker.WithOpName("fed"), kFloat, {kNumbers});
    mean_of_fed = ReduceMean(worker.WithOpName("mean_of_fed"), fed);
    init = InitializeVariables(graph.root().WithOpName("init"));
    EXPECT_TRUE(graph.status().ok()) << graph.status();
  }
  Graph graph;
  Output mean, fetched, fed, mean_of_fed;
  Operation init;
};

// Copies of the whole that the second and third step make, at most.
template <typename Step>
double CopiesOf(const Step& step) {
  step();
  const int64_t before = copied_bytes.load();
  step();
  step();
  const double copies = static_cast<double>(copied_bytes.load() - before) / (2.0 * kBytes);
  std::cout << "copies of each tensor: " << copies << "\n";
  return copies;
}

// Messages, tables and texts around a tensor of 16 MiB.
constexpr double kAround = 0.01;

double CopiesBetweenTasks(bool links) {
  Pair cluster(links);
  Program program;
  auto session = Session::Create(program.graph, {.target = cluster.worker->target()});
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return -1;
  EXPECT_TRUE(session->RunTargets({program.init}).ok());
  return CopiesOf([&] {
    const std::vector<Output> fetches = {program.mean};
    const auto values = session->Run({}, fetches);
    EXPECT_TRUE(values.ok()) << values.status();
  });
}

TEST(Copies, AreSeenByThisTest) {
  if (!MR_COUNTS_COPIES) GTEST_SKIP() << "built with a sanitizer";
  std::vector<char> from(1 << 20, 'x'), to(1 << 20);
  const int64_t before = copied_bytes.load();
  void* (*volatile copy)(void*, const void*, std::size_t) = &memcpy;
  copy(to.data(), from.data(), to.size());
  EXPECT_EQ(copied_bytes.load() - before, 1 << 20);
  std::string text(1 << 20, 'y');
  const std::string other(text.data(), text.size());  // by a library
  EXPECT_GE(copied_bytes.load() - before, 2 << 20);
  EXPECT_EQ(to, from);
}

TEST(Copies, BetweenTasksOverGrpcThereIsOneAtTheReceiver) {
  EXPECT_LE(CopiesBetweenTasks(/*links=*/false), 1 + kAround);
}

// Into memory that the receiver has mapped. Through the socket there would be two, by the kernel.
TEST(Copies, BetweenTasksOfOneHostThereIsOneAtTheSender) {
  const double copies = CopiesBetweenTasks(/*links=*/true);
  if (!MR_COUNTS_COPIES) return;
  EXPECT_LE(copies, 1 + kAround);
  EXPECT_GE(copies, 1 - kAround);
}

class CopiesOfClients : public ::testing::Test {
 protected:
  void SetUp() override {
    master_.reset(NewGrpcRemoteMaster(cluster_.worker->address(), ClientPool()).release());
    pb::GraphDef graph;
    ASSERT_TRUE(graph.ParseFromString(*program_.graph.ToGraphDef()));
    auto session = ClientSession::Create(master_, graph, {});
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    const auto made = session_->Run({}, {}, {program_.init.name()});
    ASSERT_TRUE(made.ok()) << made.status();
  }

  Pair cluster_{true};
  Program program_;
  std::shared_ptr<MasterInterface> master_;
  std::unique_ptr<ClientSession> session_;
};

TEST_F(CopiesOfClients, AFetchIsCopiedByTheClientAlone) {
  EXPECT_LE(CopiesOf([&] {
              const auto values = session_->Run({}, {"fetched:0"});
              EXPECT_TRUE(values.ok()) << values.status();
            }),
            1 + kAround);
}

TEST_F(CopiesOfClients, AFeedIsCopiedByTheServerAlone) {
  const Tensor fed(kFloat, Shape({kNumbers}));
  EXPECT_LE(CopiesOf([&] {
              const auto values = session_->Run({{"fed:0", fed}}, {"mean_of_fed:0"});
              EXPECT_TRUE(values.ok()) << values.status();
            }),
            1 + kAround);
}

}  // namespace
}  // namespace millrace::testing
