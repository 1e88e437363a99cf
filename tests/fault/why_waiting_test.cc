// SPDX-License-Identifier: Apache-2.0
// Hangs of a cluster, made one by one: whoever asks why it waits is told the culprit first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "distributed_runtime/service/control_service.h"
#include "distributed_runtime/stub/remote_worker.h"
#include "graph/graph_def_io.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "ops/all_ops.h"
#include "session/wait_report.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr seconds kPatience{60};
constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker1[] = "/job:worker/replica:0/task:1";

std::string Text(const Status& status) { return std::string(Message(status)); }

StatusOr<pb::WaitReport> Ask(const std::string& target, seconds limit = kPatience) {
  const std::string address = target.substr(std::string("grpc://").size());
  return GetWhyWaiting(address, DeadlineAfter(limit));
}

// Asks until the first wait is as `fits` says: a hang begins when it begins. A task that stands
// still is waited for until the answer is due, which is why that is soon.
pb::Wait Culprit(const std::string& target, const std::function<bool(const pb::Wait&)>& fits) {
  const Deadline limit = DeadlineAfter(kPatience);
  StatusOr<pb::WaitReport> report = pb::WaitReport();
  while (SteadyClock::now() < limit) {
    report = Ask(target, seconds(4));
    if (report.ok() && report->wait_size() > 0 && fits(report->wait(0))) return report->wait(0);
    std::this_thread::sleep_for(milliseconds(20));
  }
  ADD_FAILURE() << "the last report:"
                << (report.ok() ? WaitLines(*report, 100) : Text(report.status()));
  return {};
}
pb::Wait Culprit(const std::string& target, pb::Wait::Kind kind) {
  return Culprit(target, [kind](const pb::Wait& wait) { return wait.kind() == kind; });
}

// A step that runs until the session is closed.
class Hang {
 public:
  Hang(Session* session, Operation op)
      : session_(session), thread_([session, op] { (void)session->RunTargets({op}); }) {}
  ~Hang() {
    (void)session_->Close();
    thread_.join();
  }

 private:
  Session* const session_;
  std::thread thread_;
};

class WhyWaiting : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Open(int worker = 0) {
    auto session = Session::Create(graph_, {.target = cluster_.Target("worker", worker)});
    EXPECT_TRUE(session.ok()) << session.status();
    return std::make_unique<Session>(*std::move(session));
  }
  std::string AnyTarget() const { return cluster_.Target("worker", 0); }
  Output QueueOnPs(int64_t capacity) {
    return ops::FIFOQueueV2(on_ps_.WithOpName("tokens"), {kFloat},
                            {.capacity = capacity, .shared_name = "tokens"});
  }

  InProcessCluster cluster_{1, 2};
  Graph graph_;
  const Scope on_ps_ = graph_.root().WithDevice("/job:ps/task:0");
  const Scope on_worker_ = graph_.root().WithDevice("/job:worker/task:0");
};

TEST_F(WhyWaiting, NothingWaitsInAClusterThatDoesNothing) {
  const StatusOr<pb::WaitReport> report = Ask(AnyTarget());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->wait_size(), 0) << WaitLines(*report, 100);
  EXPECT_EQ(report->asked_size(), 3);
}

TEST_F(WhyWaiting, AnEmptyQueueIsNamedWithTheNodeThatWaitsAndWhoCameLast) {
  const Output queue = QueueOnPs(-1);
  const Operation put =
      ops::QueueEnqueueV2(on_ps_.WithOpName("put"), queue, {Tensor::Scalar(1.0f)});
  const Operation take = ops::QueueDequeueV2(on_ps_.WithOpName("take"), queue, {kFloat})[0].op();
  const auto session = Open();
  ASSERT_TRUE(session->RunTargets({put}).ok());
  ASSERT_TRUE(session->RunTargets({take}).ok());
  const Hang hang(session.get(), take);
  const pb::Wait wait = Culprit(AnyTarget(), pb::Wait::QUEUE);
  EXPECT_EQ(wait.task(), kPs);
  EXPECT_EQ(wait.node(), "take");
  EXPECT_EQ(wait.op(), "QueueDequeueV2");
  EXPECT_EQ(wait.name(), "tokens");
  EXPECT_THAT(wait.origin(), HasSubstr("why_waiting_test.cc:"));
  EXPECT_THAT(wait.text(), AllOf(HasSubstr("a dequeue: FIFOQueue 'tokens' has 0 of 1 element"),
                                 HasSubstr("the last enqueue, of {{node put}} for "
                                           "/job:worker/replica:0/task:0, was "),
                                 HasSubstr("the last dequeue, of {{node take}}")));
}

