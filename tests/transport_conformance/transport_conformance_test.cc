// SPDX-License-Identifier: Apache-2.0
// Every transport over which tasks call each other does the same: sizes and faults by transport.
// A transport that is new gets a row in transports.cc.

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tests/transport_conformance/transports.h"
#include "transport/methods.h"

extern char** environ;

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What the methods do here is up to the test: those with a number go over every transport.
constexpr const char *kEcho = methods::kWorkerRecvTensor, *kPark = methods::kWorkerRunGraph,
                     *kNote = methods::kWorkerCleanupGraph, *kFail = methods::kWorkerRecvBuf;
constexpr seconds kLimit{60};
constexpr int64_t kMiB = int64_t{1} << 20;

// What a served task has seen.
struct Seen {
  Notification parked, cancelled, noted;
};

Status Failure() {
  Status status = errors::FailedPrecondition("variable w is not initialised, 100 % sure");
  status.SetPayload("type.googleapis.com/x", "value");
  return status;
}

StatusOr<Tensor> TensorOf(WireReader in) {
  uint32_t field, type;
  WireReader body;
  if (!in.ReadTag(&field, &type) || field != 1 || !in.ReadBody(&body)) {
    return errors::InvalidArgument("no tensor");
  }
  return ReadTensor(body);
}

// Methods are added once, and nothing here knows which transport it is.
void AddMethods(MethodServer* server, Seen* seen) {
  server->AddMethod(kEcho, [](ServerCall* call) {
    const StatusOr<Tensor> tensor = TensorOf(call->reader());
    if (!tensor.ok()) return call->Finish(tensor.status());
    WireWriter answer;
    const Status written = answer.AppendTensorField(1, *tensor);
    if (!written.ok()) return call->Finish(written);
    call->Finish(std::move(answer));
  });
  server->AddMethod(kFail, [](ServerCall* call) { call->Finish(Failure()); });
  server->AddMethod(kNote, [seen](ServerCall* call) {
    call->Finish(OkStatus());
    seen->noted.Notify();
  });
  server->AddMethod(
      kPark,
      [seen](ServerCall* call) {
        CancellationManager* const cancellation = call->options().cancellation;
        const auto end = [seen, call] {
          seen->cancelled.Notify();
          call->Finish(errors::Cancelled("parked call cancelled"));
        };
        if (!cancellation->RegisterCallback(cancellation->NextToken(), end)) return end();
        seen->parked.Notify();
      },
      RpcLane::kWork);
}

// Bytes that tell where they belong.
Tensor Pattern(int64_t bytes, uint8_t seed) {
  Tensor tensor(kUint8, Shape({bytes}));
  for (int64_t i = 0; i < bytes; ++i) {
    tensor.data<uint8_t>()[i] = static_cast<uint8_t>(seed + i + (i >> 8) * 7 + (i >> 16) * 13);
  }
  return tensor;
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() &&
         (a.num_bytes() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.num_bytes()) == 0);
}

// A call that has been made: its end can be waited for.
struct Made {
  Notification ended;
  Status status;
  StatusOr<Tensor> answer = errors::Unknown("no answer");

  Status Wait() {
    return ended.WaitUntil(DeadlineAfter(kLimit)) ? status : errors::Unknown("it did not end");
  }
};

std::shared_ptr<Made> Call(Channel* channel, const char* method, const CallOptions& options,
                           const Tensor* tensor = nullptr) {
  auto made = std::make_shared<Made>();
  WireWriter request;
  if (tensor != nullptr) {
    EXPECT_TRUE(request.AppendTensorField(1, *tensor).ok());
  }
  channel->Call(method, options, std::move(request), [made](Status status, WireReader in) {
    if (status.ok()) made->answer = TensorOf(in);
    made->status = std::move(status);
    made->ended.Notify();
  });
  return made;
}

// Ends with OK and the same bytes, or says what is wrong.
Status Echo(Channel* channel, const Tensor& tensor) {
  const auto made = Call(channel, kEcho, {DeadlineAfter(kLimit), nullptr}, &tensor);
  MR_RETURN_IF_ERROR(made->Wait());
  if (!made->answer.ok()) return made->answer.status();
  return SameBytes(*made->answer, tensor) ? OkStatus() : errors::DataLoss("other bytes came back");
}

class TransportTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    AddMethods(server_->methods(), &seen_);
    address_ = server_->Start();
    ASSERT_NE(address_, "");
    caller_ = NewCallingEnd(GetParam(), address_);
    ASSERT_NE(channel(), nullptr);
  }
  Channel* channel() { return caller_->channel(); }

  Seen seen_;
  std::unique_ptr<ServingEnd> server_ = NewServingEnd(GetParam());
  std::string address_;
  std::unique_ptr<CallingEnd> caller_;
};

TEST_P(TransportTest, TensorsOfAllSizesArriveAsTheyWere) {
  std::vector<int64_t> sizes = {0,     1,     63,       2047,         2048,     2049,
                                65535, 65536, kMiB - 1, 3 * kMiB + 5, 64 * kMiB};
  if (std::getenv("TRANSPORT_SIZES") != nullptr) sizes.push_back(1024 * kMiB);
  for (const int64_t size : sizes) {
    SCOPED_TRACE(size);
    EXPECT_TRUE(Echo(channel(), Pattern(size, static_cast<uint8_t>(size))).ok());
  }
  EXPECT_EQ(server_->shared_bytes() > 0, GetParam() == "shared_memory");
}

TEST_P(TransportTest, ATensorThatIsKeptDoesNotChangeWhenOthersFollow) {
  const Tensor first = Pattern(kMiB, 1);
  const auto made = Call(channel(), kEcho, {}, &first);
  ASSERT_TRUE(made->Wait().ok());
  for (int i = 2; i < 40; ++i) {
    ASSERT_TRUE(Echo(channel(), Pattern(kMiB, static_cast<uint8_t>(i))).ok());
  }
  ASSERT_TRUE(made->answer.ok());
  EXPECT_TRUE(SameBytes(*made->answer, first));
}

TEST_P(TransportTest, MemoryIsUsedAgain) {
  constexpr int kTimes = 40;
  const Tensor tensor = Pattern(8 * kMiB, 1);
  for (int i = 0; i < kTimes; ++i) ASSERT_TRUE(Echo(channel(), tensor).ok());
  // Some may be on their way back when the next one leaves.
  EXPECT_LE(server_->shared_bytes(), kTimes / 2 * 8 * kMiB);
}

TEST_P(TransportTest, ErrorsArriveWithCodeTextAndPayloads) {
  EXPECT_EQ(Call(channel(), kFail, {})->Wait(), Failure());
}

