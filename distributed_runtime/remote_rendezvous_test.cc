// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/remote_rendezvous.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/thread_pool.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

constexpr char kOwn[] = "/job:worker/replica:0/task:0";
constexpr char kPeer[] = "/job:ps/replica:0/task:0";

std::string Key(const std::string& source_task, const std::string& destination_task) {
  RendezvousKey key;
  key.src_device = source_task + "/device:CPU:0";
  key.src_incarnation = 1;
  key.dst_device = destination_task + "/device:CPU:0";
  key.edge_name = "edge_1_x";
  return key.ToString();
}

// A peer that answers when it is told to, and ends cancelled requests, on a thread of its own.
class FakePeer : public WorkerInterface {
 public:
  void GetStatusAsync(const CallOptions&, std::vector<pb::DeviceAttributes>*, Done) override {}
  void CreateSessionAsync(const CallOptions&, const WorkerSessionOptions&, Done) override {}
  void DeleteSessionAsync(const CallOptions&, const std::string&, Done) override {}
  void RegisterGraphAsync(const CallOptions&, RegisterGraphArgs, std::string*, Done) override {}
  void DeregisterGraphAsync(const CallOptions&, const std::string&, const std::string&,
                            Done) override {}
  void RunGraphAsync(const CallOptions&, RunGraphArgs*, RunGraphResult*, Done) override {}
  void CleanupGraphAsync(const CallOptions&, int64_t, Done) override {}
  void CleanupAllAsync(const CallOptions&, std::vector<std::string>, Done) override {}
  void RecvTensorAsync(const CallOptions& options, int64_t step_id, const std::string& key,
                       RecvDone done) override {
    last_step = step_id;
    last_key = key;
    pending = std::make_shared<Notification>();
    CancellationManager* const cancellation = options.cancellation;
    const CancellationManager::Token token = cancellation->NextToken();
    const bool registered = cancellation->RegisterCallback(token, [p = pending] { p->Notify(); });
    if (!registered) pending->Notify();
    threads.Schedule([p = pending, cancellation, token, registered, done = std::move(done)] {
      p->Wait();
      if (registered) cancellation->DeregisterCallback(token);
      if (cancellation->IsCancelled()) {
        done(MarkDerived(errors::Cancelled("request cancelled")), Tensor(), false);
      } else {
        done(OkStatus(), Tensor::Scalar<int32_t>(42), true);
      }
    });
  }

  int64_t last_step = 0;
  std::string last_key;
  std::shared_ptr<Notification> pending;  // notified: the answer may go
  ThreadPool threads{"peer", 1};
};

class OnePeer : public WorkerCache {
 public:
  explicit OnePeer(FakePeer* peer) : peer_(peer) {}
  std::vector<std::string> ListWorkers() const override { return {kPeer, kOwn}; }
  WorkerInterface* GetWorker(std::string_view task) override {
    return task == kPeer ? peer_ : nullptr;
  }

 private:
  FakePeer* const peer_;
};

struct Received {
  Status status;
  Tensor value;
  bool is_dead = false;
  Notification done;
  Rendezvous::RecvDone Callback() {
    return [this](const Status& s, const Tensor& v, bool dead) {
      status = s;
      value = v;
      is_dead = dead;
      done.Notify();
    };
  }
  bool Wait() { return done.WaitUntil(DeadlineAfter(std::chrono::seconds(20))); }
};

class RemoteRendezvousTest : public testing::Test {
 protected:
  FakePeer peer_;
  OnePeer workers_{&peer_};
  std::unique_ptr<RendezvousManager> manager_ = NewRemoteRendezvousManager(kOwn, &workers_);
};

TEST_F(RemoteRendezvousTest, ServesKeysOfItsOwnTaskLocally) {
  const RefPtr<Rendezvous> step = manager_->Find(7);
  EXPECT_EQ(step.get(), manager_->Find(7).get());
  Received received;
  step->RecvAsync(Key(kOwn, kPeer), nullptr, received.Callback());
  EXPECT_FALSE(received.done.HasBeenNotified());
  ASSERT_TRUE(step->Send(Key(kOwn, kPeer), Tensor::Scalar<int32_t>(5), false).ok());
  ASSERT_TRUE(received.Wait());
  EXPECT_EQ(received.value.scalar<int32_t>(), 5);
}

TEST_F(RemoteRendezvousTest, AsksTheTaskOfTheSource) {
  Received received;
  manager_->Find(7)->RecvAsync(Key(kPeer, kOwn), nullptr, received.Callback());
  EXPECT_EQ(peer_.last_step, 7);
  EXPECT_EQ(peer_.last_key, Key(kPeer, kOwn));
  peer_.pending->Notify();
  ASSERT_TRUE(received.Wait());
  ASSERT_TRUE(received.status.ok()) << received.status;
  EXPECT_EQ(received.value.scalar<int32_t>(), 42);
  EXPECT_TRUE(received.is_dead);
}

TEST_F(RemoteRendezvousTest, RefusesASourceThatTheClusterDoesNotHave) {
  Received received;
  manager_->Find(7)->RecvAsync(Key("/job:ps/replica:0/task:9", kOwn), nullptr, received.Callback());
  ASSERT_TRUE(received.Wait());
  EXPECT_EQ(received.status.code(), StatusCode::kInvalidArgument);
}

