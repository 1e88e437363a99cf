// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using IfDown = RpcChannel::IfDown;

constexpr char kEcho[] = "/test.Service/Echo";
constexpr char kFail[] = "/test.Service/Fail";
constexpr char kPark[] = "/test.Service/Park";

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Text(const grpc::ByteBuffer& bytes) {
  const ReceivedBytes received(bytes);
  WireReader reader = received.reader();
  std::string text;
  EXPECT_TRUE(reader.ReadString(&text, reader.remaining()));
  return text;
}

class RpcTest : public testing::Test {
 protected:
  void SetUp() override { Listen("127.0.0.1:0"); }

  void Listen(const std::string& address, const RpcLimits& limits = {}) {
    server_ = std::make_unique<RpcServer>(&server_pool_, nullptr, limits);
    server_->AddMethod(kEcho, [](ServerCall* call) {
      WireWriter answer;
      WireReader reader = call->reader();
      std::string text;
      EXPECT_TRUE(reader.ReadString(&text, reader.remaining()));
      answer.AppendBytesField(1, text);
      call->Finish(std::move(answer));
    });
    server_->AddMethod(kFail, [this](ServerCall* call) { call->Finish(failure_); });
    server_->AddMethod(kPark, [this](ServerCall* call) {
      CancellationManager* const cancellation = call->options().cancellation;
      const bool kept = cancellation->RegisterCallback(cancellation->NextToken(), [this, call] {
        cancelled_.Notify();
        call->Finish(errors::Cancelled("parked call cancelled"));
      });
      if (!kept) {
        cancelled_.Notify();
        call->Finish(errors::Cancelled("parked call cancelled"));
      }
      parked_.Notify();
    });
    const StatusOr<int> port = server_->Start(address);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
  }

  std::string address() const { return StrCat("127.0.0.1:", port_); }
  std::unique_ptr<RpcChannel> Connect() {
    return std::make_unique<RpcChannel>(address(), "/job:test/replica:0/task:0", &client_pool_);
  }

  // The status of a call, and its answer.
  Status Call(RpcChannel& channel, const char* method, const std::string& request,
              CallOptions options = {DeadlineAfter(seconds(20)), nullptr},
              std::string* answer = nullptr, IfDown if_down = IfDown::kFail) {
    Notification done;
    Status result;
    channel.Call(method, options, Bytes(request), if_down,
                 [&](Status status, const grpc::ByteBuffer& bytes) {
                   if (answer != nullptr && status.ok()) *answer = Text(bytes);
                   result = std::move(status);
                   done.Notify();
                 });
    EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(30))));
    return result;
  }

  ThreadPool server_pool_{"server", 2}, client_pool_{"client", 2};
  Status failure_;
  Notification parked_, cancelled_;
  std::unique_ptr<RpcServer> server_;
  int port_ = 0;
};

TEST_F(RpcTest, CarriesBytesBothWays) {
  auto channel = Connect();
  std::string answer;
  ASSERT_TRUE(Call(*channel, kEcho, "hello", {DeadlineAfter(seconds(20)), nullptr}, &answer).ok());
  EXPECT_EQ(answer, "\x0a\x05hello");
}

TEST_F(RpcTest, CarriesErrorsWithTheirPayloads) {
  failure_ = errors::FailedPrecondition("variable w is not initialised, 100 % sure: \xc3\xa4");
  failure_.SetPayload(kDerivedPayload, "");
  failure_.SetPayload("type.googleapis.com/x", "value");
  auto channel = Connect();
  EXPECT_EQ(Call(*channel, kFail, ""), failure_);
}

TEST_F(RpcTest, CutsTextsThatDoNotFitIntoTheTrailer) {
  failure_ = errors::Internal(std::string(100'000, 'x'));
  auto channel = Connect();
  const Status status = Call(*channel, kFail, "");
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_TRUE(Message(status).starts_with("xxxx"));
  EXPECT_TRUE(Message(status).ends_with("[cut]"));
}

TEST_F(RpcTest, AnswersUnknownMethodsWithUnimplemented) {
  auto channel = Connect();
  EXPECT_EQ(Call(*channel, "/tensorflow.eager.EagerService/CreateContext", "").code(),
            StatusCode::kUnimplemented);
}

TEST_F(RpcTest, SendsALargeTensorFromItsOwnBuffer) {
  auto channel = Connect();
  Tensor big(kFloat, Shape({1 << 22}));
  for (int i = 0; i < 1 << 22; ++i) big.data<float>()[i] = static_cast<float>(i);
  WireWriter request;
  ASSERT_TRUE(request.AppendTensorField(1, big).ok());
  EXPECT_EQ(request.segments().size(), 1u);
  Notification done;
  Status result;
  StatusOr<Tensor> back = errors::Unknown("no answer");
  channel->Call(kEcho, {DeadlineAfter(seconds(30)), nullptr}, ToByteBuffer(request), IfDown::kFail,
                [&](Status status, const grpc::ByteBuffer& bytes) {
                  result = status;
                  const ReceivedBytes received(bytes);
                  WireReader reader = received.reader(), echo, body;
                  uint32_t field, type;
                  if (reader.ReadTag(&field, &type) && reader.ReadBody(&echo) &&
                      echo.ReadTag(&field, &type) && echo.ReadBody(&body)) {
                    back = ReadTensor(body);
                  }
                  done.Notify();
                });
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(40))));
  ASSERT_TRUE(result.ok()) << result;
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(TensorsEqual(*back, big));
  request = WireWriter();
  channel.reset();
  EXPECT_TRUE(big.OwnsBufferAlone());  // every slice gave its share back
}

