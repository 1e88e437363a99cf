// SPDX-License-Identifier: Apache-2.0
// What a task's pages, metrics and traces tell of eager contexts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "distributed_runtime/service/observe_service.h"
#include "tests/eager/eager_client.h"

namespace millrace {
namespace {

constexpr char kPsTask[] = "/job:ps/replica:0/task:0";
constexpr char kWorkerTask[] = "/job:worker/replica:0/task:0";

class ObservedEagerTest : public EagerServiceTest {
 protected:
  static std::string PageOf(const EagerTask& task, const std::string& target) {
    const StatusOr<Page> page = ReadPage(task.address_, target, DeadlineAfter(seconds(60)));
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? page->body : "";
  }

  // Of the line that begins with `series`; -1 without one.
  static double Metric(const EagerTask& task, const std::string& series) {
    const std::string text = "\n" + PageOf(task, "/metrics");
    const std::string begin = "\n" + series + " ";
    const std::size_t at = text.find(begin);
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + begin.size());
  }

  // A function of a variable at the ps, called at the worker.
  void RegisterFunction() {
    Connect();
    MakeVariable(1, Floats({10, 20}));
    ASSERT_TRUE(worker_.Send(5, Floats({1, 2})).ok());
    ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok());
  }
  Status CallFunction(int64_t id) {
    pb::QueueItem call = worker_.Op(id, "add_to", {5, 1}, {});
    call.mutable_operation()->set_is_function(true);
    call.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
    return worker_.Enqueue(call);
  }
};

TEST_F(ObservedEagerTest, OpsAreStepsOfTheTaskThatRunsThem) {
  Connect();
  ASSERT_TRUE(worker_.Send(1, Floats({1, 2})).ok());
  ASSERT_TRUE(worker_.Send(2, Floats({1, 2, 3})).ok());
  EXPECT_EQ(Metric(worker_, "millrace_steps_total"), 0) << "sending a tensor is no step";
  ASSERT_TRUE(worker_.Enqueue(worker_.Op(3, "Neg", {1})).ok());
  ASSERT_FALSE(worker_.Enqueue(worker_.Op(4, "AddV2", {1, 2})).ok());
  ExpectFloats(worker_.Read(3), {-1, -2});
  EXPECT_EQ(Metric(worker_, "millrace_steps_total"), 2) << "nor is reading one";
  EXPECT_EQ(Metric(worker_, "millrace_steps_failed_total"), 1);
  EXPECT_EQ(Metric(worker_, "millrace_steps_running"), 0);
  EXPECT_EQ(Metric(worker_, "millrace_step_seconds_count"), 2);
  EXPECT_EQ(Metric(ps_, "millrace_steps_total"), 0);
  const std::string steps = PageOf(worker_, "/stepz");
  EXPECT_NE(steps.find("eager context fedcba9876543210, Neg"), std::string::npos) << steps;
  EXPECT_NE(steps.find("INVALID_ARGUMENT"), std::string::npos) << steps;
}

TEST_F(ObservedEagerTest, AFunctionOfTwoTasksIsOneStepWithTwoParts) {
  RegisterFunction();
  ASSERT_TRUE(CallFunction(6).ok());
  EXPECT_EQ(Metric(worker_, "millrace_steps_total"), 1);
  const std::string steps = PageOf(worker_, "/stepz");
  EXPECT_NE(steps.find("add_to"), std::string::npos) << steps;
  // Which of them it was depends on the machine.
  EXPECT_TRUE(steps.find(StrCat(kPsTask, " was last")) != std::string::npos ||
              steps.find(StrCat(kWorkerTask, " was last")) != std::string::npos)
      << steps;
  // The ps ran the ops that made the variable, and a part.
  EXPECT_EQ(Metric(ps_, "millrace_steps_total"), 3);
  EXPECT_GT(Metric(ps_, StrCat("millrace_peer_received_bytes_total{peer=\"", kWorkerTask, "\"}")),
            0);
}

TEST_F(ObservedEagerTest, ATraceHasThePartsOfAllTasks) {
  RegisterFunction();
  StatusOr<pb::TraceResponse> trace = errors::Internal("no answer");
  std::thread tracing([&] { trace = TraceSteps(worker_.address_, 2, seconds(30)); });
  std::atomic<bool> over{false};
  std::thread client([&] {
    for (int64_t id = 6; !over.load(); ++id) EXPECT_TRUE(CallFunction(id).ok());
  });
  tracing.join();
  over.store(true);
  client.join();
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->step_size(), 2);
  for (const pb::TracedStep& step : trace->step()) {
    std::set<std::string> tasks;
    for (const pb::TracedPart& part : step.part()) {
      tasks.insert(part.task());
      EXPECT_LE(part.sent_nanos(), part.answered_nanos());
      ASSERT_GT(part.stats().dev_stats_size(), 0) << part.task();
      EXPECT_GT(part.stats().dev_stats(0).node_stats_size(), 0) << part.task();
    }
    EXPECT_EQ(tasks, (std::set<std::string>{kPsTask, kWorkerTask}));
  }
}

TEST_F(ObservedEagerTest, MessagesOfAStreamAreCalls) {
  Connect();
  ASSERT_TRUE(worker_.Send(1, Floats({1, 2})).ok());
  const std::string method =
      StrCat("{method=\"", methods::kEagerStreamingEnqueue, "\",carrier=\"grpc\"}");
  EXPECT_EQ(Metric(worker_, StrCat("millrace_rpc_calls_total", method)), -1);
  pb::EnqueueRequest request;
  request.set_context_id(kContext);
  *request.add_queue() = worker_.Op(2, "Neg", {1});
  pb::EnqueueResponse response;
  // To gRPC a call is a stream of one message.
  const Status streamed = worker_.Call(methods::kEagerStreamingEnqueue, request, &response);
  ASSERT_TRUE(streamed.ok()) << streamed;
  ExpectFloats(worker_.Read(2), {-1, -2});
  EXPECT_EQ(Metric(worker_, StrCat("millrace_rpc_calls_total", method)), 1);
  EXPECT_EQ(Metric(worker_, StrCat("millrace_rpc_errors_total", method)), 0);
  EXPECT_EQ(Metric(worker_, StrCat("millrace_rpc_request_bytes_total", method)),
            static_cast<double>(request.ByteSizeLong()));
  EXPECT_NE(PageOf(worker_, "/rpcz").find(methods::kEagerStreamingEnqueue), std::string::npos);
}

}  // namespace
}  // namespace millrace