TEST_F(WhyWaiting, AFullQueueIsNamedAndThatNobodyTakes) {
  const Output queue = QueueOnPs(1);
  const Operation put =
      ops::QueueEnqueueV2(on_ps_.WithOpName("put"), queue, {Tensor::Scalar(1.0f)});
  const auto session = Open();
  ASSERT_TRUE(session->RunTargets({put}).ok());
  const Hang hang(session.get(), put);
  const pb::Wait wait = Culprit(AnyTarget(), pb::Wait::QUEUE);
  EXPECT_EQ(wait.node(), "put");
  EXPECT_THAT(wait.text(),
              AllOf(HasSubstr("'tokens' is full (1 of 1 elements)"), HasSubstr("no dequeue yet")));
}

TEST_F(WhyWaiting, AnAccumulatorNamesTheWorkerWhoseGradientIsMissing) {
  const Output sum =
      ops::ConditionalAccumulator(on_ps_.WithOpName("sum"), kFloat, {}, {.shared_name = "sum"});
  const Output step = ops::Placeholder(on_ps_, kInt64);
  const Operation push = ops::AccumulatorApplyGradient(on_ps_, sum, step, Tensor::Scalar(1.0f));
  const Operation take =
      ops::AccumulatorTakeGradient(on_ps_.WithOpName("mean"), sum, 2, kFloat).op();
  const auto chief = Open(0), other = Open(1);
  const auto push_step = [&](Session& session, int64_t local_step) {
    const Status pushed = session.Run({{step, Tensor::Scalar(local_step)}}, {}, {push}).status();
    EXPECT_TRUE(pushed.ok()) << pushed;
  };
  push_step(*chief, 0);
  push_step(*other, 0);
  ASSERT_TRUE(chief->RunTargets({take}).ok());
  push_step(*chief, 1);
  const Hang hang(chief.get(), take);
  const pb::Wait wait = Culprit(AnyTarget(), pb::Wait::ACCUMULATOR);
  EXPECT_EQ(wait.task(), kPs);
  EXPECT_EQ(wait.node(), "mean");
  EXPECT_EQ(wait.peer(), kWorker1);
  EXPECT_THAT(wait.text(), AllOf(HasSubstr("accumulator 'sum' has 1 of 2 gradients for step 1"),
                                 HasSubstr(StrCat(kWorker1, " last pushed step 0, "))));
}

TEST_F(WhyWaiting, ACollectiveNamesWhoHasCome) {
  const std::vector<Input> inputs = {Input(Tensor::Scalar(1.0f))};
  const Operation reduce =
      on_worker_.WithOpName("reduce").AddOp("CollectiveReduce", inputs,
                                            {{"group_size", int64_t{2}},
                                             {"group_key", int64_t{1}},
                                             {"instance_key", int64_t{7}},
                                             {"merge_op", std::string("Add")},
                                             {"final_op", std::string("Id")},
                                             {"subdiv_offsets", std::vector<int64_t>{0}}},
                                            std::source_location::current());
  const auto session = Open();
  const Hang hang(session.get(), reduce);
  const pb::Wait wait = Culprit(AnyTarget(), pb::Wait::COLLECTIVE);
  EXPECT_EQ(wait.task(), "/job:worker/replica:0/task:0");
  // The leader's table says who is there, the node who waits: both are told, in either order.
  std::string all;
  const StatusOr<pb::WaitReport> report = Ask(AnyTarget());
  ASSERT_TRUE(report.ok()) << report.status();
  for (const pb::Wait& other : report->wait()) StrAppend(&all, WaitText(other), "\n");
  EXPECT_THAT(all,
              AllOf(HasSubstr("the collective group 1 of 2 members is not complete here, at its "
                              "leader; there are: /job:worker/replica:0/task:0/"),
                    HasSubstr("{{node reduce}} (group_key=1, instance_key=7)")));
}

