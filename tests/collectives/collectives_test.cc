// SPDX-License-Identifier: Apache-2.0
// Collectives of sessions: between devices of one task, between tasks of one session, and between
// sessions of several masters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/strings.h"
#include "distributed_runtime/service/control_service.h"
#include "distributed_runtime/service/observe_service.h"
#include "distributed_runtime/task_server.h"
#include "millrace/core.h"
#include "observe/open_metrics.h"
#include "session/async_join.h"
#include "session/master_interface.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string TextOf(const Status& status) { return std::string(Message(status)); }

std::string WorkerDevice(int task) { return StrCat("/job:worker/task:", task, "/device:CPU:0"); }

Output Reduce(const Scope& scope, Input value, int group_size, int instance_key,
              const char* merge = "Add", const char* final = "Id") {
  const std::vector<Input> inputs = {std::move(value)};
  return Output(scope.AddOp("CollectiveReduce", inputs,
                            {{"group_size", int64_t{group_size}},
                             {"group_key", int64_t{1}},
                             {"instance_key", int64_t{instance_key}},
                             {"merge_op", std::string(merge)},
                             {"final_op", std::string(final)},
                             {"subdiv_offsets", std::vector<int64_t>{0}}},
                            std::source_location::current()),
                0);
}

Tensor Counting(int64_t count, float first) {
  Tensor t(kFloat, Shape({count}));
  for (int64_t i = 0; i < count; ++i) t.data<float>()[i] = first + static_cast<float>(i);
  return t;
}

TEST(LocalCollectives, ReduceGatherAndBroadcastBetweenTheDevicesOfASession) {
  Graph graph;
  std::vector<Output> fetches;
  for (int i = 0; i < 3; ++i) {
    const Scope device = graph.root().WithDevice(StrCat("/device:CPU:", i));
    const Output value = Constant(device, Counting(20, static_cast<float>(i)));
    fetches.push_back(Reduce(device, value, 3, 1, "Add", "Div"));
    const std::vector<Input> part = {value};
    fetches.emplace_back(device.AddOp("CollectiveGather", part,
                                      {{"group_size", int64_t{3}},
                                       {"group_key", int64_t{1}},
                                       {"instance_key", int64_t{2}},
                                       {"shape", PartialShape({60})}},
                                      std::source_location::current()),
                         0);
    std::vector<Input> keys = {3, 1, 3};
    if (i == 1) {
      keys.insert(keys.begin(), value);
    } else {
      keys.emplace_back(std::initializer_list<int32_t>{20});
    }
    std::vector<std::pair<std::string, AttrValue>> attrs;
    if (i != 1) attrs.emplace_back("T", kFloat);
    fetches.emplace_back(device.AddOp(i == 1 ? "CollectiveBcastSendV2" : "CollectiveBcastRecvV2",
                                      keys, attrs, std::source_location::current()),
                         0);
  }
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  auto session = Session::Create(graph, {.num_cpu_devices = 3});
  ASSERT_TRUE(session.ok()) << session.status();
  for (int step = 0; step < 3; ++step) {
    const auto values = session->Run({}, fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(TensorsEqual(values->at(3 * i), Counting(20, 1)));
      ASSERT_EQ(values->at(3 * i + 1).num_elements(), 60);
      EXPECT_EQ(values->at(3 * i + 1).data<float>()[41], 3);
      EXPECT_TRUE(TensorsEqual(values->at(3 * i + 2), Counting(20, 1)));
    }
  }
}

TEST(LocalCollectives, OfOneMemberGiveItsOwnValue) {
  Graph graph;
  const Output sum = Reduce(graph.root(), Constant(graph.root(), Counting(5, 2)), 1, 1);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto value = session->Eval(sum);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_TRUE(TensorsEqual(*value, Counting(5, 2)));
}

TEST(LocalCollectives, OfAMissingMemberEndWithTheStepAndSayWhoWasThere) {
  Graph graph;
  const Output sum = Reduce(graph.root(), Constant(graph.root(), Counting(5, 2)), 2, 1);
  auto session = Session::Create(graph, {.step_timeout = seconds(2)});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto value = session->Eval(sum);
  EXPECT_EQ(value.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(value.status()),
              AllOf(HasSubstr("the collective group 1 of 2 members is not complete"),
                    HasSubstr("/job:localhost/replica:0/task:0/device:CPU:0")));
}

TEST(LocalCollectives, FailTogether) {
  Graph graph;
  std::vector<Output> fetches;
  for (int i = 0; i < 2; ++i) {
    const Scope device = graph.root().WithDevice(StrCat("/device:CPU:", i));
    fetches.push_back(Reduce(device, Constant(device, Counting(5 + i, 0)), 2, 1));
  }
  auto session = Session::Create(graph, {.num_cpu_devices = 2});
  ASSERT_TRUE(session.ok()) << session.status();
  for (int step = 0; step < 2; ++step) {
    const auto values = session->Run({}, fetches);
    EXPECT_EQ(values.status().code(), StatusCode::kInvalidArgument) << values.status();
    EXPECT_THAT(TextOf(values.status()),
                AllOf(HasSubstr("Shape mismatch in the collective instance 1"), HasSubstr("[5]"),
                      HasSubstr("[6]"), HasSubstr("CPU:1"), HasSubstr("CollectiveReduce")));
  }
}