TEST_P(TransportTest, ManyCallsAtOnceGetTheirOwnAnswers) {
  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<Made>> calls;
  for (int i = 0; i < 64; ++i) {
    tensors.push_back(Pattern(i % 2 == 0 ? 100 + i : 200'000 + i, static_cast<uint8_t>(i)));
    calls.push_back(Call(channel(), kEcho, {}, &tensors.back()));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    ASSERT_TRUE(calls[i]->Wait().ok());
    ASSERT_TRUE(calls[i]->answer.ok());
    EXPECT_TRUE(SameBytes(*calls[i]->answer, tensors[i]));
  }
}

TEST_P(TransportTest, ANotificationArrives) {
  channel()->Notify(kNote, {}, WireWriter(), [](const Status&) {});
  EXPECT_TRUE(seen_.noted.WaitUntil(DeadlineAfter(kLimit)));
}

TEST_P(TransportTest, ACallEndsAtItsDeadlineOnBothSides) {
  const auto made = Call(channel(), kPark, {DeadlineAfter(milliseconds(200)), nullptr});
  const Status status = made->Wait();
  EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(Message(status).find(kServingTask), std::string_view::npos) << status;
  // It may not have been begun by then; if it was, it is cancelled.
  if (seen_.parked.HasBeenNotified()) {
    EXPECT_TRUE(seen_.cancelled.WaitUntil(DeadlineAfter(kLimit)));
  }
}

TEST_P(TransportTest, ACancelledCallEndsOnBothSides) {
  CancellationManager cancellation;
  const auto made = Call(channel(), kPark, {kNoDeadline, &cancellation});
  ASSERT_TRUE(seen_.parked.WaitUntil(DeadlineAfter(kLimit)));
  cancellation.StartCancel(errors::Cancelled("enough"));
  const Status status = made->Wait();
  EXPECT_TRUE(errors::IsCancelled(status)) << status;
  EXPECT_TRUE(seen_.cancelled.WaitUntil(DeadlineAfter(kLimit)));
}

TEST_P(TransportTest, ACallThatIsCancelledBeforeItLeavesEnds) {
  CancellationManager cancellation;
  cancellation.StartCancel(errors::Cancelled("enough"));
  EXPECT_TRUE(errors::IsCancelled(Call(channel(), kPark, {kNoDeadline, &cancellation})->Wait()));
}

TEST_P(TransportTest, WhoGivesThePeerUpEndsTheCallsWithItsReason) {
  const auto made = Call(channel(), kPark, {});
  ASSERT_TRUE(seen_.parked.WaitUntil(DeadlineAfter(kLimit)));
  EXPECT_TRUE(channel()->waits());
  channel()->FailWaiting(errors::Unavailable("it has been silent"));
  const Status status = made->Wait();
  EXPECT_TRUE(errors::IsUnavailable(status)) << status;
  EXPECT_NE(Message(status).find("it has been silent"), std::string_view::npos) << status;
}

TEST_P(TransportTest, CallsEndWhenTheServerStops) {
  const auto made = Call(channel(), kPark, {});
  ASSERT_TRUE(seen_.parked.WaitUntil(DeadlineAfter(kLimit)));
  server_->Stop();
  const Status status = made->Wait();
  EXPECT_TRUE(errors::IsCancelled(status) || errors::IsUnavailable(status)) << status;
  const Status later = Call(channel(), kEcho, {DeadlineAfter(kLimit), nullptr})->Wait();
  EXPECT_TRUE(errors::IsUnavailable(later)) << later;
}

// The serving end in a process of its own, which can be killed.
class ServingProcess {
 public:
  explicit ServingProcess(const std::string& transport) {
    int out[2];
    if (pipe(out) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    std::string flag = "--serve", name = transport, self = "/proc/self/exe";
    char* arguments[] = {self.data(), flag.data(), name.data(), nullptr};
    if (posix_spawn(&pid_, self.c_str(), &actions, nullptr, arguments, environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    char c;
    while (read(out[0], &c, 1) == 1 && c != '\n') address_ += c;
    close(out[0]);
  }
  ~ServingProcess() { Kill(); }

  const std::string& address() const { return address_; }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

TEST_P(TransportTest, CallsEndWhenThePeerIsKilledAndItsTensorsStay) {
  ServingProcess process(GetParam());
  const auto caller = NewCallingEnd(GetParam(), process.address());
  ASSERT_NE(caller->channel(), nullptr);
  const Tensor tensor = Pattern(4 * kMiB, 3);
  const auto kept = Call(caller->channel(), kEcho, {}, &tensor);
  ASSERT_TRUE(kept->Wait().ok());
  const auto parked = Call(caller->channel(), kPark, {});
  process.Kill();
  const Status status = parked->Wait();
  EXPECT_TRUE(errors::IsUnavailable(status)) << status;
  EXPECT_NE(Message(status).find(kServingTask), std::string_view::npos) << status;
  ASSERT_TRUE(kept->answer.ok());
  EXPECT_TRUE(SameBytes(*kept->answer, tensor));
}

TEST_P(TransportTest, APeerKilledWithinATensorLeavesNoHalfOne) {
  ServingProcess process(GetParam());
  const auto caller = NewCallingEnd(GetParam(), process.address());
  ASSERT_NE(caller->channel(), nullptr);
  const Tensor tensor = Pattern(16 * kMiB, 5);
  std::vector<std::shared_ptr<Made>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(Call(caller->channel(), kEcho, {}, &tensor));
  ASSERT_TRUE(calls.front()->Wait().ok());
  process.Kill();
  for (const auto& made : calls) {
    const Status status = made->Wait();
    if (status.ok()) {
      ASSERT_TRUE(made->answer.ok());
      EXPECT_TRUE(SameBytes(*made->answer, tensor));
    } else {
      EXPECT_TRUE(errors::IsUnavailable(status)) << status;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TransportTest, testing::Values("grpc", "link", "shared_memory"),
                         [](const auto& row) { return row.param; });

// Until it is killed, or its parent is gone.
int ServeUntilKilled(const std::string& transport) {
  const pid_t parent = getppid();
  Seen seen;
  const std::unique_ptr<ServingEnd> server = NewServingEnd(transport);
  AddMethods(server->methods(), &seen);
  std::printf("%s\n", server->Start().c_str());
  std::fflush(stdout);
  while (getppid() == parent) usleep(100'000);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--serve") == 0) return millrace::ServeUntilKilled(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