Operation EndlessLoop(const Scope& scope) {
  return WhileLoop(
             scope, {Constant(scope, Tensor::Scalar(0.0f))},
             [](const Scope& s, std::span<const Output> v) {
               return ops::Less(s, v[0], Tensor::Scalar(1.0f));
             },
             [](const Scope& s, std::span<const Output> v) {
               return std::vector<Output>{ops::Mul(s, v[0], Tensor::Scalar(0.5f))};
             },
             {.frame_name = "rounds"})[0]
      .op();
}

TEST_F(WhyWaiting, AnEndlessLoopIsNamedThoughOthersWaitForIt) {
  const Operation loop = EndlessLoop(on_ps_);
  const auto session = Open();
  const Hang hang(session.get(), loop);
  const pb::Wait wait = Culprit(
      AnyTarget(), [](const pb::Wait& w) { return w.kind() == pb::Wait::LOOP && w.seconds() > 1; });
  EXPECT_EQ(wait.task(), kPs);
  EXPECT_THAT(wait.name(), HasSubstr("rounds"));
  EXPECT_THAT(wait.origin(), HasSubstr("why_waiting_test.cc:"));
  EXPECT_THAT(wait.text(), HasSubstr("goes round the loop"));
  EXPECT_THAT(wait.text(), MatchesRegex(".*, iteration [0-9]+.*"));
}

// The same where the master runs the step itself.
TEST_F(WhyWaiting, AnEndlessLoopIsNamedWithoutAWorkerBetween) {
  const Operation loop = EndlessLoop(on_worker_);
  const auto session = Open();
  const Hang hang(session.get(), loop);
  const pb::Wait wait = Culprit(
      AnyTarget(), [](const pb::Wait& w) { return w.kind() == pb::Wait::LOOP && w.seconds() > 1; });
  EXPECT_EQ(wait.task(), "/job:worker/replica:0/task:0");
  EXPECT_THAT(wait.name(), HasSubstr("rounds"));
}

TEST_F(WhyWaiting, AKernelThatTakesLongIsNamedWithItsLine) {
  const Tensor size = Tensor::FromValues<int32_t>({2000, 2000});
  const Output big = ops::RandomUniform(on_ps_, size, kFloat);
  Output product = big;
  for (int i = 0; i < 4; ++i) product = ops::MatMul(on_ps_.WithOpName("long"), product, big);
  const Operation run = product.op();
  const auto session = Open();
  // Again and again, until somebody has asked in the middle of a product.
  std::atomic<bool> seen{false};
  std::thread runner([&] {
    while (!seen.load()) (void)session->RunTargets({run});
  });
  const pb::Wait wait = Culprit(AnyTarget(), [](const pb::Wait& w) {
    return w.kind() == pb::Wait::KERNEL && w.op() == "MatMul" && w.seconds() > 0;
  });
  seen.store(true);
  runner.join();
  EXPECT_EQ(wait.task(), kPs);
  EXPECT_THAT(wait.node(), HasSubstr("long"));
  EXPECT_THAT(wait.origin(), HasSubstr("why_waiting_test.cc:"));
}

