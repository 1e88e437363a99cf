// SPDX-License-Identifier: Apache-2.0
// A step that comes to a parameter server twice, as a master would send it that believes the first
// to be lost: it is applied once, and the second is counted.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/thread_pool.h"
#include "distributed_runtime/stub/remote_worker.h"
#include "graph/graph_def_io.h"
#include "millrace/ledger.h"
#include "ops/all_ops.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;

constexpr char kMaster[] = "/job:worker/replica:0/task:0";
constexpr char kVariable[] = R"(
  node { name: "w" op: "VariableV2"
         attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape {} } } }
  node { name: "one" op: "Const"
         attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 } } } })";
constexpr char kInit[] = R"(
  node { name: "init" op: "Assign" input: "w" input: "one"
         attr { key: "T" value { type: DT_FLOAT } } })";
constexpr char kPush[] = R"(
  node { name: "push" op: "ApplyGradientDescent" input: "w" input: "one" input: "one"
         attr { key: "T" value { type: DT_FLOAT } } })";

template <typename Begin>
Status Await(const Begin& begin) {
  Notification done;
  Status status;
  begin([&](Status ended) {
    status = std::move(ended);
    done.Notify();
  });
  done.Wait();
  return status;
}

// Worker 0 as far as the ps can see: it opens a session in that task's name.
class Master {
 public:
  explicit Master(const InProcessCluster& cluster)
      : ps_(Stub(cluster.Target("ps", 0), "/job:ps/replica:0/task:0")) {
    EXPECT_TRUE(RegisterAllOps(ops_).ok());
    std::vector<pb::DeviceAttributes> own;
    const auto worker = Stub(cluster.Target("worker", 0), kMaster);
    EXPECT_TRUE(Await([&](auto done) { worker->GetStatusAsync(Soon(), &own, done); }).ok());
    EXPECT_TRUE(Await([&](auto done) { ps_->GetStatusAsync(Soon(), &devices_, done); }).ok());
    WorkerSessionOptions session;
    session.session_handle = "s";
    session.master_task = kMaster;
    session.master_incarnation = static_cast<int64_t>(own.at(0).incarnation());
    const Status opened = Await([&](auto done) { ps_->CreateSessionAsync(Soon(), session, done); });
    EXPECT_TRUE(opened.ok()) << opened;
  }
  std::string Register(const std::string& nodes) {
    pb::GraphDef def;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(nodes, &def));
    for (pb::NodeDef& node : *def.mutable_node()) node.set_device(devices_.at(0).name());
    RegisterGraphArgs args;
    args.session_handle = "s";
    args.graph = std::make_unique<DataflowGraph>(&ops_);
    EXPECT_TRUE(ImportGraphDef({.internal_names = true, .devices_are_assigned = true}, def,
                               args.graph.get())
                    .ok());
    std::string handle;
    const Status registered =
        Await([&](auto done) { ps_->RegisterGraphAsync(Soon(), std::move(args), &handle, done); });
    EXPECT_TRUE(registered.ok()) << registered;
    return handle;
  }
  Status Run(const std::string& graph, int64_t step_id) {
    RunGraphArgs args;
    args.session_handle = "s";
    args.graph_handle = graph;
    args.step_id = step_id;
    RunGraphResult result;
    return Await([&](auto done) { ps_->RunGraphAsync(Soon(), &args, &result, done); });
  }

 private:
  static CallOptions Soon() { return {.deadline = DeadlineAfter(seconds(60))}; }
  std::shared_ptr<WorkerInterface> Stub(const std::string& target, const std::string& task) {
    return NewGrpcRemoteWorker(target.substr(std::string("grpc://").size()), task, &pool_, &pool_);
  }

  ThreadPool pool_{"stub", 2};
  OpRegistry ops_;
  const std::shared_ptr<WorkerInterface> ps_;
  std::vector<pb::DeviceAttributes> devices_;
};

TEST(UpdatesOfAStepThatComesTwice, AreAppliedOnceAndCounted) {
  InProcessCluster cluster(1, 1);
  Master master(cluster);
  const std::string init = master.Register(std::string(kVariable) + kInit);
  const std::string push = master.Register(std::string(kVariable) + kPush);
  ASSERT_TRUE(master.Run(init, 1).ok());
  ASSERT_TRUE(master.Run(push, 2).ok());
  const Status again = master.Run(push, 2);
  EXPECT_TRUE(errors::IsAlreadyExists(again)) << again;
  EXPECT_THAT(std::string(Message(again)), ::testing::HasSubstr(kMaster));
  ASSERT_TRUE(master.Run(push, 3).ok());
  const auto ledger = ReadLedger(cluster.Target("ps", 0), {.timeout = seconds(30)});
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  EXPECT_TRUE(ledger->Balances()) << LedgerToText(*ledger);
  ASSERT_EQ(ledger->entries.size(), 1u) << LedgerToText(*ledger);
  ASSERT_EQ(ledger->entries[0].accounts.size(), 1u);
  const UpdateAccount& w = ledger->entries[0].accounts[0];
  EXPECT_EQ(w.task, kMaster);
  EXPECT_EQ(w.pushed, 3);
  EXPECT_EQ(w.applied, 2);
  EXPECT_EQ(w.duplicate, 1);
}

}  // namespace
}  // namespace millrace::testing
