// SPDX-License-Identifier: Apache-2.0
// How many calls of one method a server takes at once: a flood of one leaves room for the others.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "tests/cluster/certificate_files.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/rpc_server.h"
#include "transport/security/secret.h"

namespace millrace {
namespace {

constexpr char kQuick[] = "/test.First/Quick";
constexpr char kPark[] = "/test.First/Park";
constexpr char kOther[] = "/test.Second/Park";
constexpr char kBlock[] = "/test.Second/Block";
constexpr char kStream[] = "/test.Second/Stream";
constexpr char kToken[] = "correct-horse-battery-staple";
// Longer than anything here takes.
constexpr std::chrono::seconds kLong(60);

// One call of a client.
struct Call {
  grpc::ClientContext context;
  grpc::ByteBuffer request, answer;
  Notification ended;
  grpc::Status status;

  // The code it ended with; UNKNOWN if it did not.
  grpc::StatusCode Code() {
    return ended.WaitUntil(DeadlineAfter(kLong)) ? status.error_code() : grpc::StatusCode::UNKNOWN;
  }
};

class MethodCallsTest : public ::testing::Test {
 protected:
  ~MethodCallsTest() override { End(); }

  Status Start(std::map<std::string, int64_t> most, const std::string& token_file = "") {
    RpcLimits limits;
    limits.max_method_calls = std::move(most);
    Credentials credentials;
    credentials.token_file = token_file;
    server_ = std::make_unique<RpcServer>(&control_, &work_, limits, nullptr,
                                          *LoadedCredentials::Load(credentials));
    server_->AddMethod(kQuick, [](ServerCall* call) { call->Finish(OkStatus()); });
    for (const char* const method : {kPark, kOther}) {
      server_->AddMethod(method, [this](ServerCall* call) {
        MutexLock lock(&mu_);
        parked_.push_back(call);
        changed_.SignalAll();
      });
    }
    server_->AddMethod(kBlock, [this](ServerCall* call) {
      ++blocked_;
      EXPECT_TRUE(gate_.WaitUntil(DeadlineAfter(kLong)));
      call->Finish(OkStatus());
    });
    server_->AddStream(kStream, [](ServerCall* call) { call->Finish(OkStatus()); });
    const StatusOr<int> port = server_->Start("127.0.0.1:0");
    if (!port.ok()) return port.status();
    channel_ = grpc::CreateChannel(StrCat("127.0.0.1:", *port), grpc::InsecureChannelCredentials());
    return OkStatus();
  }
  void End() {
    if (!gate_.HasBeenNotified()) gate_.Notify();
    while (EndOne()) continue;
    server_ = nullptr;
    for (const auto& call : calls_) EXPECT_NE(call->Code(), grpc::StatusCode::UNKNOWN);
  }

  Call* Begin(const char* method, const std::string& token = "") {
    Call* const call = calls_.emplace_back(std::make_unique<Call>()).get();
    call->context.set_deadline(std::chrono::system_clock::now() + 2 * kLong);
    if (!token.empty()) call->context.AddMetadata(kTokenMetadata, token);
    const grpc::Slice nothing("");
    call->request = grpc::ByteBuffer(&nothing, 1);
    grpc::GenericStub(channel_).UnaryCall(&call->context, method, grpc::StubOptions(),
                                          &call->request, &call->answer,
                                          [call](grpc::Status status) {
                                            call->status = std::move(status);
                                            call->ended.Notify();
                                          });
    return call;
  }
  grpc::StatusCode Answer(const char* method) { return Begin(method)->Code(); }

