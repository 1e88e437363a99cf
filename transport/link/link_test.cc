// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/strings.h"
#include "transport/link/link_hub.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kWorker[] = "/job:worker/replica:0/task:0";
constexpr char kPs[] = "/job:ps/replica:0/task:0";
// What the test's handlers do.
constexpr const char *kEcho = methods::kWorkerRecvTensor, *kPark = methods::kWorkerRunGraph,
                     *kNote = methods::kWorkerCleanupGraph, *kDeadline = methods::kWorkerRecvBuf;

std::string Text(WireReader reader) {
  std::string text;
  EXPECT_TRUE(reader.ReadString(&text, reader.remaining()));
  return text;
}

WireWriter Message(const std::string& text) {
  WireWriter out;
  out.AppendBytesField(1, text);
  return out;
}

// A task that echoes, parks calls until they are cancelled, and notes notifications.
struct Task {
  explicit Task(const std::string& name) : hub(name, &control, &pool) {
    hub.AddMethod(kEcho, [this](ServerCall* call) {
      if (!failure.ok()) return call->Finish(failure);
      WireWriter out;
      out.AppendBytesField(1, Text(call->reader()));
      call->Finish(std::move(out));
    });
    hub.AddMethod(kPark, [this](ServerCall* call) {
      CancellationManager* const cancellation = call->options().cancellation;
      const auto end = [this, call] {
        cancelled.Notify();
        call->Finish(errors::Cancelled("parked call cancelled"));
      };
      if (!cancellation->RegisterCallback(cancellation->NextToken(), end)) end();
      parked.Notify();
    });
    hub.AddMethod(kDeadline, [this](ServerCall* call) {
      told = call->begin_by();
      call->Finish(OkStatus());
    });
    hub.AddMethod(kNote, [this](ServerCall* call) {
      call->Finish(OkStatus());
      noted.Notify();
    });
  }

  ThreadPool control{"control", 1}, pool{"task", 2};
  Status failure;
  Deadline told = kNoDeadline;
  Notification parked, cancelled, noted;
  LinkHub hub;
};

class LinkTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(worker_->hub.Start().ok());
    ASSERT_TRUE(ps_->hub.Start().ok());
  }

  RefPtr<Link> Connect(const pb::OfferLinkResponse& offer) {
    Notification done;
    worker_->hub.Connect(kPs, offer, [&] { done.Notify(); });
    EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
    return worker_->hub.Find(kPs);
  }
  RefPtr<Link> Connect() { return Connect(ps_->hub.offer()); }

  static Status Call(Link* link, const char* method, const std::string& text,
                     CallOptions options = {}, std::string* answer = nullptr) {
    Notification done;
    Status result;
    link->Call(method, options, Message(text), [&](Status status, WireReader in) {
      if (status.ok() && answer != nullptr) *answer = Text(in);
      result = std::move(status);
      done.Notify();
    });
    EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(30))));
    return result;
  }

  std::unique_ptr<Task> worker_ = std::make_unique<Task>(kWorker);
  std::unique_ptr<Task> ps_ = std::make_unique<Task>(kPs);
};

TEST_F(LinkTest, CarriesCallsBothWaysOverOneConnection) {
  const RefPtr<Link> link = Connect();
  ASSERT_TRUE(link);
  std::string answer;
  ASSERT_TRUE(Call(link.get(), kEcho, "hello", {}, &answer).ok());
  EXPECT_EQ(answer, "\x0a\x07\x0a\x05hello");
  const RefPtr<Link> back = ps_->hub.Find(kWorker);
  ASSERT_TRUE(back);
  ASSERT_TRUE(Call(back.get(), kEcho, "there", {}, &answer).ok());
  EXPECT_EQ(answer, "\x0a\x07\x0a\x05there");
}

TEST_F(LinkTest, CarriesLongErrorsWhole) {
  const RefPtr<Link> link = Connect();
  ps_->failure = errors::FailedPrecondition(std::string(1 << 20, 'x'));
  ps_->failure.SetPayload("type.googleapis.com/x", "value");
  EXPECT_EQ(Call(link.get(), kEcho, ""), ps_->failure);
}

TEST_F(LinkTest, ATokenIsGoodInTheNameOfItsTaskAlone) {
  // Asked for by somebody who has proven to be another task.
  EXPECT_FALSE(Connect(ps_->hub.offer("/job:worker/replica:0/task:9")));
  EXPECT_FALSE(ps_->hub.Find(kWorker));
  const pb::OfferLinkResponse own = ps_->hub.offer(kWorker);
  EXPECT_NE(own.token(), ps_->hub.offer("/job:worker/replica:0/task:9").token());
  EXPECT_NE(own.token(), ps_->hub.offer().token());
  EXPECT_EQ(own.token(), ps_->hub.offer(kWorker).token());
  EXPECT_TRUE(Connect(own));
}