TEST(LocalCollectives, ThatDisagreeAreRefusedBeforeTheStepWithBothNodes) {
  struct Difference {
    int size;
    const char *merge, *final;
    DataType type;
    std::vector<std::string> said;
  };
  const Difference differences[] = {
      {3, "Add", "Id", kFloat, {"must agree on their group_size", "it is 3 for", "and 2 for"}},
      {2, "Max", "Id", kFloat, {"must agree on their merge_op", "it is Max for", "and Add for"}},
      {2, "Add", "Div", kFloat, {"must agree on their final_op", "it is Div for", "and Id for"}},
      {2, "Add", "Id", kDouble, {"must agree on their T", "it is double for", "and float for"}},
  };
  for (const Difference& other : differences) {
    Graph graph;
    const Scope first = graph.root().WithDevice("/device:CPU:0").WithOpName("first");
    const Scope second = graph.root().WithDevice("/device:CPU:1").WithOpName("second");
    const Output a = Reduce(first, Constant(graph.root(), Counting(5, 0)), 2, 1);
    const Tensor value = other.type == kFloat ? Counting(5, 0) : Tensor(kDouble, Shape({5}));
    const Output b =
        Reduce(second, Constant(graph.root(), value), other.size, 1, other.merge, other.final);
    // Neither waits for the other until the deadline.
    auto session = Session::Create(graph, {.num_cpu_devices = 2, .step_timeout = seconds(300)});
    ASSERT_TRUE(session.ok()) << session.status();
    const Status status = session->Run({}, std::vector<Output>{a, b}).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
    for (const std::string& part : other.said) EXPECT_THAT(TextOf(status), HasSubstr(part));
    EXPECT_THAT(TextOf(status),
                AllOf(HasSubstr("group_key 1 and instance_key 1"), HasSubstr("{{node first}}"),
                      HasSubstr("{{node second}}"), HasSubstr("/device:CPU:1")));
  }
}