  // Whether so many calls wait in their handlers.
  bool WaitForParked(std::size_t count) {
    const Deadline limit = DeadlineAfter(kLong);
    MutexLock lock(&mu_);
    while (parked_.size() < count) {
      if (!changed_.WaitUntil(&mu_, limit)) return false;
    }
    return parked_.size() == count;
  }
  // Whether so many of the calls end.
  static bool WaitForEnded(const std::vector<Call*>& calls, int64_t count) {
    const auto ended = [&calls] {
      return std::count_if(calls.begin(), calls.end(),
                           [](const Call* call) { return call->ended.HasBeenNotified(); });
    };
    const Deadline limit = DeadlineAfter(kLong);
    while (ended() < count && SteadyClock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return ended() == count;
  }
  bool EndOne() {
    ServerCall* call = nullptr;
    {
      MutexLock lock(&mu_);
      if (parked_.empty()) return false;
      call = parked_.front();
      parked_.pop_front();
    }
    call->Finish(OkStatus());
    return true;
  }

  testing::CertificateFiles files_;
  ThreadPool control_{"control", 1}, work_{"work", 1};
  Mutex mu_;
  CondVar changed_;
  std::deque<ServerCall*> parked_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> blocked_{0};
  Notification gate_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(MethodCallsTest, WhatIsBeyondIsRefusedAndTheOthersAreServed) {
  ASSERT_TRUE(Start({{"Park", 3}, {kOther, 1}}).ok());
  std::vector<Call*> parked;
  for (int i = 0; i < 3; ++i) parked.push_back(Begin(kPark));
  ASSERT_TRUE(WaitForParked(3));
  Call* const beyond = Begin(kPark);
  EXPECT_EQ(beyond->Code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const std::string& why = beyond->status.error_message();
  EXPECT_NE(why.find(kPark), std::string::npos) << why;
  EXPECT_NE(why.find("--max_method_calls"), std::string::npos) << why;
  EXPECT_EQ(Answer(kQuick), grpc::StatusCode::OK);
  // A path counts before the name of its method.
  Begin(kOther);
  ASSERT_TRUE(WaitForParked(4));
  EXPECT_EQ(Answer(kOther), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // An answer makes room.
  ASSERT_TRUE(EndOne());
  ASSERT_TRUE(WaitForEnded(parked, 1)) << "of any of them: they may have come in any order";
  Begin(kPark);
  ASSERT_TRUE(WaitForParked(4));
  EXPECT_EQ(Answer(kPark), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// With the only thread of a lane held, calls beyond the bound do not wait for it, and one of
// another method has no more than the bound before it.
TEST_F(MethodCallsTest, AFloodDoesNotFillTheQueueOfTheOthers) {
  constexpr int kMost = 4, kFlood = 200;
  ASSERT_TRUE(Start({{"Block", kMost}}).ok());
  std::vector<Call*> flood;
  for (int i = 0; i < kFlood; ++i) flood.push_back(Begin(kBlock));
  // Which ones have a place is not said; the others end while the thread is held.
  ASSERT_TRUE(WaitForEnded(flood, kFlood - kMost));
  for (Call* const call : flood) {
    if (!call->ended.HasBeenNotified()) continue;
    EXPECT_EQ(call->Code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  Call* const quick = Begin(kQuick);
  gate_.Notify();
  EXPECT_EQ(quick->Code(), grpc::StatusCode::OK);
  EXPECT_LE(blocked_, kMost);
}

TEST_F(MethodCallsTest, ServicesAndAllOthersHaveBoundsToo) {
  ASSERT_TRUE(Start({{"First", 2}, {"Quick", 0}, {"", 1}}).ok());
  Begin(kPark);
  Begin(kPark);
  ASSERT_TRUE(WaitForParked(2)) << "the service's";
  EXPECT_EQ(Answer(kPark), grpc::StatusCode::RESOURCE_EXHAUSTED);
  Begin(kOther);
  ASSERT_TRUE(WaitForParked(3)) << "that of all others";
  EXPECT_EQ(Answer(kOther), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Answer(kQuick), grpc::StatusCode::OK) << "no bound";
}

TEST_F(MethodCallsTest, AStreamIsACallAsLongAsItIsOpen) {
  ASSERT_TRUE(Start({{"Stream", 1}}).ok());
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return ok;
  };
  grpc::GenericStub stub(channel_);
  const auto begin = [&](grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + kLong);
    auto stream = stub.PrepareCall(context, kStream, &queue);
    stream->StartCall(nullptr);
    next();
    return stream;
  };
  const auto says = [&](grpc::GenericClientAsyncReaderWriter* stream) {
    const grpc::Slice nothing("");
    stream->Write(grpc::ByteBuffer(&nothing, 1), nullptr);
    if (!next()) return false;
    grpc::ByteBuffer answer;
    stream->Read(&answer, nullptr);
    return next();
  };
  const auto end = [&](grpc::GenericClientAsyncReaderWriter* stream) {
    grpc::Status status;
    stream->Finish(&status, nullptr);
    next();
    return status.error_code();
  };
  grpc::ClientContext first, second;
  const auto open = begin(&first);
  EXPECT_TRUE(says(open.get()));
  const auto refused = begin(&second);
  EXPECT_FALSE(says(refused.get()));
  EXPECT_EQ(end(refused.get()), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(says(open.get())) << "that one goes on";
  open->WritesDone(nullptr);
  EXPECT_TRUE(next());
  EXPECT_EQ(end(open.get()), grpc::StatusCode::OK);
  // The place is free once gRPC is done with the stream.
  bool is_free = false;
  for (int i = 0; i < 1000 && !is_free; ++i) {
    grpc::ClientContext again;
    const auto stream = begin(&again);
    is_free = says(stream.get());
    if (is_free) stream->WritesDone(nullptr);
    if (is_free) next();
    const grpc::StatusCode code = end(stream.get());
    EXPECT_EQ(code, is_free ? grpc::StatusCode::OK : grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_TRUE(is_free);
  queue.Shutdown();
}

TEST_F(MethodCallsTest, WhoMayNotCallTakesNoPlaceAndLearnsThat) {
  ASSERT_TRUE(Start({{"", 1}}, files_.Token(kToken)).ok());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Begin(kPark)->Code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  Begin(kPark, kToken);
  ASSERT_TRUE(WaitForParked(1));
  EXPECT_EQ(Begin(kPark)->Code(), grpc::StatusCode::UNAUTHENTICATED) << "though it is full";
  EXPECT_EQ(Begin(kPark, kToken)->Code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(MethodCallsTest, ABoundOfNothingIsAMistake) {
  const Status status = Start({{"Prak", 3}});
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_NE(Message(status).find("'Prak'"), std::string_view::npos) << status;
}

}  // namespace
}  // namespace millrace