TEST_F(LinkTest, AWrongTokenOpensNothing) {
  pb::OfferLinkResponse offer = ps_->hub.offer();
  offer.set_token("0123456789abcdef");
  EXPECT_FALSE(Connect(offer));
  EXPECT_FALSE(ps_->hub.Find(kWorker));
}

TEST_F(LinkTest, ATaskThatIsNotTheOneExpectedOpensNothing) {
  Task other("/job:ps/replica:0/task:1");
  ASSERT_TRUE(other.hub.Start().ok());
  EXPECT_FALSE(Connect(other.hub.offer()));
}

TEST_F(LinkTest, AnOfferFromElsewhereOpensNothing) {
  pb::OfferLinkResponse offer = ps_->hub.offer();
  offer.set_socket_name("millrace/of/another/host");
  EXPECT_FALSE(Connect(offer));
  offer.set_socket_name(std::string(500, 'x'));
  EXPECT_FALSE(Connect(offer));
  EXPECT_FALSE(Connect(pb::OfferLinkResponse()));
}

TEST_F(LinkTest, BytesThatAreNoGreetingEndTheConnection) {
  const std::string name = ps_->hub.offer().socket_name();
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  const std::string request =
      OutFrame(FrameHeader{.kind = FrameKind::kRequest, .method = 2}, Message("x")).head;
  ASSERT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  char byte;
  EXPECT_EQ(read(fd, &byte, 1), 0);  // closed by the peer
  close(fd);
  EXPECT_TRUE(Connect());  // others are served
}

int Dial(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
  ADD_FAILURE() << "cannot connect";
  return fd;
}

TEST_F(LinkTest, AGreetingTakesNoMoreThanAGreetingsMemory) {
  const std::string name = ps_->hub.offer().socket_name();
  // Headers alone, of a text and of a table that are never sent.
  std::string text = OutFrame(FrameHeader{.kind = FrameKind::kHello}, Message("x")).head;
  const uint64_t size = FrameHeader::kMaxText;
  std::memcpy(text.data() + 24, &size, sizeof(size));
  std::string table = text;
  const uint32_t segments = FrameHeader::kMaxSegments;
  std::memcpy(table.data() + 8, &segments, sizeof(segments));
  for (const std::string& head : {text, table}) {
    const int fd = Dial(name);
    ASSERT_EQ(write(fd, head.data(), FrameHeader::kSize), static_cast<ssize_t>(FrameHeader::kSize));
    char byte;
    EXPECT_EQ(read(fd, &byte, 1), 0);  // closed by the peer
    close(fd);
  }
  EXPECT_TRUE(Connect());
}

TEST_F(LinkTest, ThoseWhoNeverGreetAreClosedAndACrowdOfThemAtOnce) {
  const std::string name = ps_->hub.offer().socket_name();
  std::vector<int> silent;
  for (int i = 0; i < LinkHub::kMostGreeting + 1; ++i) silent.push_back(Dial(name));
  for (const int fd : silent) {
    char byte;
    EXPECT_EQ(read(fd, &byte, 1), 0);
    close(fd);
  }
  EXPECT_TRUE(Connect());
}

// One thread of the peer is in a call and the other reads: the request and its cancellation, which
// a test can send as one write.
TEST_F(LinkTest, ARequestThatIsCancelledInTheSameReadIsNotBegun) {
  const RefPtr<Link> link = Connect();
  CancellationManager cancellation;
  Notification done;
  {
    DeferScope burst;  // both go out together
    link->Call(kPark, {kNoDeadline, &cancellation}, Message(""),
               [&](const Status&, WireReader) { done.Notify(); });
    cancellation.StartCancel(errors::Cancelled("enough"));
  }
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_TRUE(Call(link.get(), kEcho, "x").ok());  // all before it has been read
  EXPECT_FALSE(ps_->parked.HasBeenNotified());
}

TEST_F(LinkTest, TheDeadlineOfARequestIsToldToThePeer) {
  const RefPtr<Link> link = Connect();
  const Deadline begin_by = DeadlineAfter(seconds(100));
  Notification done;
  link->Call(
      kDeadline, {}, Message(""), [&](const Status&, WireReader) { done.Notify(); },
      CallTerms{.begin_by = begin_by});
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  // A point of the clock that both have, rounded: however long the request was on its way.
  EXPECT_LE(ps_->told - begin_by, milliseconds(2));
  EXPECT_GE(ps_->told - begin_by, milliseconds(-2));
}

