// SPDX-License-Identifier: Apache-2.0
// Streams of calls: each message is answered in order, and a stream ends when it should.
#include "transport/grpc/rpc_stream.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "observe/rpc_table.h"
#include "proto/named_tensor.pb.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {
namespace {

using std::chrono::seconds;

constexpr char kMethod[] = "/test.Echo/Stream";
// Longer than anything here takes, shorter than a test may.
constexpr seconds kLong(60);

// A client of one stream, which waits for each of its steps.
class Stream {
 public:
  explicit Stream(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    context_.set_deadline(std::chrono::system_clock::now() + kLong);
    stream_ = stub_.PrepareCall(&context_, kMethod, &queue_);
    stream_->StartCall(this);
    Next();
  }
  ~Stream() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) continue;
  }

  bool Write(const std::string& text) {
    pb::NamedTensorProto message;
    message.set_name(text);
    stream_->Write(ToByteBuffer(message), this);
    return Next();
  }
  // "" where the stream has ended.
  std::string Read() {
    grpc::ByteBuffer bytes;
    stream_->Read(&bytes, this);
    if (!Next()) return "";
    pb::NamedTensorProto message;
    EXPECT_TRUE(ReceivedBytes(bytes).Parse(&message).ok());
    return message.name();
  }
  bool EndWrites() {
    stream_->WritesDone(this);
    return Next();
  }
  Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, this);
    Next();
    return FromGrpcStatus(status);
  }
  void Cancel() { context_.TryCancel(); }

 private:
  bool Next() {
    void* tag;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

class RpcStreamTest : public ::testing::Test {
 protected:
  void Start(RpcServer::Handler handler) {
    server_.AddStream(kMethod, std::move(handler), RpcLane::kWork);
    const StatusOr<int> port = server_.Start("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = StrCat("127.0.0.1:", *port);
  }
  // Answers with the text and the number of the message; "bad" is an error.
  void StartEcho() {
    Start([this](ServerCall* call) {
      pb::NamedTensorProto message;
      const Status status = call->Parse(&message);
      if (!status.ok()) return call->Finish(status);
      if (message.name() == "bad") return call->Finish(errors::FailedPrecondition("it was bad"));
      message.set_name(StrCat(message.name(), " ", count_++));
      call->Finish(message);
    });
  }

  ThreadPool control_{"control", 1}, work_{"work", 2};
  RpcServer server_{&control_, &work_};
  std::string address_;
  std::atomic<int> count_{0};
};

TEST_F(RpcStreamTest, MessagesAreAnsweredInTheirOrder) {
  StartEcho();
  Stream stream(address_);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(stream.Write(StrCat("m", i)));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(stream.Read(), StrCat("m", i, " ", i));
  EXPECT_TRUE(stream.EndWrites());
  EXPECT_EQ(stream.Read(), "");
  const Status ended = stream.Finish();
  EXPECT_TRUE(ended.ok()) << ended;
}

TEST_F(RpcStreamTest, EachMessageCountsAsACall) {
  RpcTable counted;
  server_.Observe(&counted, nullptr);
  StartEcho();
  ASSERT_EQ(counted.methods().size(), 1u);
  const MethodStats& stats = counted.methods().front();
  EXPECT_EQ(stats.method, kMethod);
  EXPECT_EQ(stats.carrier, "grpc");
  Stream stream(address_);
  ASSERT_TRUE(stream.Write("good"));
  EXPECT_EQ(stream.Read(), "good 0");
  EXPECT_EQ(stats.begun.value(), 1);
  EXPECT_EQ(stats.ended.value(), 1);
  EXPECT_EQ(stats.errors.value(), 0);
  EXPECT_EQ(stats.request_bytes.value(), 6);   // with the field's two
  EXPECT_EQ(stats.response_bytes.value(), 8);  // as well
  ASSERT_TRUE(stream.Write("bad"));
  EXPECT_EQ(stream.Read(), "");
  EXPECT_FALSE(stream.Finish().ok());
  EXPECT_EQ(stats.begun.value(), 2);
  EXPECT_EQ(stats.ended.value(), 2);
  EXPECT_EQ(stats.errors.value(), 1);
}

TEST_F(RpcStreamTest, AnErrorEndsTheStreamAndNotTheServer) {
  StartEcho();
  {
    Stream stream(address_);
    ASSERT_TRUE(stream.Write("good"));
    EXPECT_EQ(stream.Read(), "good 0");
    ASSERT_TRUE(stream.Write("bad"));
    EXPECT_EQ(stream.Read(), "");
    const Status ended = stream.Finish();
    EXPECT_TRUE(errors::IsFailedPrecondition(ended)) << ended;
    EXPECT_EQ(Message(ended), "it was bad");
  }
  Stream stream(address_);
  ASSERT_TRUE(stream.Write("again"));
  EXPECT_EQ(stream.Read(), "again 1");
}

TEST_F(RpcStreamTest, ACallerThatGoesAwayCancelsWhatIsHandled) {
  Notification begun, cancelled;
  Start([&](ServerCall* call) {
    CancellationManager* const cancellation = call->options().cancellation;
    const bool registered = cancellation->RegisterCallback(cancellation->NextToken(), [&, call] {
      cancelled.Notify();
      call->Finish(errors::Cancelled("gone"));
    });
    EXPECT_TRUE(registered);
    begun.Notify();
  });
  Stream stream(address_);
  ASSERT_TRUE(stream.Write("wait"));
  ASSERT_TRUE(begun.WaitUntil(DeadlineAfter(kLong)));
  stream.Cancel();
  EXPECT_TRUE(cancelled.WaitUntil(DeadlineAfter(kLong)));
}

TEST_F(RpcStreamTest, ShutdownDoesNotWaitForAStreamThatNobodyUses) {
  StartEcho();
  Stream stream(address_);
  ASSERT_TRUE(stream.Write("one"));
  EXPECT_EQ(stream.Read(), "one 0");
  // Far from the grace that it is given.
  Notification down;
  ThreadPool other("other", 1);
  other.Schedule([&] {
    server_.Shutdown(SteadyClock::now() + std::chrono::hours(1));
    down.Notify();
  });
  EXPECT_EQ(stream.Read(), "");
  const Status ended = stream.Finish();
  EXPECT_TRUE(errors::IsUnavailable(ended)) << ended;
  EXPECT_TRUE(down.WaitUntil(DeadlineAfter(kLong)));
}

}  // namespace
}  // namespace millrace