TEST_F(RpcTest, ADeadlineEndsTheCallAtBothSides) {
  auto channel = Connect();
  // Until it has come as far as to be parked before its deadline.
  for (milliseconds limit(100); !parked_.HasBeenNotified() && limit < seconds(20); limit *= 2) {
    const Status status = Call(*channel, kPark, "", {DeadlineAfter(limit), nullptr});
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(Message(status).find("/job:test/replica:0/task:0"), std::string_view::npos) << status;
  }
  EXPECT_TRUE(cancelled_.WaitUntil(DeadlineAfter(seconds(20))));
}

TEST_F(RpcTest, CancellingEndsTheCallAtBothSides) {
  auto channel = Connect();
  CancellationManager cancellation;
  Notification done;
  Status result;
  channel->Call(kPark, {kNoDeadline, &cancellation}, Bytes(""), IfDown::kFail,
                [&](Status status, const grpc::ByteBuffer&) {
                  result = std::move(status);
                  done.Notify();
                });
  ASSERT_TRUE(parked_.WaitUntil(DeadlineAfter(seconds(20))));
  cancellation.StartCancel(errors::Cancelled("enough"));
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_EQ(result.code(), StatusCode::kCancelled);
  EXPECT_TRUE(IsDerived(result));
  EXPECT_TRUE(cancelled_.WaitUntil(DeadlineAfter(seconds(20))));
  // A call that begins afterwards is not sent.
  EXPECT_TRUE(IsDerived(Call(*channel, kEcho, "x", {kNoDeadline, &cancellation})));
}

TEST_F(RpcTest, DestroyingAChannelEndsItsCalls) {
  auto channel = Connect();
  Status result;
  channel->Call(kPark, {kNoDeadline, nullptr}, Bytes(""), IfDown::kFail,
                [&](Status status, const grpc::ByteBuffer&) { result = std::move(status); });
  ASSERT_TRUE(parked_.WaitUntil(DeadlineAfter(seconds(20))));
  channel.reset();
  EXPECT_EQ(result.code(), StatusCode::kCancelled);
}

TEST_F(RpcTest, NamesAPortThatIsTaken) {
  RpcServer second(&server_pool_);
  second.AddMethod(kEcho, [](ServerCall* call) { call->Finish(OkStatus()); });
  const StatusOr<int> port = second.Start(address());
  EXPECT_EQ(port.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(port.status()).find(address()), std::string_view::npos) << port.status();
  EXPECT_NE(Message(port.status()).find("in use"), std::string_view::npos) << port.status();
}

TEST_F(RpcTest, AnUnreachablePeerIsUnavailableByName) {
  server_.reset();
  auto channel = Connect();
  const Status status = Call(*channel, kEcho, "x");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(status).find("failed to connect to all addresses"), std::string_view::npos)
      << status;
  EXPECT_NE(Message(status).find("/job:test/replica:0/task:0"), std::string_view::npos) << status;
}

TEST_F(RpcTest, WaitingForAPeerFindsItWhenItComes) {
  server_.reset();
  auto channel = Connect();
  EXPECT_EQ(
      Call(*channel, kEcho, "x", {DeadlineAfter(milliseconds(50)), nullptr}, nullptr, IfDown::kWait)
          .code(),
      StatusCode::kDeadlineExceeded);
  Listen(address());
  EXPECT_TRUE(
      Call(*channel, kEcho, "x", {DeadlineAfter(seconds(20)), nullptr}, nullptr, IfDown::kWait)
          .ok());
}