TEST_F(LinkTest, CancellingEndsTheCallAtBothEnds) {
  const RefPtr<Link> link = Connect();
  CancellationManager cancellation;
  Notification done;
  Status result;
  link->Call(kPark, {kNoDeadline, &cancellation}, Message(""), [&](Status status, WireReader) {
    result = std::move(status);
    done.Notify();
  });
  ASSERT_TRUE(ps_->parked.WaitUntil(DeadlineAfter(seconds(20))));
  cancellation.StartCancel(errors::Cancelled("enough"));
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_EQ(result.code(), StatusCode::kCancelled);
  EXPECT_TRUE(IsDerived(result));
  EXPECT_TRUE(ps_->cancelled.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_TRUE(IsDerived(Call(link.get(), kEcho, "x", {kNoDeadline, &cancellation})));
}

TEST_F(LinkTest, ADeadlineEndsTheCallAtBothEnds) {
  const RefPtr<Link> link = Connect();
  // Until it has come as far as to be parked before its deadline.
  for (milliseconds limit(50); !ps_->parked.HasBeenNotified() && limit < seconds(20); limit *= 2) {
    const Status status = Call(link.get(), kPark, "", {DeadlineAfter(limit), nullptr});
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(status.message().find(kPs), std::string::npos) << status;
  }
  EXPECT_TRUE(ps_->cancelled.WaitUntil(DeadlineAfter(seconds(20))));
}

TEST_F(LinkTest, ALostPeerIsUnavailableByName) {
  const RefPtr<Link> link = Connect();
  Notification done;
  Status result;
  link->Call(kPark, {}, Message(""), [&](Status status, WireReader) {
    result = std::move(status);
    done.Notify();
  });
  ASSERT_TRUE(ps_->parked.WaitUntil(DeadlineAfter(seconds(20))));
  ps_.reset();
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_FALSE(result.ok());
  // What is asked for afterwards fails at once, and the hub offers the link no more.
  const Status status = Call(link.get(), kEcho, "x");
  EXPECT_TRUE(errors::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find(kPs), std::string::npos) << status;
  EXPECT_FALSE(worker_->hub.Find(kPs));
}

TEST_F(LinkTest, BreakingALinkCancelsWhatThePeerServes) {
  const RefPtr<Link> link = Connect();
  Notification done;
  link->Call(kPark, {}, Message(""), [&](const Status&, WireReader) { done.Notify(); });
  ASSERT_TRUE(ps_->parked.WaitUntil(DeadlineAfter(seconds(20))));
  link->Break();
  EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_TRUE(ps_->cancelled.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_TRUE(Connect());  // and a new one may be opened
}

TEST_F(LinkTest, StoppingGivesCallsTheirGraceAndThenCancelsThem) {
  const RefPtr<Link> link = Connect();
  Notification done;
  Status result;
  link->Call(kPark, {}, Message(""), [&](Status status, WireReader) {
    result = std::move(status);
    done.Notify();
  });
  ASSERT_TRUE(ps_->parked.WaitUntil(DeadlineAfter(seconds(20))));
  ps_->hub.StopServing(DeadlineAfter(milliseconds(20)));
  EXPECT_TRUE(ps_->cancelled.HasBeenNotified());
  ASSERT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
  EXPECT_EQ(result.code(), StatusCode::kCancelled) << result;
  EXPECT_TRUE(errors::IsUnavailable(Call(link.get(), kEcho, "x")));
}

TEST_F(LinkTest, ANotificationArrivesWithoutAnythingElseToSend) {
  const RefPtr<Link> link = Connect();
  link->Notify(kNote, {}, Message("x"), [](const Status& told) { EXPECT_TRUE(told.ok()); });
  EXPECT_TRUE(ps_->noted.WaitUntil(DeadlineAfter(seconds(20))));
}

TEST_F(LinkTest, WhatIsSentInABurstGoesOutAtItsEnd) {
  const RefPtr<Link> link = Connect();
  Notification done;
  BlockingCounter left(3);
  {
    DeferScope burst;
    for (int i = 0; i < 3; ++i) {
      link->Call(kEcho, {}, Message("x"), [&](const Status& status, WireReader) {
        EXPECT_TRUE(status.ok()) << status;
        left.DecrementCount();
      });
    }
  }
  EXPECT_TRUE(left.WaitUntil(DeadlineAfter(seconds(20))));
}

TEST_F(LinkTest, ServesManyCallsFromManyThreads) {
  const RefPtr<Link> link = Connect();
  const RefPtr<Link> back = ps_->hub.Find(kWorker);
  constexpr int kThreads = 4, kCalls = 200;
  BlockingCounter left(kThreads * kCalls);
  std::atomic<int> good{0};
  Tensor big(kFloat, Shape({50'000}));
  for (float& v : big.flat<float>()) v = 1;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        WireWriter request;
        ASSERT_TRUE(request.AppendTensorField(1, big).ok());
        const std::size_t size = request.size();
        (t % 2 == 0 ? link : back)
            ->Call(kEcho, {}, std::move(request), [&, size](const Status& status, WireReader in) {
              good += status.ok() && in.remaining() > size;
              left.DecrementCount();
            });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(left.WaitUntil(DeadlineAfter(seconds(60))));
  EXPECT_EQ(good, kThreads * kCalls);
}

}  // namespace
}  // namespace millrace
