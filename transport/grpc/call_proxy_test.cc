// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/call_proxy.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "proto/named_tensor.pb.h"
#include "tests/cluster/certificate_files.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/health_watch_testlib.h"
#include "transport/grpc/rpc_server.h"
#include "transport/peer_table.h"
#include "transport/security/secret.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CertificateFiles;

constexpr char kEcho[] = "/tensorflow.MasterService/RunStep";  // whatever a client may call
constexpr char kFail[] = "/tensorflow.MasterService/CloseSession";
constexpr char kWait[] = "/tensorflow.MasterService/Reset";
constexpr char kForTasks[] = "/tensorflow.WorkerService/RunGraph";
constexpr char kStream[] = "/tensorflow.eager.EagerService/StreamingEnqueue";
constexpr char kToken[] = "correct-horse-battery-staple";
constexpr seconds kLong(60);

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}
// Of an answer of Echo: its only field.
std::string Text(const grpc::ByteBuffer& bytes) {
  pb::NamedTensorProto message;
  EXPECT_TRUE(ReceivedBytes(bytes).Parse(&message).ok());
  return message.name();
}

// A task that wants certificates and a token, a proxy that has a client's, and a client that has
// nothing.
class CallProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Credentials task = files_.Issue(files_.Task("ps", 0));
    task.token_file = files_.Token(kToken);
    server_ = std::make_unique<RpcServer>(&control_, &work_, RpcLimits(), nullptr,
                                          *LoadedCredentials::Load(task));
    for (const char* method : {kEcho, kForTasks}) server_->AddMethod(method, &Echo);
    server_->AddMethod(kFail, [](ServerCall* call) {
      Status status = errors::NotFound("there is no such session");
      status.SetPayload("why", "it was closed");
      call->Finish(status);
    });
    server_->AddMethod(kWait, [this](ServerCall* call) {
      CancellationManager* const cancellation = call->options().cancellation;
      const auto end = [this, call] {
        call->Finish(errors::Cancelled("as asked"));
        cancelled_.Notify();
      };
      if (!cancellation->RegisterCallback(cancellation->NextToken(), end)) end();
      waits_.Notify();
    });
    server_->AddStream(kStream, &Echo);
    const StatusOr<int> port = server_->Start("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    target_ = StrCat("127.0.0.1:", *port);

    Credentials client = files_.Issue(files_.Client());
    client.token_file = task.token_file;
    StartProxy(client);
  }
  // The proxy's calls end before the task does.
  void TearDown() override { proxy_.reset(); }

  static void Echo(ServerCall* call) {
    std::string text;
    for (const WirePiece& piece : call->request()) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    WireWriter answer;
    answer.AppendBytesField(1, text);
    call->Finish(std::move(answer));
  }

  void StartProxy(const Credentials& credentials) {
    CallProxyOptions options{"127.0.0.1:0", target_, nullptr};
    auto loaded = LoadedCredentials::Load(credentials);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    options.credentials = *std::move(loaded);
    auto proxy = CallProxy::Start(options);
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        proxy_->address(), grpc::InsecureChannelCredentials(), arguments));
  }

  Status Call(const char* method, const std::string& request, std::string* answer,
              milliseconds limit = kLong, grpc::ClientContext* context = nullptr) {
    grpc::ClientContext own;
    if (context == nullptr) context = &own;
    context->set_deadline(std::chrono::system_clock::now() + limit);
    grpc::ByteBuffer bytes = Bytes(request), response;
    std::promise<grpc::Status> answered;
    stub_->UnaryCall(context, method, grpc::StubOptions(), &bytes, &response,
                     [&](grpc::Status status) { answered.set_value(std::move(status)); });
    const grpc::Status status = answered.get_future().get();
    if (status.ok() && answer != nullptr) *answer = Text(response);
    return FromGrpcStatus(status);
  }

  CertificateFiles files_;
  ThreadPool control_{"control", 1}, work_{"work", 1};
  Notification waits_, cancelled_;
  std::unique_ptr<RpcServer> server_;
  std::string target_;
  std::unique_ptr<CallProxy> proxy_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

TEST_F(CallProxyTest, CallsGoThroughWholeInTheProxysName) {
  for (const std::string& request :
       {std::string(), std::string("one"), std::string(9 << 20, 'x')}) {
    std::string answer = "none";
    const Status status = Call(kEcho, request, &answer);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(answer == request) << answer.size();
  }
  // A client's certificate is no right to what tasks ask each other.
  const Status refused = Call(kForTasks, "", nullptr);
  EXPECT_TRUE(errors::IsPermissionDenied(refused)) << refused;
}