TEST_F(RpcTest, ShuttingDownCancelsWhatOutlastsTheGraceAndFreesThePort) {
  auto channel = Connect();
  Notification done;
  Status result;
  channel->Call(kPark, {kNoDeadline, nullptr}, Bytes(""), IfDown::kFail,
                [&](Status status, const grpc::ByteBuffer&) {
                  result = std::move(status);
                  done.Notify();
                });
  ASSERT_TRUE(parked_.WaitUntil(DeadlineAfter(seconds(20))));
  server_->Shutdown(DeadlineAfter(milliseconds(50)));
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_FALSE(result.ok());
  Listen(address());
}

TEST_F(RpcTest, ServesManyCallsAtOnce) {
  auto channel = Connect();
  constexpr int kCalls = 200;
  BlockingCounter left(kCalls);
  std::atomic<int> good{0};
  for (int i = 0; i < kCalls; ++i) {
    channel->Call(kEcho, {DeadlineAfter(seconds(30)), nullptr}, Bytes("x"), IfDown::kFail,
                  [&](Status status, const grpc::ByteBuffer&) {
                    good += status.ok();
                    left.DecrementCount();
                  });
  }
  ASSERT_TRUE(left.WaitUntil(DeadlineAfter(seconds(40))));
  EXPECT_EQ(good, kCalls);
}

TEST_F(RpcTest, CallsBeyondTheLimitOfAConnectionWait) {
  Listen("127.0.0.1:0", {.max_calls = 1});
  auto channel = Connect();
  ASSERT_TRUE(Call(*channel, kEcho, "x").ok());
  CancellationManager cancellation;
  Notification parked_answered, waited;
  channel->Call(kPark, {DeadlineAfter(seconds(30)), &cancellation}, Bytes(""), IfDown::kFail,
                [&](const Status&, const grpc::ByteBuffer&) { parked_answered.Notify(); });
  ASSERT_TRUE(parked_.WaitUntil(DeadlineAfter(seconds(20))));
  Status result = errors::Unknown("no answer");
  channel->Call(kEcho, {DeadlineAfter(seconds(30)), nullptr}, Bytes("x"), IfDown::kFail,
                [&](Status status, const grpc::ByteBuffer&) {
                  result = std::move(status);
                  waited.Notify();
                });
  EXPECT_FALSE(waited.WaitUntil(DeadlineAfter(milliseconds(300))));
  // Other connections have calls of their own.
  auto other = Connect();
  EXPECT_TRUE(Call(*other, kEcho, "x").ok());
  EXPECT_FALSE(waited.HasBeenNotified());
  cancellation.StartCancel(errors::Cancelled("enough"));
  ASSERT_TRUE(waited.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_TRUE(result.ok()) << result;
  EXPECT_TRUE(parked_answered.WaitUntil(DeadlineAfter(seconds(20))));
}

// What gRPC does with those that do not fit is its own affair; the rest is served afterwards.
TEST_F(RpcTest, RequestsOnTheirWayInShareTheMemoryQuota) {
  constexpr int kCalls = 64;
  const std::string big(std::size_t{1} << 20, 'x');
  const auto begun = [&](int64_t quota, seconds limit) {
    std::atomic<int> arrived{0};
    Mutex mu;
    bool over = false;
    std::vector<ServerCall*> calls;
    ThreadPool pool("server", 2);
    auto server = std::make_unique<RpcServer>(&pool, nullptr, RpcLimits{.memory_quota = quota});
    server->AddMethod(kPark, [&](ServerCall* call) {
      ++arrived;
      MutexLock lock(&mu);
      if (over) return call->Finish(OkStatus());
      calls.push_back(call);
    });
    const StatusOr<int> port = server->Start("127.0.0.1:0");
    EXPECT_TRUE(port.ok()) << port.status();
    port_ = *port;
    BlockingCounter left(kCalls);
    std::vector<std::unique_ptr<RpcChannel>> channels;
    for (int i = 0; i < kCalls; ++i) {
      channels.push_back(Connect());
      channels.back()->Call(kPark, {DeadlineAfter(limit), nullptr}, Bytes(big), IfDown::kFail,
                            [&](const Status&, const grpc::ByteBuffer&) { left.DecrementCount(); });
    }
    // Until all are there, or have ended by their deadline.
    while (arrived < kCalls && !left.WaitUntil(DeadlineAfter(milliseconds(10)))) {
    }
    {
      MutexLock lock(&mu);
      over = true;
      for (ServerCall* call : calls) call->Finish(OkStatus());
    }
    EXPECT_TRUE(left.WaitUntil(DeadlineAfter(limit + seconds(40))));
    channels.clear();
    server = nullptr;
    return arrived.load();
  };
  EXPECT_EQ(begun(int64_t{1} << 30, seconds(60)), kCalls);
  EXPECT_LT(begun(int64_t{8} << 20, seconds(5)), kCalls / 2);
}

}  // namespace
}  // namespace millrace
