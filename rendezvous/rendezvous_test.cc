// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/rendezvous.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr std::chrono::seconds kPatience{30};

struct Received {
  Notification done;
  Status status;
  Tensor value;
  bool is_dead = false;
  std::atomic<int> calls{0};

  Rendezvous::RecvDone Callback() {
    return [this](const Status& s, const Tensor& v, bool dead) {
      ++calls;
      status = s;
      value = v;
      is_dead = dead;
      done.Notify();
    };
  }
  [[nodiscard]] bool Wait() { return done.WaitUntil(DeadlineAfter(kPatience)); }
};

TEST(RendezvousKeyTest, IsWrittenAsTensorFlowWritesIt) {
  RendezvousKey key{
      "/job:ps/replica:0/task:0/device:CPU:0", 0xabc, "/device:CPU:1", "edge_3_w", 0, 7};
  EXPECT_EQ(key.ToString(),
            "/job:ps/replica:0/task:0/device:CPU:0;0000000000000abc;/device:CPU:1;edge_3_w;0:7");
}

TEST(RendezvousKeyTest, SurvivesTheRoundTrip) {
  RendezvousKey key{"/job:a/task:1", ~uint64_t{0}, "/job:b/task:2", "x", ~uint64_t{0}, 12};
  auto parsed = RendezvousKey::Parse(key.ToString());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->ToString(), key.ToString());
  EXPECT_EQ(parsed->src_incarnation, ~uint64_t{0});
  EXPECT_EQ(parsed->frame_id, ~uint64_t{0});
  EXPECT_EQ(parsed->iteration, 12);
  EXPECT_EQ(parsed->dst_device, "/job:b/task:2");
}

TEST(RendezvousKeyTest, RefusesEveryOtherForm) {
  for (const char* text : {"", ";;;;", "a;b;c", "a;0000000000000001;b;x;0:0;y", "a;01;b;x;0:0",
                           "a;000000000000000g;b;x;0:0", "a;0000000000000001;b;x;0",
                           "a;0000000000000001;b;x;:", "a;0000000000000001;b;;0:0",
                           "a;0000000000000001;b;x;99999999999999999999:0"}) {
    auto parsed = RendezvousKey::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(errors::IsInvalidArgument(parsed.status()));
    EXPECT_NE(Message(parsed.status()).find("Invalid  rendezvous key"), std::string::npos);
  }
}

TEST(LocalRendezvousTest, AValueWaitsForItsReceiver) {
  auto rendezvous = NewLocalRendezvous();
  ASSERT_TRUE(rendezvous->Send("k", Tensor::Scalar<float>(3), false).ok());
  Received r;
  rendezvous->RecvAsync("k", nullptr, r.Callback());
  ASSERT_TRUE(r.Wait());
  EXPECT_TRUE(r.status.ok());
  EXPECT_EQ(r.value.scalar<float>(), 3);
}

TEST(LocalRendezvousTest, AReceiverWaitsForItsValue) {
  auto rendezvous = NewLocalRendezvous();
  Received r;
  rendezvous->RecvAsync("k", nullptr, r.Callback());
  EXPECT_EQ(r.calls, 0);
  ASSERT_TRUE(rendezvous->Send("other", Tensor::Scalar<float>(1), false).ok());
  EXPECT_EQ(r.calls, 0);
  ASSERT_TRUE(rendezvous->Send("k", Tensor(), true).ok());
  ASSERT_TRUE(r.Wait());
  EXPECT_TRUE(r.is_dead);
}

TEST(LocalRendezvousTest, ValuesOfOneKeyKeepTheirOrder) {
  auto rendezvous = NewLocalRendezvous();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(rendezvous->Send("k", Tensor::Scalar<int32_t>(i), false).ok());
  }
  for (int i = 0; i < 3; ++i) {
    Received r;
    rendezvous->RecvAsync("k", nullptr, r.Callback());
    ASSERT_TRUE(r.Wait());
    EXPECT_EQ(r.value.scalar<int32_t>(), i);
  }
}

TEST(LocalRendezvousTest, AnAbortFailsWaitersAndAllLaterCallsAndTheFirstOneWins) {
  auto rendezvous = NewLocalRendezvous();
  Received waiting, late;
  rendezvous->RecvAsync("k", nullptr, waiting.Callback());
  ASSERT_TRUE(rendezvous->Send("buffered", Tensor::Scalar<float>(1), false).ok());
  rendezvous->StartAbort(errors::DataLoss("first"));
  rendezvous->StartAbort(errors::Internal("second"));
  ASSERT_TRUE(waiting.Wait());
  EXPECT_TRUE(errors::IsDataLoss(waiting.status));
  EXPECT_TRUE(errors::IsDataLoss(rendezvous->Send("k", Tensor(), false)));
  rendezvous->RecvAsync("buffered", nullptr, late.Callback());
  ASSERT_TRUE(late.Wait());
  EXPECT_TRUE(errors::IsDataLoss(late.status));
}

TEST(LocalRendezvousTest, ACancellationEndsOnlyItsOwnReceives) {
  auto rendezvous = NewLocalRendezvous();
  CancellationManager cancelled, other;
  Received gone, stays, refused;
  rendezvous->RecvAsync("k", &cancelled, gone.Callback());
  rendezvous->RecvAsync("k", &other, stays.Callback());
  cancelled.StartCancel(errors::Cancelled("enough"));
  ASSERT_TRUE(gone.Wait());
  EXPECT_TRUE(errors::IsCancelled(gone.status));
  EXPECT_EQ(Message(gone.status), "RecvAsync is cancelled");
  EXPECT_EQ(stays.calls, 0);
  ASSERT_TRUE(rendezvous->Send("k", Tensor::Scalar<float>(5), false).ok());
  ASSERT_TRUE(stays.Wait());
  EXPECT_EQ(stays.value.scalar<float>(), 5);
  rendezvous->RecvAsync("k", &cancelled, refused.Callback());
  ASSERT_TRUE(refused.Wait());
  EXPECT_TRUE(errors::IsCancelled(refused.status));
}

TEST(LocalRendezvousTest, EveryReceiveEndsExactlyOnceUnderConcurrentSendsAndCancellation) {
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    auto rendezvous = NewLocalRendezvous();
    CancellationManager cancellation;
    Received a, b;
    std::thread receiver([&] {
      rendezvous->RecvAsync("a", &cancellation, a.Callback());
      rendezvous->RecvAsync("b", &cancellation, b.Callback());
    });
    std::thread sender([&] {
      (void)rendezvous->Send("a", Tensor::Scalar<float>(1), false);
      (void)rendezvous->Send("b", Tensor::Scalar<float>(2), false);
    });
    std::thread killer([&] {
      if (round % 2 == 0) cancellation.StartCancel(errors::Cancelled("stop"));
      if (round % 2 == 1) rendezvous->StartAbort(errors::Aborted("stop"));
    });
    receiver.join();
    sender.join();
    killer.join();
    ASSERT_TRUE(a.Wait());
    ASSERT_TRUE(b.Wait());
    EXPECT_EQ(a.calls, 1);
    EXPECT_EQ(b.calls, 1);
  }
}

}  // namespace
}  // namespace millrace
