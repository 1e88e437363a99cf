// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/shm/shared_arena.h"
#include "transport/shm/shared_inbox.h"
#include "transport/shm/shared_outbox.h"

namespace millrace {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

RefPtr<SharedReturns> NoReturns() {
  return MakeRef<SharedReturns>([] {});
}

// The slab of a lease, as if its file had come over a link.
Status Map(const SharedLease& lease, SharedInbox* inbox) {
  const SharedSlab& slab = *lease.slab();
  return inbox->Add(slab.id(), dup(slab.fd()), slab.size(), slab.block_size());
}

// A memory file as a peer may make it.
int PeerFile(off_t size, int seals, bool allocated = true) {
  const int fd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, size), 0);
  if (allocated) {
    EXPECT_EQ(fallocate(fd, 0, 0, size), 0);
  }
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedArenaTest, BlocksAreLargeEnoughApartAndUsedAgain) {
  const auto arena = MakeRef<SharedArena>(64 * kMiB);
  std::set<void*> first;
  {
    std::vector<RefPtr<SharedLease>> leases;
    for (std::size_t size = SharedArena::kLeast; size <= 4 * kMiB; size += 300'000) {
      leases.push_back(arena->Take(size));
      ASSERT_TRUE(leases.back());
      EXPECT_GE(leases.back()->slab()->block_size(), size);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(leases.back()->data()) % 64, 0u);
      std::memset(leases.back()->data(), static_cast<int>(leases.size()), size);
      EXPECT_TRUE(first.insert(leases.back()->data()).second);
    }
    for (std::size_t i = 0; i < leases.size(); ++i) {
      EXPECT_EQ(*static_cast<uint8_t*>(leases[i]->data()), i + 1);
    }
  }
  const int64_t used = arena->used();
  for (std::size_t size = SharedArena::kLeast; size <= 4 * kMiB; size += 300'000) {
    ASSERT_TRUE(arena->Take(size));
  }
  EXPECT_EQ(arena->used(), used);
}

TEST(SharedArenaTest, KeepsToItsBudget) {
  const auto arena = MakeRef<SharedArena>(20 * kMiB);
  EXPECT_FALSE(arena->Take(21 * kMiB));
  const RefPtr<SharedLease> large = arena->Take(16 * kMiB);
  ASSERT_TRUE(large);
  EXPECT_FALSE(arena->Take(8 * kMiB));
  EXPECT_LE(arena->used(), 20 * kMiB);
}

TEST(SharedArenaTest, SlabsThatNobodyUsesMakeRoomForOtherSizes) {
  const auto arena = MakeRef<SharedArena>(20 * kMiB);
  RefPtr<SharedLease> large = arena->Take(16 * kMiB);
  SharedOutbox peer;
  EXPECT_TRUE(peer.Lend(large));
  const SharedPlace place = large->place();
  large.reset();
  EXPECT_FALSE(arena->Take(8 * kMiB));
  ASSERT_TRUE(peer.GiveBack(place).ok());
  // Dropped now, but alive until the peer was told.
  EXPECT_FALSE(arena->Take(8 * kMiB));
  EXPECT_EQ(peer.TakeDropped(), std::vector<uint32_t>{place.slab});
  EXPECT_TRUE(arena->Take(8 * kMiB));
}

TEST(SharedArenaTest, ABlockThatAPeerMayReadForEverIsNeverWrittenAgain) {
  const auto arena = MakeRef<SharedArena>(64 * kMiB);
  RefPtr<SharedLease> lease = arena->Take(kMiB);
  const uint32_t slab = lease->place().slab;
  SharedOutbox peer;
  EXPECT_TRUE(peer.Lend(std::move(lease)));
  peer.AbandonAll();
  for (int i = 0; i < 10; ++i) EXPECT_NE(arena->Take(kMiB)->place().slab, slab);
}

TEST(SharedOutboxTest, RefusesWhatWasNotLent) {
  const auto arena = MakeRef<SharedArena>(64 * kMiB);
  SharedOutbox peer;
  RefPtr<SharedLease> lease = arena->Take(kMiB);
  const SharedPlace place = lease->place();
  EXPECT_TRUE(errors::IsInvalidArgument(peer.GiveBack(place)));
  EXPECT_TRUE(peer.Lend(std::move(lease)));
  EXPECT_TRUE(peer.GiveBack(place).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(peer.GiveBack(place)));  // twice
}

TEST(SharedInboxTest, ReadsWhatWasWrittenAndGivesItBackWithTheLastShare) {
  const auto arena = MakeRef<SharedArena>(64 * kMiB);
  const RefPtr<SharedLease> lease = arena->Take(kMiB);
  std::memset(lease->data(), 7, kMiB);
  int woken = 0;
  const auto returns = MakeRef<SharedReturns>([&] { ++woken; });
  SharedInbox inbox(/*copies=*/false, returns);
  ASSERT_TRUE(Map(*lease, &inbox).ok());
  StatusOr<RefPtr<Buffer>> opened = inbox.Open(lease->place(), kMiB);
  ASSERT_TRUE(opened.ok()) << opened.status();
  RefPtr<Buffer> buffer = *std::move(opened);
  EXPECT_EQ(static_cast<uint8_t*>(buffer->data())[kMiB - 1], 7);
  EXPECT_EQ(buffer->size(), static_cast<std::size_t>(kMiB));
  RefPtr<Buffer> other = buffer;
  buffer.reset();
  EXPECT_EQ(woken, 0);
  other.reset();
  EXPECT_EQ(woken, 1);
  const std::vector<SharedPlace> places = returns->Take();
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].slab, lease->place().slab);
  EXPECT_EQ(places[0].block, lease->place().block);
}

