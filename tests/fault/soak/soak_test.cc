// Servers, sessions and steps again and again: what they took is given back. A short form by
// default; with MILLRACE_SOAK=all 200 starts, 10,000 sessions and a million steps.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/process.h"
#include "tests/fault/soak/usage.h"

namespace millrace::testing {
namespace {

constexpr std::chrono::seconds kPatience{60};

bool Long() {
  const char* const soak = std::getenv("MILLRACE_SOAK");
  return soak != nullptr && std::string(soak) == "all";
}

void Print(const char* what, int count, const Usage& before, const Usage& after) {
  std::printf("%d %s: memory %lld -> %lld KiB, threads %lld -> %lld, descriptors %lld -> %lld\n",
              count, what, static_cast<long long>(before.memory_kib),
              static_cast<long long>(after.memory_kib), static_cast<long long>(before.threads),
              static_cast<long long>(after.threads), static_cast<long long>(before.descriptors),
              static_cast<long long>(after.descriptors));
  std::fflush(stdout);
}

// Not more than before; in a short run what is kept to be used again may still grow.
void ExpectGivenBack(const Usage& before, const Usage& after) {
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
  const double most = Long() ? 1.02 : 1.25;
  EXPECT_LE(static_cast<double>(after.memory_kib), most * static_cast<double>(before.memory_kib));
}

// A variable, what adds to it, and a sum that goes over the network.
struct SmallProgram {
  explicit SmallProgram(const std::string& ps, const std::string& worker) {
    const Scope root = graph.root().WithDevice(ps);
    w = MakeVariable(root, "w", Constant(root, Tensor::Scalar(0.0f)));
    add = AssignAdd(root, w, Tensor::Scalar(1.0f));
    seen = ops::Identity(graph.root().WithDevice(worker), w.read);
    init = InitializeVariables(root);
  }
  Graph graph;
  Variable w;
  Operation add, init;
  Output seen;
};

TEST(Soak, ServersThatAreStoppedLeaveNothing) {
  constexpr int kWarmUp = 10;
  const int cycles = Long() ? 200 : 15;
  Usage before;
  for (int i = 0; i < kWarmUp + cycles; ++i) {
    if (i == kWarmUp) before = UsageOf(getpid());
    InProcessCluster cluster(1, 1);
    SmallProgram program("/job:ps/task:0", "/job:worker/task:0");
    auto session = Session::Create(program.graph, {.target = cluster.Target("worker", 0)});
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({program.init}).ok());
    ASSERT_TRUE(session->RunTargets({program.add}).ok());
    const auto value = session->Eval(program.seen);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->scalar<float>(), 1);
  }
  const Usage after = SettledUsage(getpid(), before);
  Print("starts and stops of two servers", cycles, before, after);
  ExpectGivenBack(before, after);
}

// A server as a process of its own, so that the client's memory is not counted.
class OneServer : public ::testing::Test {
 protected:
  void SetUp() override {
    const int port = FreePorts(1)[0];
    server_ = std::make_unique<Process>(
        "tools/millrace",
        std::vector<std::string>{"server", StrCat("--cluster_spec=worker|127.0.0.1:", port),
                                 "--job_name=worker", "--task_id=0"});
    ASSERT_TRUE(server_->WaitForOutput("listening on", kPatience)) << server_->output();
    target_ = StrCat("grpc://127.0.0.1:", port);
  }
  std::unique_ptr<Process> server_;
  std::string target_;
};

TEST_F(OneServer, SessionsThatAreClosedLeaveNothing) {
  const int sessions = Long() ? 10'000 : 300, warm_up = Long() ? 1'000 : 100;
  SmallProgram program("/job:worker/task:0", "/job:worker/task:0");
  Usage before;
  for (int i = 0; i < warm_up + sessions; ++i) {
    if (i == warm_up) before = UsageOf(server_->pid());
    auto session = Session::Create(program.graph, {.target = target_});
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({program.init}).ok());
    ASSERT_TRUE(session->RunTargets({program.add}).ok());
    const auto value = session->Eval(program.seen);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->scalar<float>(), 1);
  }
  const Usage after = SettledUsage(server_->pid(), before);
  Print("sessions", sessions, before, after);
  ExpectGivenBack(before, after);
}

TEST_F(OneServer, StepsLeaveNothing) {
  const int steps = Long() ? 1'000'000 : 10'000, warm_up = Long() ? 10'000 : 2'000;
  SmallProgram program("/job:worker/task:0", "/job:worker/task:0");
  auto session = Session::Create(program.graph, {.target = target_});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({program.init}).ok());
  Usage before;
  for (int i = 0; i < warm_up + steps; ++i) {
    if (i == warm_up) before = UsageOf(server_->pid());
    const Status status = session->RunTargets({program.add});
    ASSERT_TRUE(status.ok()) << status;
  }
  const Usage after = SettledUsage(server_->pid(), before);
  Print("steps", steps, before, after);
  ExpectGivenBack(before, after);
}

}  // namespace
}  // namespace millrace::testing
