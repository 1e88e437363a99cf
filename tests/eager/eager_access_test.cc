// SPDX-License-Identifier: Apache-2.0
// Clients of TensorFlow 2 with a client's certificate, as those that come through `millrace proxy`,
// and what tasks show of their own.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed_runtime/stub/eager_transport.h"
#include "millrace/server.h"
#include "tests/cluster/certificate_files.h"
#include "tests/eager/eager_client.h"

namespace millrace {
namespace {

testing::CertificateFiles& Files() {
  static auto* const files = new testing::CertificateFiles;
  return *files;
}

class EagerAccessTest : public EagerServiceTest {
 protected:
  EagerAccessTest()
      : EagerServiceTest(
            [](ServerOptions* options) {
              options->credentials = Files().Issue(Files().Task(options->job_name, 0));
            },
            *LoadedCredentials::Load(Files().Issue(Files().Client()))) {}
};

TEST_F(EagerAccessTest, AFunctionOfTwoTasksRunsAndItsResultIsRead) {
  // The client knows the tasks by the addresses of its proxies, where no task answers another one.
  ps_.told_address_ = worker_.told_address_ = "127.0.0.1:1";
  Connect();
  MakeVariable(1, Floats({10, 20}));
  ASSERT_TRUE(worker_.Send(5, Floats({1, 2})).ok());
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok());
  pb::QueueItem call = worker_.Op(6, "add_to", {5, 1}, {});
  call.mutable_operation()->set_is_function(true);
  call.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
  const Status ran = worker_.Enqueue(call);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectFloats(worker_.Read(6), {12, 24});
}

// What a task with a token, and no certificates, hears from the peers that a client names.
class TokenOfATask : public ::testing::Test {
 protected:
  TokenOfATask()
      : files_{.token_file = Files().Token("the-token-of-this-cluster")},
        cluster_(1, 1, [this](ServerOptions* options) { options->credentials = files_; }),
        transport_(NewGrpcEagerTransport(ClientPool(), ClientPool(), nullptr, nullptr,
                                         *LoadedCredentials::Load(files_), &reach_)),
        peers_(transport_->Connect({{"/job:worker/replica:0/task:0", Address("worker")},
                                    {"/job:other/replica:0/task:0", Otherwise("worker")},
                                    {"/job:stranger/replica:0/task:0", Address("ps")}},
                                   "/job:client/replica:0/task:0", kHere)) {}

  std::string Address(const std::string& job) const {
    return cluster_.Target(job, 0).substr(std::string("grpc://").size());
  }

  // The same, written in another way.
  std::string Otherwise(const std::string& job) const {
    const std::string address = Address(job);
    return "localhost" + address.substr(address.rfind(':'));
  }

  Status AskWorker(const std::string& task) {
    Notification answered;
    Status result;
    std::vector<pb::DeviceAttributes> devices;
    peers_->workers()->GetWorker(task)->GetStatusAsync({DeadlineAfter(seconds(60))}, &devices,
                                                       [&](Status status) {
                                                         result = std::move(status);
                                                         answered.Notify();
                                                       });
    answered.Wait();
    return result;
  }

  // For a context that nobody has.
  Status Enqueue(const std::string& task) {
    Notification answered;
    Status result;
    peers_->FindPeer(task)->EnqueueAsync({DeadlineAfter(seconds(60))}, pb::EnqueueRequest(),
                                         [&](Status status) {
                                           result = std::move(status);
                                           answered.Notify();
                                         });
    answered.Wait();
    return result;
  }

  // Of the worker: the client is on its machine.
  ReachOptions Rules() const {
    return {.task = "/job:worker/replica:0/task:0",
            .addresses = {{"/job:worker/replica:0/task:0", Address("worker")}},
            .own_address = nullptr,
            .is_on_loopback = true,
            .has_credentials = true};
  }

  static inline const CallerHost kHere{"127.0.0.1", true};
  const Credentials files_;
  const testing::InProcessCluster cluster_;
  const Reach reach_{Rules()};
  const std::unique_ptr<EagerTransport> transport_;
  const std::unique_ptr<EagerCluster> peers_;
};

TEST_F(TokenOfATask, IsShownToTasksOfItsClusterAlone) {
  const Status worker = AskWorker("/job:worker/replica:0/task:0");
  EXPECT_TRUE(worker.ok()) << worker;
  const Status other = AskWorker("/job:other/replica:0/task:0");
  EXPECT_TRUE(other.ok()) << other;
  EXPECT_EQ(AskWorker("/job:stranger/replica:0/task:0").code(), StatusCode::kUnauthenticated);
  const Status known = Enqueue("/job:worker/replica:0/task:0");
  EXPECT_FALSE(known.ok() || known.code() == StatusCode::kUnauthenticated) << known;
  EXPECT_EQ(Enqueue("/job:stranger/replica:0/task:0").code(), StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace millrace
