// SPDX-License-Identifier: Apache-2.0
// Two jobs of which one has an address of the other by mistake: it is told so, and the other one
// trains on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const Status& status) { return std::string(Message(status)); }

std::unique_ptr<Server> StartServer(const std::string& spec, const std::string& job, int task,
                                    const std::string& cluster_id = "") {
  ServerOptions options;
  options.cluster = *ClusterSpec::Parse(spec);
  options.job_name = job;
  options.task_index = task;
  options.inter_op_threads = 2;
  options.intra_op_threads = 1;
  options.cluster_id = cluster_id;
  StatusOr<std::unique_ptr<Server>> server = Server::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  const Status started = (*server)->Start();
  EXPECT_TRUE(started.ok()) << started;
  return *std::move(server);
}

// w on the ps, 1 at first, to which steps add 1.
struct Program {
  Program() {
    const Scope root = graph.root().WithDevice("/job:ps/task:0");
    w = MakeVariable(root, "w", Constant(root, Tensor::Scalar(1.0f)));
    add = AssignAdd(root, w, Tensor::Scalar(1.0f));
    // Something at the worker, so that values cross.
    seen = ops::Identity(graph.root().WithDevice("/job:worker/task:0"), w.read);
    init = InitializeVariables(root);
  }
  float Read(Session& session) {
    const auto value = session.Run({}, {seen});
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? (*value)[0].scalar<float>() : -1;
  }
  Graph graph;
  Variable w;
  Operation add, init;
  Output seen;
};

// The jobs "ours", a ps and a worker, and "theirs", whose worker 0 has our ps's address.
class TwoJobs : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const std::vector<int> ports = FreePorts(3);
    ps_address_ = StrCat("127.0.0.1:", ports[0]);
    our_address_ = StrCat("127.0.0.1:", ports[1]);
    their_address_ = StrCat("127.0.0.1:", ports[2]);
    ps_ = StartServer(Spec(our_address_), "ps", 0, Id("ours"));
  }
  std::string Spec(const std::string& worker) const {
    return StrCat("ps|", ps_address_, ",worker|", worker);
  }
  static std::string Id(const char* id) { return GetParam() ? id : ""; }
  std::unique_ptr<Server> StartOurs() {
    return StartServer(Spec(our_address_), "worker", 0, Id("ours"));
  }
  std::unique_ptr<Server> StartTheirs() {
    return StartServer(Spec(their_address_), "worker", 0, Id("theirs"));
  }

  std::string ps_address_, our_address_, their_address_;
  std::unique_ptr<Server> ps_;
};

TEST_P(TwoJobs, TheOtherOneIsRefusedAndOursTrainsOn) {
  const auto ours = StartOurs();
  Program program;
  auto session = Session::Create(program.graph, {.target = ours->target()});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({program.init}).ok());

  const auto theirs = StartTheirs();
  for (int i = 0; i < 3; ++i) {
    Program other;
    const auto refused = Session::Create(other.graph, {.target = theirs->target()});
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(errors::IsFailedPrecondition(refused.status())) << refused.status();
    EXPECT_THAT(Text(refused.status()),
                AllOf(HasSubstr("/job:ps/replica:0/task:0"), HasSubstr(ps_address_),
                      HasSubstr("/job:worker/replica:0/task:0")));
    // Not a step of ours has noticed.
    const Status added = session->RunTargets({program.add});
    ASSERT_TRUE(added.ok()) << added;
    EXPECT_EQ(program.Read(*session), 2 + i);
  }
}

// Before ours is there nobody can tell who is right, unless the jobs have names.
TEST_P(TwoJobs, OursTakesOverFromOneThatCameFirst) {
  const auto theirs = StartTheirs();
  Program other;
  auto early = Session::Create(other.graph, {.target = theirs->target()});
  EXPECT_EQ(early.ok(), !GetParam()) << early.status();

  const auto ours = StartOurs();
  Program program;
  auto session = Session::Create(program.graph, {.target = ours->target()});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({program.init}).ok());
  EXPECT_EQ(program.Read(*session), 1);
  if (early.ok()) {
    EXPECT_FALSE(early->RunTargets({other.add}).ok());
  }
  EXPECT_EQ(program.Read(*session), 1);
}

INSTANTIATE_TEST_SUITE_P(Identity, TwoJobs, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ByName" : "ByAddress"; });

TEST(WrongAddress, OfATaskIsToldWithBothTasksAndTheAddress) {
  const std::vector<int> ports = FreePorts(3);
  const std::string first = StrCat("127.0.0.1:", ports[0]), second = StrCat("127.0.0.1:", ports[1]),
                    ps = StrCat("127.0.0.1:", ports[2]);
  const auto other = StartServer(StrCat("ps|", ps, ",worker|", first, ";", second), "worker", 1);
  // The second worker's address in place of the ps's.
  const auto worker = StartServer(StrCat("ps|", second, ",worker|", first), "worker", 0);
  Program program;
  const auto session = Session::Create(program.graph, {.target = worker->target()});
  ASSERT_FALSE(session.ok());
  EXPECT_TRUE(errors::IsFailedPrecondition(session.status())) << session.status();
  EXPECT_THAT(Text(session.status()),
              AllOf(HasSubstr("/job:ps/replica:0/task:0"),
                    HasSubstr("/job:worker/replica:0/task:1"), HasSubstr(second)));
}

TEST(WrongAddress, OfASilentTaskIsTold) {
  const std::vector<int> ports = FreePorts(2);
  const std::string ps = StrCat("127.0.0.1:", ports[0]);
  const auto worker = StartServer(StrCat("ps|", ps, ",worker|127.0.0.1:", ports[1]), "worker", 0);
  Program program;
  const auto session = Session::Create(
      program.graph,
      {.target = worker->target(), .start_timeout = std::chrono::milliseconds(1500)});
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(Text(session.status()), AllOf(HasSubstr("/job:ps/replica:0/task:0"), HasSubstr(ps)));
}

// Legal: the own entry may be a name for the same address, the others' may differ.
TEST(Addresses, MayDifferBetweenTheSpecificationsOfTheTasks) {
  const std::vector<int> ports = FreePorts(2);
  const std::string ps = StrCat("127.0.0.1:", ports[0]), worker = StrCat("127.0.0.1:", ports[1]);
  const auto ps_server =
      StartServer(StrCat("ps|localhost:", ports[0], ",worker|", worker), "ps", 0);
  const auto worker_server =
      StartServer(StrCat("ps|", ps, ",worker|localhost:", ports[1]), "worker", 0);
  Program program;
  auto session = Session::Create(program.graph, {.target = worker_server->target()});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({program.init}).ok());
  EXPECT_EQ(program.Read(*session), 1);
}

}  // namespace
}  // namespace millrace::testing