TEST_F(WhyWaiting, ATurnThatSomebodyElseHasIsNamedWithWhoHasIt) {
  const auto enter = [&](const char* worker) {
    return on_ps_.WithOpName("enter").AddOp("_StalenessEnter", {},
                                            {{"bound", int64_t{0}},
                                             {"shared_name", std::string("turns")},
                                             {"worker", std::string(worker)}},
                                            std::source_location::current());
  };
  // The first one has its turn as long as its step goes round a loop.
  const Operation slow = enter("the slow one");
  const Operation loop = EndlessLoop(on_ps_.WithControlDependencies({slow}));
  const Operation next = enter("the next one");
  const auto first = Open(), second = Open(1);
  const Hang holds(first.get(), loop);
  Culprit(AnyTarget(), pb::Wait::LOOP);  // the turn is taken
  const Hang hang(second.get(), next);
  const Deadline limit = DeadlineAfter(kPatience);
  std::string turn;
  while (turn.empty() && SteadyClock::now() < limit) {
    const StatusOr<pb::WaitReport> report = Ask(AnyTarget());
    ASSERT_TRUE(report.ok()) << report.status();
    // Who does not end is the culprit, not who waits for the turn.
    if (report->wait_size() == 0 || report->wait(0).kind() != pb::Wait::LOOP) continue;
    for (const pb::Wait& wait : report->wait()) {
      if (wait.kind() == pb::Wait::LOCK) turn = WaitText(wait);
    }
  }
  EXPECT_THAT(turn, AllOf(HasSubstr("its turn to read within the staleness bound 'turns' of 0"),
                          HasSubstr("the slow one")));
}

TEST_F(WhyWaiting, ATaskThatIsGoneIsTheCulpritOfWhatNobodyBrings) {
  const Operation take =
      ops::QueueDequeueV2(on_ps_.WithOpName("take"), QueueOnPs(-1), {kFloat})[0].op();
  const auto session = Open();
  const Hang hang(session.get(), take);
  (void)Culprit(AnyTarget(), pb::Wait::QUEUE);
  cluster_.Stop("worker", 1);
  const pb::Wait wait = Culprit(AnyTarget(), pb::Wait::TASK);
  EXPECT_EQ(wait.peer(), kWorker1);
  EXPECT_THAT(wait.text(), HasSubstr("it does not answer"));
}

// A part of a step that runs in a worker, of which the ps was never told.
TEST_F(WhyWaiting, AValueThatNobodySendsIsNamedWithWhoShouldHaveSentIt) {
  ThreadPool pool("stub", 2);
  const auto stub = [&](const char* job, const std::string& task) {
    const std::string target = cluster_.Target(job, 0);
    return NewGrpcRemoteWorker(target.substr(std::string("grpc://").size()), task, &pool, &pool);
  };
  const auto ps = stub("ps", kPs), worker = stub("worker", "/job:worker/replica:0/task:0");
  std::vector<pb::DeviceAttributes> devices;
  const auto await = [](const std::function<void(WorkerInterface::Done)>& call) {
    Notification done;
    Status result;
    call([&](Status status) {
      result = std::move(status);
      done.Notify();
    });
    done.Wait();
    return result;
  };
  const CallOptions soon{.deadline = DeadlineAfter(kPatience)};
  ASSERT_TRUE(await([&](auto done) { ps->GetStatusAsync(soon, &devices, done); }).ok());
  const std::string receiver = "/job:worker/replica:0/task:0/device:CPU:0";
  pb::GraphDef def;
  pb::NodeDef& node = *def.add_node();
  node.set_name("w/_recv");
  node.set_op("_Recv");
  node.set_device(receiver);
  (*node.mutable_attr())["tensor_type"].set_type(pb::DT_FLOAT);
  (*node.mutable_attr())["tensor_name"].set_s("w/read");
  (*node.mutable_attr())["send_device"].set_s(devices.at(0).name());
  (*node.mutable_attr())["send_device_incarnation"].set_i(
      static_cast<int64_t>(devices.at(0).incarnation()));
  (*node.mutable_attr())["recv_device"].set_s(receiver);
  (*node.mutable_attr())["client_terminated"].set_b(false);
  OpRegistry registry;
  ASSERT_TRUE(RegisterAllOps(registry).ok());
  RegisterGraphArgs registration;
  registration.graph = std::make_unique<DataflowGraph>(&registry);
  ASSERT_TRUE(ImportGraphDef({.internal_names = true, .devices_are_assigned = true}, def,
                             registration.graph.get())
                  .ok());
  RunGraphArgs args;
  const Status registered = await([&](auto done) {
    worker->RegisterGraphAsync(soon, std::move(registration), &args.graph_handle, done);
  });
  ASSERT_TRUE(registered.ok()) << registered;
  args.step_id = 812;
  RunGraphResult result;
  CancellationManager cancellation;
  Notification ended;
  worker->RunGraphAsync({.deadline = kNoDeadline, .cancellation = &cancellation}, &args, &result,
                        [&](const Status&) { ended.Notify(); });
  const pb::Wait wait = Culprit(AnyTarget(), pb::Wait::RECEIVE);
  EXPECT_EQ(wait.step_id(), 812);
  EXPECT_EQ(wait.peer(), kPs);
  EXPECT_THAT(wait.name(), HasSubstr(";w/read;"));
  EXPECT_THAT(wait.text(), AllOf(HasSubstr("'w/read' from /job:ps/replica:0/task:0"),
                                 HasSubstr("nobody there sends it")));
  cancellation.StartCancel(errors::Cancelled("enough"));
  ended.Wait();
}

