// SPDX-License-Identifier: Apache-2.0
// Tasks that stop without ending: who notices, who is named, and what it costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr seconds kPatience{60};
// After which a task is lost: more than a loaded machine makes one wait that lives.
constexpr seconds kSilence{4};
// The deadline of a step that does not meet it: enough to come as far as it can.
constexpr milliseconds kLate{2'000};

std::string Text(const Status& status) { return std::string(Message(status)); }

// A ps as a process, and the worker in this one.
class StoppedPs : public ::testing::Test {
 protected:
  // Where it is not lost, it would have to be silent for longer than any test lasts.
  void Start(seconds peer_timeout) {
    const std::vector<int> ports = FreePorts(2);
    const std::string spec = StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]);
    ps_ = std::make_unique<Process>(
        "tools/millrace",
        std::vector<std::string>{"server", StrCat("--cluster_spec=", spec), "--job_name=ps",
                                 "--task_id=0", StrCat("--peer_timeout=", peer_timeout.count())});
    ASSERT_TRUE(ps_->WaitForOutput("listening on", kPatience)) << ps_->output();
    ServerOptions options;
    options.cluster = *ClusterSpec::Parse(spec);
    options.job_name = "worker";
    options.inter_op_threads = 2;
    options.intra_op_threads = 1;
    options.peer_timeout = peer_timeout;
    StatusOr<std::unique_ptr<Server>> server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Start().ok());
    const Scope root = graph_.root().WithDevice("/job:ps/task:0");
    w_ = MakeVariable(root, "w", Constant(root, Tensor::Scalar(1.0f)));
    add_ = AssignAdd(root, w_, Tensor::Scalar(1.0f));
    init_ = InitializeVariables(root);
    queue_ = ops::FIFOQueueV2(root.WithOpName("tokens"), {kFloat}, {.shared_name = "tokens"});
    put_ = ops::QueueEnqueueV2(root, queue_, {Tensor::Scalar(1.0f)});
    take_ = ops::QueueDequeueV2(root, queue_, {kFloat})[0].op();
  }
  void TearDown() override {
    ps_->Signal(SIGCONT);
    server_ = nullptr;
    ps_ = nullptr;
  }

  void StopPs() { ps_->Freeze(); }

  Graph graph_;
  Variable w_;
  Operation add_, init_, put_, take_;
  Output queue_;
  std::unique_ptr<Process> ps_;
  std::unique_ptr<Server> server_;
};

TEST_F(StoppedPs, IsLostAfterItsTimeoutAndNamed) {
  ASSERT_NO_FATAL_FAILURE(Start(kSilence));
  auto session = Session::Create(graph_, {.target = server_->target()});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({init_}).ok());
  ASSERT_TRUE(session->RunTargets({add_}).ok());
  StopPs();
  const Status status = session->RunTargets({add_});
  EXPECT_TRUE(errors::IsUnavailable(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("/job:ps/replica:0/task:0"), HasSubstr("127.0.0.1:"),
                                  HasSubstr("no sign of life for"), HasSubstr("RunGraph")));
}

// The step's own deadline comes first.
TEST_F(StoppedPs, IsNamedByADeadlineAsTheOneThatDoesNotAnswer) {
  ASSERT_NO_FATAL_FAILURE(Start(10 * kPatience));
  auto session = Session::Create(graph_, {.target = server_->target()});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({init_}).ok());
  ASSERT_TRUE(session->RunTargets({add_}).ok());
  StopPs();
  const auto begin = std::chrono::steady_clock::now();
  const Status status =
      session->Run({}, {}, std::vector<Operation>{add_}, {.timeout = kLate}).status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("/job:ps/replica:0/task:0: it does not answer")));
}

TEST_F(StoppedPs, CostsASupervisedSessionThePauseOnly) {
  ASSERT_NO_FATAL_FAILURE(Start(kSilence));
  std::atomic<bool> stopped{false};
  Notification waits;
  SupervisedSessionOptions options;
  options.session.target = server_->target();
  options.init_op = init_;
  options.not_ready = ReportUninitializedVariables(graph_.root());
  options.ready_timeout = kPatience;
  options.on_wait = [&](const std::string&) {
    if (stopped) waits.Notify();
  };
  auto session = SupervisedSession::Create(graph_, options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Run({}, {}, std::span(&add_, 1)).ok());
  StopPs();
  stopped = true;
  // Stands still until it has been lost, and waited for.
  std::thread waker([&] {
    EXPECT_TRUE(waits.WaitUntil(DeadlineAfter(kPatience)));
    ps_->Signal(SIGCONT);
  });
  const Status status = (*session)->Run({}, {}, std::span(&add_, 1)).status();
  waker.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ((*session)->recoveries(), 1);
  const auto value = (*session)->Run({}, std::span(&w_.read, 1));
  ASSERT_TRUE(value.ok()) << value.status();
  // A step that was lost may have been applied, and is run again.
  EXPECT_GE((*value)[0].scalar<float>(), 3);
}

// What a late step lacks is told, though another task has it.
TEST_F(StoppedPs, BeforeItIsALateStepSaysForWhichQueueItWaits) {
  ASSERT_NO_FATAL_FAILURE(Start(10 * kPatience));
  auto session = Session::Create(graph_, {.target = server_->target()});
  ASSERT_TRUE(session.ok()) << session.status();
  // The plan is there: the step is at the queue long before its deadline.
  ASSERT_TRUE(session->RunTargets({put_}).ok());
  ASSERT_TRUE(session->RunTargets({take_}).ok());
  const Status status =
      session->Run({}, {}, std::vector<Operation>{take_}, {.timeout = kLate}).status();
  EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr("within 2000 ms"), HasSubstr("/job:ps/replica:0/task:0"),
                    HasSubstr("FIFOQueue 'tokens' has 0 of 1 element")));
}

}  // namespace
}  // namespace millrace::testing