TEST(CollectivesOfTasks, RunInOneSession) {
  InProcessCluster cluster(0, 3);
  Graph graph;
  std::vector<Output> fetches;
  for (int i = 0; i < 3; ++i) {
    const Scope device = graph.root().WithDevice(WorkerDevice(i));
    const Output value = Constant(device, Counting(50'000, static_cast<float>(i)));
    for (int k = 0; k < 4; ++k) fetches.push_back(Reduce(device, value, 3, k));
  }
  auto session = Session::Create(graph, {.target = cluster.Target("worker", 1)});
  ASSERT_TRUE(session.ok()) << session.status();
  for (int step = 0; step < 5; ++step) {
    const auto values = session->Run({}, fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    for (const Tensor& value : *values) {
      ASSERT_EQ(value.data<float>()[0], 3);
      ASSERT_EQ(value.data<float>()[49'999], 3 + 3 * 49'999.0f);
    }
  }
}

// One member of a group, with a master of its own; task 0 leads.
class Member {
 public:
  Member(const InProcessCluster& cluster, int task, int group_size, int count = 1000)
      : task_(task) {
    Graph graph;
    const Scope device = graph.root().WithDevice(WorkerDevice(task));
    sum_ =
        Reduce(device, Constant(device, Counting(count, static_cast<float>(task))), group_size, 1)
            .name();
    CreateSessionArgs args;
    EXPECT_TRUE(args.graph.ParseFromString(graph.ToGraphDef().value_or("")));
    args.config.add_device_filters(StrCat("/job:worker/task:", task));
    args.config.mutable_experimental()->set_collective_group_leader("/job:worker/replica:0/task:0");
    auto master = ConnectToMaster(cluster.Target("worker", task));
    EXPECT_TRUE(master.ok()) << master.status();
    if (!master.ok()) return;
    master_ = *master;
    CreateSessionResult created;
    const Status status = Await([&](auto done) {
      master_->CreateSessionAsync({.deadline = DeadlineAfter(seconds(30))}, std::move(args),
                                  &created, done);
    });
    EXPECT_TRUE(status.ok()) << status;
    handle_ = created.session_handle;
  }

  Status Run(milliseconds timeout, Tensor* value) {
    RunStepArgs args;
    args.session_handle = handle_;
    args.fetches = {sum_};
    args.options.set_timeout_in_ms(timeout.count());
    args.options.mutable_experimental()->set_collective_graph_key(9);
    RunStepResult result;
    const Status status = Await([&](auto done) {
      master_->RunStepAsync({.deadline = DeadlineAfter(timeout + seconds(30))}, &args, &result,
                            done);
    });
    if (status.ok()) *value = result.fetches.at(0);
    return status;
  }

 private:
  const int task_;
  std::string sum_, handle_;
  std::shared_ptr<MasterInterface> master_;
};

// All members at once; the status of each.
std::vector<Status> RunAll(std::vector<std::unique_ptr<Member>>& members, milliseconds timeout) {
  std::vector<Status> statuses(members.size());
  std::vector<Tensor> values(members.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = members[i]->Run(timeout, &values[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (statuses[i].ok() && statuses[0].ok()) {
      EXPECT_TRUE(TensorsEqual(values[i], values[0]));
    }
  }
  return statuses;
}

std::string AddressOf(const InProcessCluster& cluster, int worker) {
  return cluster.Target("worker", worker).substr(std::string("grpc://").size());
}

TEST(CollectivesOfMasters, MeetInTheSameStep) {
  InProcessCluster cluster(0, 3);
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 3; ++i) members.push_back(std::make_unique<Member>(cluster, i, 3));
  for (int step = 0; step < 10; ++step) {
    for (const Status& status : RunAll(members, seconds(60))) ASSERT_TRUE(status.ok()) << status;
  }
  for (int i = 0; i < 3; ++i) {
    const auto page = ReadPage(AddressOf(cluster, i), "/metrics", DeadlineAfter(seconds(30)));
    ASSERT_TRUE(page.ok()) << page.status();
    const auto samples = ParseOpenMetrics(page->body);
    ASSERT_TRUE(samples.ok()) << samples.status();
    double received = 0, of_collectives = 0;
    for (const MetricSample& sample : *samples) {
      if (sample.name == "millrace_peer_received_bytes_total") received += sample.value;
      if (sample.name == "millrace_peer_collective_bytes_total") of_collectives += sample.value;
    }
    EXPECT_GE(of_collectives, 10 * 1000 * sizeof(float)) << "a sum of 1,000 floats, ten times";
    EXPECT_EQ(received, of_collectives);
  }
}

TEST(CollectivesOfMasters, FailTogetherAndGoOn) {
  InProcessCluster cluster(0, 2);
  std::vector<std::unique_ptr<Member>> members;
  members.push_back(std::make_unique<Member>(cluster, 0, 2, 1000));
  members.push_back(std::make_unique<Member>(cluster, 1, 2, 1001));
  for (const Status& status : RunAll(members, seconds(60))) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(TextOf(status), HasSubstr("Shape mismatch in the collective instance 1"));
  }
  members[1] = std::make_unique<Member>(cluster, 1, 2, 1000);
  for (const Status& status : RunAll(members, seconds(60))) EXPECT_TRUE(status.ok()) << status;
}

// Until steps of so many tasks are seen to wait.
bool WaitUntilTasksWait(const InProcessCluster& cluster, std::size_t count) {
  for (const Deadline limit = DeadlineAfter(seconds(60)); SteadyClock::now() < limit;) {
    const auto report = GetWhyWaiting(AddressOf(cluster, 0), limit);
    if (!report.ok()) continue;
    std::set<std::string> tasks;
    for (const pb::Wait& wait : report->wait()) tasks.insert(wait.task());
    if (tasks.size() >= count) return true;
  }
  return false;
}

TEST(CollectivesOfMasters, EndWhenAMemberIsGoneAndNameIt) {
  InProcessCluster cluster(0, 3);
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 3; ++i) members.push_back(std::make_unique<Member>(cluster, i, 3));
  for (const Status& status : RunAll(members, seconds(60))) ASSERT_TRUE(status.ok()) << status;
  // The others are in their step when the last one goes.
  members.pop_back();
  std::vector<Status> statuses;
  std::thread others([&] { statuses = RunAll(members, seconds(60)); });
  EXPECT_TRUE(WaitUntilTasksWait(cluster, 2));
  cluster.Stop("worker", 2);
  others.join();
  for (const Status& status : statuses) {
    EXPECT_THAT(status.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << status;
    EXPECT_THAT(TextOf(status), HasSubstr("/job:worker/replica:0/task:2"));
  }
  // A new one takes its place: the first attempt may still meet the old group.
  cluster.Start("worker", 2);
  members.push_back(std::make_unique<Member>(cluster, 2, 3));
  bool together = false;
  std::string errors;
  const auto limit = std::chrono::steady_clock::now() + seconds(60);
  for (seconds patience(2); !together && std::chrono::steady_clock::now() < limit; patience *= 2) {
    together = true;
    for (const Status& status : RunAll(members, patience)) {
      together = together && status.ok();
      StrAppend(&errors, TextOf(status), "\n");
    }
  }
  EXPECT_TRUE(together) << errors;
}

}  // namespace
}  // namespace millrace::testing