TEST_F(WhyWaiting, ALateStepSaysTheSameAndCarriesItAsAMessage) {
  const Output queue = QueueOnPs(-1);
  const Operation put = ops::QueueEnqueueV2(on_ps_, queue, {Tensor::Scalar(1.0f)});
  const Operation take = ops::QueueDequeueV2(on_ps_.WithOpName("take"), queue, {kFloat})[0].op();
  const auto session = Open();
  // The plan is there: the step is at the queue long before its deadline.
  ASSERT_TRUE(session->RunTargets({put}).ok());
  ASSERT_TRUE(session->RunTargets({take}).ok());
  const Status status =
      session->Run({}, {}, std::vector<Operation>{take}, {.timeout = seconds(2)}).status();
  EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("it was waiting for:"), HasSubstr("{{node take}}"),
                                  HasSubstr("made at "), HasSubstr("why_waiting_test.cc:")));
  pb::WaitReport report;
  ASSERT_TRUE(FindWaitReport(status, &report)) << status;
  EXPECT_EQ(report.wait(0).kind(), pb::Wait::QUEUE);
  EXPECT_EQ(report.wait(0).node(), "take");
}

TEST_F(WhyWaiting, TheCommandSaysItToPeopleAndToPrograms) {
  const Operation take =
      ops::QueueDequeueV2(on_ps_.WithOpName("take"), QueueOnPs(-1), {kFloat})[0].op();
  const auto session = Open();
  const Hang hang(session.get(), take);
  (void)Culprit(AnyTarget(), pb::Wait::QUEUE);
  Process text("tools/millrace", {"why-waiting", AnyTarget()});
  EXPECT_EQ(text.WaitForEnd(kPatience), 0);
  EXPECT_THAT(text.output(), HasSubstr(StrCat("\n  ", kPs, ": a dequeue: FIFOQueue 'tokens'")));
  Process json("tools/millrace", {"why-waiting", "--json", AnyTarget()});
  EXPECT_EQ(json.WaitForEnd(kPatience), 0);
  EXPECT_THAT(json.output(),
              AllOf(HasSubstr("\"kind\": \"queue\""), HasSubstr("\"node\": \"take\""),
                    HasSubstr(StrCat("\"task\": \"", kPs, "\""))));
  Process nobody("tools/millrace", {"why-waiting", "--timeout=1", "127.0.0.1:1"});
  EXPECT_EQ(nobody.WaitForEnd(kPatience), 1);
}

// A ps that stands still: it cannot say anything, which is why it is named.
TEST(WhyWaitingForAProcess, ThatIsStoppedNamesIt) {
  const std::vector<int> ports = FreePorts(2);
  const std::string spec = StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]);
  Process ps("tools/millrace",
             {"server", StrCat("--cluster_spec=", spec), "--job_name=ps", "--task_id=0"});
  ASSERT_TRUE(ps.WaitForOutput("listening on", kPatience)) << ps.output();
  ServerOptions options;
  options.cluster = *ClusterSpec::Parse(spec);
  options.job_name = "worker";
  auto server = Server::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  ps.Freeze();
  const pb::Wait wait = Culprit((*server)->target(), pb::Wait::TASK);
  EXPECT_EQ(wait.peer(), kPs);
  EXPECT_THAT(wait.text(), HasSubstr("it does not answer"));
  ps.Signal(SIGCONT);
}

}  // namespace
}  // namespace millrace::testing
