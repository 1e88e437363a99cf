// SPDX-License-Identifier: Apache-2.0
// Tasks that are stopped for a while, or killed with something open: what was reported as failed is
// not applied later, and the others can still be ended.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/calls/maybe_applied.h"
#include "base/errors.h"
#include "session/async_join.h"
#include "session/master_interface.h"
#include "tests/cluster/server_processes.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;

CallOptions Soon() { return {.deadline = DeadlineAfter(seconds(60))}; }

// A variable in the ps, what adds one to it, and a sum over both tasks that waits for x.
pb::GraphDef Graph() {
  pb::GraphDef graph;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(versions { producer: 1395 }
         node { name: "zero" op: "Const" device: "/job:ps/task:0"
                attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value {
                  tensor { dtype: DT_FLOAT tensor_shape { } float_val: 0 } } } }
         node { name: "one" op: "Const" device: "/job:ps/task:0"
                attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value {
                  tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 } } } }
         node { name: "v" op: "VariableV2" device: "/job:ps/task:0"
                attr { key: "dtype" value { type: DT_FLOAT } }
                attr { key: "shape" value { shape { } } } }
         node { name: "init" op: "Assign" input: "v" input: "zero" device: "/job:ps/task:0"
                attr { key: "T" value { type: DT_FLOAT } } }
         node { name: "read" op: "Identity" input: "v" device: "/job:ps/task:0"
                attr { key: "T" value { type: DT_FLOAT } } }
         node { name: "add" op: "AssignAdd" input: "v" input: "one" device: "/job:ps/task:0"
                attr { key: "T" value { type: DT_FLOAT } } }
         node { name: "x" op: "Placeholder" device: "/job:worker/task:0"
                attr { key: "dtype" value { type: DT_FLOAT } } }
         node { name: "sum" op: "AddV2" input: "one" input: "x" device: "/job:ps/task:0"
                attr { key: "T" value { type: DT_FLOAT } } }
         node { name: "back" op: "Identity" input: "sum" device: "/job:worker/task:0"
                attr { key: "T" value { type: DT_FLOAT } } })",
      &graph));
  return graph;
}

StatusOr<std::vector<Tensor>> RunNow(MasterInterface& master, const std::string& handle,
                                     std::vector<std::string> fetches,
                                     std::vector<std::string> targets, int timeout_ms = 0) {
  RunStepArgs args;
  args.session_handle = handle;
  args.fetches = std::move(fetches);
  args.targets = std::move(targets);
  args.options.set_timeout_in_ms(timeout_ms);
  return RunStep(master, std::move(args));
}

class StoppedTasks : public ::testing::Test {
 protected:
  void SetUp() override {
    master_ = servers_.Connect();
    ASSERT_NE(master_, nullptr);
    const StatusOr<std::string> handle = OpenSession(*master_, Graph());
    ASSERT_TRUE(handle.ok()) << handle.status();
    handle_ = *handle;
    const auto init = RunNow(*master_, handle_, {}, {"init"});
    ASSERT_TRUE(init.ok()) << init.status();
  }
  pid_t ps() const { return servers_.pids()[0]; }
  pid_t worker() const { return servers_.pids()[1]; }

  ServerProcesses servers_;
  std::shared_ptr<MasterInterface> master_;
  std::string handle_;
};

TEST_F(StoppedTasks, WhatWasReportedAsLateIsNotAppliedLater) {
  // The plan is there: only steps go to the ps from now on.
  ASSERT_TRUE(RunNow(*master_, handle_, {}, {"add"}).ok());
  servers_.Freeze(0);
  for (int i = 0; i < 5; ++i) {
    // Time enough to be sent: one that was not is known not to be applied.
    const Status late = RunNow(*master_, handle_, {}, {"add"}, 1'000).status();
    EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late;
    // Nobody can know: the ps has not answered.
    EXPECT_TRUE(IsMaybeApplied(late));
  }
  kill(ps(), SIGCONT);
  const auto value = RunNow(*master_, handle_, {"read:0"}, {});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)[0].scalar<float>(), 1);
}

TEST_F(StoppedTasks, AWaiterForAPlanHasItsOwnDeadline) {
  servers_.Freeze(0);
  // The first one would wait for ever.
  RunStepArgs first;
  first.session_handle = handle_;
  first.fetches = {"read:0"};
  RunStepResult result;
  Notification ended;
  master_->RunStepAsync({}, &first, &result, [&](const Status&) { ended.Notify(); });
  const Deadline begun = SteadyClock::now();
  const Status late = RunNow(*master_, handle_, {"read:0"}, {}, 300).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late;
  EXPECT_LT(SteadyClock::now() - begun, seconds(30));
  kill(ps(), SIGCONT);
  EXPECT_TRUE(ended.WaitUntil(DeadlineAfter(seconds(60))));
  EXPECT_TRUE(RunNow(*master_, handle_, {"read:0"}, {}).ok());
}

TEST_F(StoppedTasks, APsEndsAfterItsMasterDiedInAPartialRun) {
  PartialRunSetupArgs setup;
  setup.session_handle = handle_;
  setup.feeds = {"x:0"};
  setup.fetches = {"one:0", "back:0"};
  RunStepArgs part;
  ASSERT_TRUE(Await([&](auto done) {
                master_->PartialRunSetupAsync(Soon(), setup, &part.partial_run_handle, done);
              }).ok());
  part.session_handle = handle_;
  part.fetches = {"one:0"};
  ASSERT_TRUE(RunStep(*master_, std::move(part)).ok());
  kill(worker(), SIGKILL);
  kill(ps(), SIGTERM);
  EXPECT_EQ(servers_.WaitForEnd(0, seconds(60)), 0);
}

TEST_F(StoppedTasks, AServerEndsSoonWhateverItsPeersDo) {
  for (int i = 0; i < 5; ++i) {
    const StatusOr<std::string> handle = OpenSession(*master_, Graph());
    ASSERT_TRUE(handle.ok()) << handle.status();
  }
  servers_.Freeze(0);
  const Deadline begun = SteadyClock::now();
  kill(worker(), SIGTERM);
  EXPECT_EQ(servers_.WaitForEnd(1, seconds(60)), 0);
  // Ten seconds for each of six sessions would be a minute.
  EXPECT_LT(SteadyClock::now() - begun, seconds(45));
  kill(ps(), SIGCONT);
}

}  // namespace
}  // namespace millrace::testing
