// SPDX-License-Identifier: Apache-2.0
// gRPC's health service: whoever watches is told the state at once and whenever it changes, and
// takes no more of the server than there is for it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "transport/grpc/health_service.h"
#include "transport/grpc/health_watch_testlib.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HealthRequest;
using testing::HealthWatch;

// Longer than anything here takes.
constexpr seconds kLong(60);

class HealthServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Waits until it is told to end.
    server_.AddMethod("/test.Work/Park", [this](ServerCall* call) {
      parked_ = call;
      is_parked_.Notify();
    });
    const StatusOr<int> port = server_.Start("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = StrCat("127.0.0.1:", *port);
    channel_ = Connect();
  }

  // A connection of its own each time.
  std::shared_ptr<grpc::Channel> Connect(grpc::ChannelArguments arguments = {}) const {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  }

  std::future<grpc::Status> Call(grpc::ClientContext* context, const std::string& method,
                                 const grpc::ByteBuffer& request, grpc::ByteBuffer* answer) {
    context->set_deadline(std::chrono::system_clock::now() + kLong);
    auto ended = std::make_shared<std::promise<grpc::Status>>();
    grpc::GenericStub(channel_).UnaryCall(
        context, method, grpc::StubOptions(), &request, answer,
        [ended](grpc::Status status) { ended->set_value(std::move(status)); });
    return ended->get_future();
  }
  // What Check says, or the code of its error as a negative number.
  int Check(const grpc::ByteBuffer& request) {
    grpc::ClientContext context;
    grpc::ByteBuffer answer;
    const grpc::Status status =
        Call(&context, "/grpc.health.v1.Health/Check", request, &answer).get();
    return status.ok() ? testing::ReadHealth(answer) : -static_cast<int>(status.error_code());
  }

  static int Threads() {
    return static_cast<int>(
        std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
  }

  ThreadPool pool_{"server", 1};
  ServerCall* parked_ = nullptr;
  Notification is_parked_;
  RpcServer server_{&pool_};
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(HealthServiceTest, WhoeverWatchesIsToldTheStateAtOnceAndEachChange) {
  HealthWatch all(channel_, ""), work(channel_, "test.Work"), unknown(channel_, "no.such.Service");
  EXPECT_EQ(all.Next(), testing::kServing);
  EXPECT_EQ(work.Next(), testing::kServing);
  EXPECT_EQ(unknown.Next(), testing::kServiceUnknown);
  EXPECT_EQ(Check(HealthRequest("test.Work")), testing::kServing);
  server_.Drain();
  EXPECT_EQ(all.Next(), testing::kNotServing);
  EXPECT_EQ(work.Next(), testing::kNotServing);
  EXPECT_EQ(unknown.Next(milliseconds(50)), testing::kNothingNew);
  EXPECT_EQ(Check(HealthRequest("")), testing::kNotServing);
  HealthWatch late(channel_, "test.Work");
  EXPECT_EQ(late.Next(), testing::kNotServing);
  server_.Shutdown(DeadlineAfter(kLong));
  for (HealthWatch* const watch : {&all, &work, &unknown, &late}) {
    EXPECT_EQ(watch->Next(), testing::kEnded);
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

// The state is told before those who still run have ended, and watches do not keep the server.
TEST_F(HealthServiceTest, AServerThatStopsSaysSoWhileItsLastCallRuns) {
  grpc::ClientContext context;
  grpc::ByteBuffer answer;
  std::future<grpc::Status> parked = Call(&context, "/test.Work/Park", HealthRequest(""), &answer);
  ASSERT_TRUE(is_parked_.WaitUntil(DeadlineAfter(kLong)));
  std::vector<std::unique_ptr<HealthWatch>> watches;
  for (int i = 0; i < 20; ++i) watches.push_back(std::make_unique<HealthWatch>(channel_, ""));
  for (const auto& watch : watches) ASSERT_EQ(watch->Next(), testing::kServing);
  std::thread stopping([this] { server_.Shutdown(DeadlineAfter(kLong)); });
  for (const auto& watch : watches) {
    EXPECT_EQ(watch->Next(), testing::kNotServing);
    EXPECT_EQ(watch->Next(), testing::kEnded);
  }
  EXPECT_EQ(parked.wait_for(seconds(0)), std::future_status::timeout) << "it ended too early";
  const auto begin = std::chrono::steady_clock::now();
  parked_->Finish(OkStatus());
  EXPECT_TRUE(parked.get().ok());
  stopping.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2) << "somebody else kept it";
}

// ---- Clients that take nothing -----------------------------------------------------------------

// A connection whose end lets no byte of an answer through, as HTTP/2 allows it, and so no answer
// of a watch; what ends a call is no part of that.
class ClosedWindow {
 public:
  ClosedWindow(const std::string& port, int watches) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in server{};
    server.sin_family = AF_INET;
    server.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = kLong.count(), .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0);
    const std::string no_window("\0\4\0\0\0\0", 6), nothing(5, '\0');
    std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Bytes(kSettings, 0, 0, no_window) +
                        Bytes(kSettings, kAck, 0, "");
    for (int i = 0; i < watches; ++i) {
      const auto stream = static_cast<uint32_t>(2 * i + 1);
      bytes +=
          Bytes(kHeaders, kEndHeaders, stream, Watch()) + Bytes(kData, kEndStream, stream, nothing);
    }
    EXPECT_TRUE(Say(bytes));
  }
  ~ClosedWindow() { close(socket_); }
  ClosedWindow(const ClosedWindow&) = delete;
  ClosedWindow& operator=(const ClosedWindow&) = delete;

  // Whether so many answers have begun.
  bool HaveBegun(int answers) {
    while (answers > 0) {
      const std::optional<Frame> frame = Next();
      if (!frame) return false;
      if (frame->type == kHeaders) --answers;
    }
    return true;
  }
  // Closes the connection, as clients do, once all have ended.
  void WaitForEndOf(std::size_t answers) {
    std::set<std::string> ended;
    while (ended.size() < answers) {
      const std::optional<Frame> frame = Next();
      if (!frame) break;
      const bool is_last = frame->type == kHeaders && (frame->flags & kEndStream) != 0;
      if (is_last || frame->type == kReset) ended.insert(frame->stream);
    }
    shutdown(socket_, SHUT_RDWR);
  }

 private:
  struct Frame {
    char type, flags;
    std::string stream, body;
  };
  static constexpr char kData = 0, kHeaders = 1, kReset = 3, kSettings = 4;
  static constexpr char kAck = 1, kEndStream = 1, kEndHeaders = 4;

  static std::string Bytes(char type, char flags, uint32_t stream, const std::string& body) {
    std::string frame = {0, static_cast<char>(body.size() >> 8), static_cast<char>(body.size()),
                         type, flags};
    for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
    return frame + body;
  }
  // Fields that no table knows, each with its lengths.
  static std::string Watch() {
    std::string block;
    for (const auto& [name, value] :
         std::vector<std::pair<std::string, std::string>>{{":method", "POST"},
                                                          {":scheme", "http"},
                                                          {":path", "/grpc.health.v1.Health/Watch"},
                                                          {":authority", "test"},
                                                          {"te", "trailers"},
                                                          {"content-type", "application/grpc"}}) {
      block += std::string(1, '\0') + static_cast<char>(name.size()) + name +
               static_cast<char>(value.size()) + value;
    }
    return block;
  }
  bool Say(const std::string& bytes) {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Nothing once the connection has ended.
  std::optional<Frame> Next() {
    const std::string head = Read(9);
    if (head.size() < 9) return std::nullopt;
    const auto byte = [&](std::size_t i) { return std::size_t{static_cast<uint8_t>(head[i])}; };
    const std::size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    Frame frame{head[3], head[4], head.substr(5), Read(size)};
    if (frame.body.size() < size) return std::nullopt;
    return frame;
  }
  std::string Read(std::size_t size) {
    std::string bytes(size, '\0');
    std::size_t got = 0;
    while (got < size) {
      const ssize_t n = read(socket_, bytes.data() + got, size - got);
      if (n <= 0) break;
      got += static_cast<std::size_t>(n);
    }
    bytes.resize(got);
    return bytes;
  }

  const int socket_;
};

// Nobody who watches keeps a server from its end for as long as its calls may take.
TEST_F(HealthServiceTest, AServerThatStopsDoesNotWaitForThoseWhoDoNotListen) {
  constexpr int kSome = 20;
  ClosedWindow deaf(address_.substr(address_.find(':') + 1), kSome);
  ASSERT_TRUE(deaf.HaveBegun(kSome));
  HealthWatch listening(channel_, "");
  ASSERT_EQ(listening.Next(), testing::kServing);
  std::thread ending([&deaf] { deaf.WaitForEndOf(kSome); });
  const auto begin = std::chrono::steady_clock::now();
  server_.Shutdown(DeadlineAfter(kLong));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
  ending.join();
  EXPECT_EQ(listening.Next(), testing::kNotServing);
  EXPECT_EQ(listening.Next(), testing::kEnded);
  EXPECT_EQ(listening.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, WatchersAreBoundedAndHaveNoThreads) {
  constexpr int kMost = HealthService::kMostWatchers;
  HealthWatch first(channel_, "");
  ASSERT_EQ(first.Next(), testing::kServing);
  const int threads = Threads();
  std::vector<std::unique_ptr<HealthWatch>> watches;
  for (int i = 1; i < kMost; ++i) {
    // Several connections, as a crowd has them.
    if (i % 128 == 0) channel_ = Connect();
    watches.push_back(std::make_unique<HealthWatch>(channel_, ""));
    ASSERT_EQ(watches.back()->Next(), testing::kServing) << i;
  }
  // gRPC has threads by the number of processors, and makes and ends them as it likes.
  EXPECT_LT(Threads(), threads + 64);
  HealthWatch refused(channel_, "");
  EXPECT_EQ(refused.Next(), testing::kEnded);
  EXPECT_EQ(refused.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Check(HealthRequest("")), testing::kServing) << "who asks once needs no place";
  // Who goes makes room, once the server has heard of it.
  watches.pop_back();
  int last = testing::kEnded;
  for (int i = 0; i < 600 && last == testing::kEnded; ++i) {
    watches.push_back(std::make_unique<HealthWatch>(channel_, ""));
    last = watches.back()->Next();
    if (last != testing::kEnded) break;
    watches.pop_back();
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_EQ(last, testing::kServing);
  server_.Drain();
  EXPECT_EQ(first.Next(), testing::kNotServing);
  for (const auto& watch : watches) EXPECT_EQ(watch->Next(), testing::kNotServing);
  server_.Shutdown(DeadlineAfter(kLong));
  for (const auto& watch : watches) EXPECT_EQ(watch->Next(), testing::kEnded);
}

// What gRPC's own clients do with a health service: a channel whose target does not serve is not
// ready, though it is connected.
TEST_F(HealthServiceTest, AChannelOfGrpcFollowsIt) {
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(
      R"({"loadBalancingConfig": [{"round_robin": {}}],
          "healthCheckConfig": {"serviceName": "test.Work"}})");
  const auto channel = Connect(arguments);
  const auto limit = std::chrono::system_clock::now() + kLong;
  ASSERT_TRUE(channel->WaitForConnected(limit));
  server_.Drain();
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, limit));
  EXPECT_NE(channel->GetState(false), GRPC_CHANNEL_READY);
}

TEST_F(HealthServiceTest, WhatIsNoRequestIsRefused) {
  const auto bytes = [](const std::string& text) {
    const grpc::Slice slice(text);
    return grpc::ByteBuffer(&slice, 1);
  };
  for (const std::string& text : {std::string("\x0a\x7f", 2), std::string("\x0b"),
                                  std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")}) {
    EXPECT_EQ(Check(bytes(text)), -static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
    HealthWatch watch(channel_, bytes(text));
    EXPECT_EQ(watch.Next(), testing::kEnded);
    EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(Check(HealthRequest("no.such.Service")),
            -static_cast<int>(grpc::StatusCode::NOT_FOUND));
  EXPECT_EQ(Check(HealthRequest(std::string(1 << 20, 'x'))),
            -static_cast<int>(grpc::StatusCode::NOT_FOUND));
  // Fields of a newer protocol are passed over.
  EXPECT_EQ(Check(bytes("\x10\x05\x0a\x09test.Work")), testing::kServing);
}

}  // namespace
}  // namespace millrace