TEST_F(CallProxyTest, WhatCallersSayOfThemselvesIsNotPassedOn) {
  grpc::ClientContext context;
  context.AddMetadata(kTokenMetadata, "of the caller");
  context.AddMetadata(kPeerMetadata, "of the caller");
  context.AddMetadata("trace", "of the caller");
  const Status status = Call(kEcho, "one", nullptr, kLong, &context);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(CallProxyTest, ErrorsComeBackWithWhatTheyCarry) {
  const Status status = Call(kFail, "", nullptr);
  EXPECT_TRUE(errors::IsNotFound(status)) << status;
  EXPECT_EQ(Message(status), "there is no such session");
  EXPECT_EQ(status.GetPayload("why").value_or(""), "it was closed");
}

TEST_F(CallProxyTest, DeadlinesAndCancellationsReachTheTask) {
  // Until it has come as far as the task before its deadline.
  for (milliseconds limit(500); !waits_.HasBeenNotified() && limit < kLong; limit *= 2) {
    const Status late = Call(kWait, "", nullptr, limit);
    EXPECT_TRUE(errors::IsDeadlineExceeded(late)) << late;
  }
  EXPECT_TRUE(cancelled_.WaitUntil(DeadlineAfter(kLong)));
}

TEST_F(CallProxyTest, ACallerThatCancelsIsHeard) {
  grpc::ClientContext context;
  auto call =
      std::async(std::launch::async, [&] { return Call(kWait, "", nullptr, kLong, &context); });
  ASSERT_TRUE(waits_.WaitUntil(DeadlineAfter(kLong)));
  context.TryCancel();
  EXPECT_TRUE(errors::IsCancelled(call.get()));
  EXPECT_TRUE(cancelled_.WaitUntil(DeadlineAfter(kLong)));
}

TEST_F(CallProxyTest, StreamsAreAnsweredMessageByMessage) {
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLong);
  const auto stream = stub_->PrepareCall(&context, kStream, &queue);
  const auto next = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  stream->StartCall(nullptr);
  ASSERT_TRUE(next());
  for (int i = 0; i < 100; ++i) {
    stream->Write(Bytes(StrCat("message ", i)), nullptr);
    ASSERT_TRUE(next());
    grpc::ByteBuffer answer;
    stream->Read(&answer, nullptr);
    ASSERT_TRUE(next());
    EXPECT_EQ(Text(answer), StrCat("message ", i));
  }
  stream->WritesDone(nullptr);
  EXPECT_TRUE(next());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  EXPECT_TRUE(next());
  EXPECT_TRUE(status.ok()) << status.error_message();
  queue.Shutdown();
}

// So that a prober that knows no TLS learns whether the task serves.
TEST_F(CallProxyTest, WatchesOfTheTasksHealthGoThrough) {
  testing::HealthWatch watch(testing::ChannelTo(proxy_->address()), "");
  EXPECT_EQ(watch.Next(), testing::kServing);
  server_->Drain();
  EXPECT_EQ(watch.Next(), testing::kNotServing);
}

TEST_F(CallProxyTest, ATaskThatIsNotThereOrNotMeantIsSaid) {
  Credentials stranger = CertificateFiles("red").Issue({"red", Role::kClient});
  stranger.token_file = files_.Token(kToken);
  StartProxy(stranger);
  const Status refused = Call(kEcho, "one", nullptr);
  EXPECT_TRUE(errors::IsPermissionDenied(refused) || errors::IsUnavailable(refused)) << refused;
  server_->Shutdown(SteadyClock::now());
  Credentials client = files_.Issue(files_.Client());
  StartProxy(client);
  const Status nobody = Call(kEcho, "one", nullptr);
  EXPECT_TRUE(errors::IsUnavailable(nobody)) << nobody;
}

TEST_F(CallProxyTest, ItListensOnLoopbackAlone) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "127.0.0.1", "nowhere"}) {
    const auto proxy = CallProxy::Start({address, target_, nullptr});
    EXPECT_TRUE(errors::IsUnavailable(proxy.status())) << address << ": " << proxy.status();
  }
}

TEST_F(CallProxyTest, WhatRunsIsCancelledWhenItEnds) {
  auto call = std::async(std::launch::async, [&] { return Call(kWait, "", nullptr); });
  ASSERT_TRUE(waits_.WaitUntil(DeadlineAfter(kLong)));
  proxy_.reset();
  EXPECT_FALSE(call.get().ok());
  EXPECT_TRUE(cancelled_.WaitUntil(DeadlineAfter(kLong)));
}

}  // namespace
}  // namespace millrace