TEST(SharedInboxTest, ACopyDoesNotChangeWithWhatThePeerWritesLater) {
  const auto arena = MakeRef<SharedArena>(64 * kMiB);
  const RefPtr<SharedLease> lease = arena->Take(kMiB);
  std::memset(lease->data(), 7, kMiB);
  const auto returns = NoReturns();
  SharedInbox inbox(/*copies=*/true, returns);
  ASSERT_TRUE(Map(*lease, &inbox).ok());
  const StatusOr<RefPtr<Buffer>> opened = inbox.Open(lease->place(), kMiB);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(returns->Take().size(), 1u);
  std::memset(lease->data(), 8, kMiB);
  EXPECT_EQ(static_cast<uint8_t*>((*opened)->data())[kMiB - 1], 7);
}

TEST(SharedInboxTest, ABufferOutlivesTheSenderAndTheInbox) {
  RefPtr<Buffer> buffer;
  {
    const auto arena = MakeRef<SharedArena>(64 * kMiB);
    const RefPtr<SharedLease> lease = arena->Take(kMiB);
    std::memset(lease->data(), 9, kMiB);
    const auto returns = NoReturns();
    SharedInbox inbox(/*copies=*/false, returns);
    ASSERT_TRUE(Map(*lease, &inbox).ok());
    StatusOr<RefPtr<Buffer>> opened = inbox.Open(lease->place(), kMiB);
    ASSERT_TRUE(opened.ok());
    buffer = *std::move(opened);
    EXPECT_TRUE(inbox.Remove(lease->place().slab).ok());
    returns->Close();
  }
  EXPECT_EQ(static_cast<uint8_t*>(buffer->data())[kMiB - 1], 9);
}

TEST(SharedInboxTest, RefusesFilesThatCouldFaultAReader) {
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  SharedInbox inbox(/*copies=*/false, NoReturns());
  const auto refused = [&](int fd, uint64_t size, uint64_t block) {
    return errors::IsInvalidArgument(inbox.Add(1, fd, size, block));
  };
  EXPECT_TRUE(refused(PeerFile(kMiB, 0), kMiB, kMiB));                             // may shrink
  EXPECT_TRUE(refused(PeerFile(kMiB, F_SEAL_GROW), kMiB, kMiB));                   // the same
  EXPECT_TRUE(refused(PeerFile(kMiB, kSealed), 2 * kMiB, kMiB));                   // too short
  EXPECT_TRUE(refused(PeerFile(kMiB, kSealed, /*allocated=*/false), kMiB, kMiB));  // with holes
  EXPECT_TRUE(refused(PeerFile(kMiB, kSealed), kMiB, 0));
  EXPECT_TRUE(refused(PeerFile(kMiB, kSealed), kMiB, kMiB - 1));
  EXPECT_TRUE(refused(open("/dev/null", O_RDWR), kMiB, kMiB));
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(ftruncate(fileno(file), kMiB), 0);
  EXPECT_TRUE(refused(dup(fileno(file)), kMiB, kMiB));
  std::fclose(file);
  EXPECT_TRUE(inbox.Add(1, PeerFile(kMiB, kSealed), kMiB, kMiB / 2).ok());
  EXPECT_TRUE(refused(PeerFile(kMiB, kSealed), kMiB, kMiB));  // the number is taken
}

TEST(SharedInboxTest, RefusesPlacesThatAreNotShared) {
  SharedInbox inbox(/*copies=*/false, NoReturns());
  ASSERT_TRUE(inbox.Add(1, PeerFile(kMiB, F_SEAL_SHRINK | F_SEAL_GROW), kMiB, kMiB / 2).ok());
  EXPECT_TRUE(inbox.Open({1, 1}, kMiB / 2).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(inbox.Open({1, 2}, 1).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(inbox.Open({1, 0xffffffff}, 1).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(inbox.Open({2, 0}, 1).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(inbox.Open({1, 0}, kMiB / 2 + 1).status()));
  EXPECT_TRUE(inbox.Remove(1).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(inbox.Remove(1)));
  EXPECT_TRUE(errors::IsInvalidArgument(inbox.Open({1, 0}, 1).status()));
}

TEST(SharedArenaTest, ItsFilesCannotBeMadeSmaller) {
  const auto arena = MakeRef<SharedArena>(64 * kMiB);
  const RefPtr<SharedLease> lease = arena->Take(kMiB);
  EXPECT_NE(ftruncate(lease->slab()->fd(), 0), 0);
  EXPECT_NE(fcntl(lease->slab()->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

}  // namespace
}  // namespace millrace