TEST_F(RemoteRendezvousTest, AnAbortEndsRequestsWithItsStatus) {
  const RefPtr<Rendezvous> step = manager_->Find(7);
  Received before, after;
  step->RecvAsync(Key(kPeer, kOwn), nullptr, before.Callback());
  step->StartAbort(errors::Internal("the root cause"));
  ASSERT_TRUE(before.Wait());
  EXPECT_EQ(before.status, errors::Internal("the root cause"));
  step->RecvAsync(Key(kPeer, kOwn), nullptr, after.Callback());
  ASSERT_TRUE(after.Wait());
  EXPECT_EQ(after.status, errors::Internal("the root cause"));
}

TEST_F(RemoteRendezvousTest, ACancelledStepCancelsItsRequests) {
  auto cancellation = std::make_unique<CancellationManager>();
  Received received;
  manager_->Find(7)->RecvAsync(Key(kPeer, kOwn), cancellation.get(), received.Callback());
  cancellation->StartCancel(errors::Cancelled("enough"));
  ASSERT_TRUE(received.Wait());
  EXPECT_EQ(received.status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(IsDerived(received.status));
}

TEST_F(RemoteRendezvousTest, TheCancellationMayGoAsSoonAsTheValueCame) {
  for (int i = 0; i < 100; ++i) {
    auto cancellation = std::make_unique<CancellationManager>();
    Received received;
    manager_->Find(7)->RecvAsync(Key(kPeer, kOwn), cancellation.get(), received.Callback());
    peer_.pending->Notify();
    ASSERT_TRUE(received.Wait());
    cancellation.reset();
  }
}

TEST_F(RemoteRendezvousTest, CleanupAbortsAndForgets) {
  const RefPtr<Rendezvous> step = manager_->Find(7);
  Received received;
  step->RecvAsync(Key(kOwn, kPeer), nullptr, received.Callback());
  manager_->Cleanup(7);
  ASSERT_TRUE(received.Wait());
  EXPECT_EQ(received.status, errors::Aborted("Cleanup 7"));
  EXPECT_NE(manager_->Find(7).get(), step.get());
  manager_->Cleanup(8);  // never begun
  manager_->CleanupAll(errors::Unavailable("going down"));
}

// What a peer asks of a step that is never begun here is kept as long as it asks.
TEST(RemoteRendezvousManager, ForgetsStepsThatOnlyPeersAskedFor) {
  const auto manager = NewRemoteRendezvousManager(kOwn, nullptr);
  constexpr int kMost = 65536;
  std::vector<RefPtr<Rendezvous>> found;
  for (int step = 0; step < kMost; ++step) {
    StatusOr<RefPtr<Rendezvous>> rendezvous = manager->FindForPeer(step);
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
    found.push_back(*std::move(rendezvous));
  }
  EXPECT_EQ(manager->FindForPeer(kMost).status().code(), StatusCode::kResourceExhausted);
  // One that is known already may be asked for by others, and begun.
  EXPECT_EQ(manager->FindForPeer(7)->get(), found[7].get());
  const RefPtr<Rendezvous> begun = manager->Find(7);
  for (int step = 0; step < kMost; ++step) manager->PeerDone(step, found[step].get());
  manager->PeerDone(7, found[7].get());
  EXPECT_EQ(manager->Find(7).get(), begun.get());  // until it is cleaned up
  for (int step = kMost; step < 2 * kMost; ++step) {
    EXPECT_TRUE(manager->FindForPeer(step).ok());
  }
  // A request that ends when its step has been forgotten and begun anew.
  manager->Cleanup(7);
  const RefPtr<Rendezvous> anew = manager->Find(7);
  manager->PeerDone(7, found[7].get());
  EXPECT_EQ(manager->Find(7).get(), anew.get());
}

// What a peer is given: the value, or the status that it ends with.
StatusOr<Tensor> TakeAsPeer(RendezvousManager* manager, int64_t step, const std::string& key) {
  const StatusOr<RefPtr<Rendezvous>> found = manager->FindForPeer(step);
  if (!found.ok()) return found.status();
  StatusOr<Tensor> taken = errors::Unknown("it waits");
  CancellationManager cancellation;
  (*found)->RecvAsync(key, &cancellation, [&](const Status& status, const Tensor& value, bool) {
    if (status.ok()) {
      taken = value;
    } else {
      taken = status;
    }
  });
  cancellation.StartCancel(errors::Cancelled("enough"));
  manager->PeerDone(step, found->get());
  return taken;
}

TEST(RenamedRendezvousManager, PeersFindWhatWasSentUnderAnotherNameOfTheTask) {
  const auto own = NewRemoteRendezvousManager(kOwn, nullptr);
  const auto renamed =
      NewRenamedRendezvousManager("/job:other/replica:0/task:3", nullptr, own.get());
  RendezvousKey key;
  key.src_device = "/job:other/replica:0/task:3/device:CPU:0";
  key.src_incarnation = 1;
  key.dst_device = "/job:far/replica:0/task:0/device:CPU:0";
  key.edge_name = "edge";
  const RefPtr<Rendezvous> step = renamed->Find(5);
  EXPECT_EQ(renamed->Find(5).get(), step.get());
  ASSERT_TRUE(step->Send(key.ToString(), Tensor(kFloat, Shape()), false).ok());
  const StatusOr<Tensor> taken = TakeAsPeer(own.get(), 5, key.ToString());
  EXPECT_TRUE(taken.ok()) << taken.status();
  ASSERT_TRUE(step->Send(key.ToString(), Tensor(kFloat, Shape()), false).ok());
  renamed->Cleanup(5);
  EXPECT_TRUE(errors::IsCancelled(TakeAsPeer(own.get(), 5, key.ToString()).status()))
      << "the step was cleaned up: what is asked for it now waits";
}

}  // namespace
}  // namespace millrace
