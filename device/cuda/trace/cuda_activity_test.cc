// SPDX-License-Identifier: Apache-2.0
// What is told of steps, over a CUPTI that hands its records out in all the ways it may.
#include "device/cuda/trace/cuda_activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "device/cuda/simulated/simulated_cupti.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr milliseconds kLimit = seconds(60);  // nobody waits for it but where it is to pass

// Only its address matters.
class SomeDevice final : public Accelerator {
 public:
  const std::string& name() const override { return name_; }
  Stream* stream(StreamKind) override { return nullptr; }
  Allocator* allocator() override { return nullptr; }
  Allocator* staging_allocator() override { return nullptr; }
  void Post(std::function<void()> fn) override { fn(); }

 private:
  const std::string name_ = "some";
};

class CudaActivityTest : public ::testing::Test {
 protected:
  CudaActivityTest() { Make({}); }
  ~CudaActivityTest() override { Forget(); }

  void Make(CudaActivityOptions options) {
    Forget();
    options.load = [this]() -> StatusOr<const CuptiCalls*> { return sim.calls(); };
    options.wall_nanos = [this] { return wall.load(); };
    activities = std::make_unique<CudaActivities>(options);
  }
  void Forget() {
    sim.Settle();
    activities = nullptr;
  }
  std::unique_ptr<ActivityRecording> Record(const RefPtr<DeviceWork>& of) {
    auto made = activities->Record(&device, of);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  // As a machine does, around what it issues.
  template <typename Issue>
  void Run(const RefPtr<DeviceWork>& of, const std::string& node, Issue issue,
           StreamKind stream = StreamKind::kCompute) {
    const CudaActivityScope scope(activities.get(), &device, of.get(), node, stream);
    issue();
  }
  void Launch(const RefPtr<DeviceWork>& of, const std::string& node, uint64_t start = 10) {
    Run(of, node, [&] { sim.Launch("kernel", 7, start, start + 1); });
  }

  SimulatedCupti sim;
  std::atomic<int64_t> wall{1};
  std::unique_ptr<CudaActivities> activities;
  SomeDevice device;
  const RefPtr<DeviceWork> work = MakeRef<DeviceWork>();
  const RefPtr<DeviceWork> other = MakeRef<DeviceWork>();
};

std::vector<std::string> Nodes(const ActivityReport& report) {
  std::vector<std::string> nodes;
  for (const DeviceActivity& activity : report.activities) nodes.push_back(activity.node);
  return nodes;
}

std::string Text(const DeviceActivity& a) {
  static constexpr const char* kKinds[] = {"kernel",    "fill",    "to device", "to host",
                                           "on device", "to peer", "other"};
  return StrCat(a.node, ": ", kKinds[static_cast<int>(a.kind)], " ", a.name, " in ", a.stream, " (",
                a.purpose, ") ", a.begin, "-", a.end, " ", a.bytes, " bytes");
}

std::vector<std::string> Texts(const ActivityReport& report) {
  std::vector<std::string> texts;
  for (const DeviceActivity& activity : report.activities) texts.push_back(Text(activity));
  return texts;
}

TEST_F(CudaActivityTest, WhatRunsBelongsToTheNodeThatEnqueuedIt) {
  const auto recording = Record(work);
  Run(work, "x", [&] { sim.Copy(cupti::kHostToDevice, 64, 14, 10, 20); }, StreamKind::kCopyIn);
  Run(work, "product", [&] {
    sim.Fill(8, 13, 20, 21);
    sim.Launch("_ZN8millrace4LoopIfEEvPT_", 13, 21, 30);
    sim.Copy(cupti::kDeviceToDevice, 32, 13, 30, 31);
  });
  Run(work, "to_peer", [&] { sim.CopyToPeer(16, 16, 31, 33); }, StreamKind::kPeer);
  Run(work, "y", [&] { sim.Copy(cupti::kDeviceToHost, 24, 15, 33, 40); }, StreamKind::kCopyOut);
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(Texts(report),
              ElementsAre("x: to device  in 14 (copy in) 10-20 64 bytes",
                          "product: fill  in 13 (compute) 20-21 8 bytes",
                          "product: kernel void millrace::Loop<float>(float*) in 13 (compute) "
                          "21-30 0 bytes",
                          "product: on device  in 13 (compute) 30-31 32 bytes",
                          "to_peer: to peer  in 16 (peer) 31-33 16 bytes",
                          "y: to host  in 15 (copy out) 33-40 24 bytes"));
  EXPECT_EQ(report.shortfall, "");
  EXPECT_EQ(sim.num_pushed(), sim.num_popped());
}

TEST_F(CudaActivityTest, TimesAreTheHosts) {
  sim.SetTime(1'000);
  wall = 5'000'000;
  const auto recording = Record(work);
  Run(work, "a", [&] { sim.Launch("k", 7, 1'000, 2'000); });
  Run(work, "b", [&] { sim.Launch("k", 7, 3'000, 5'000); });
  // While CUPTI counts 4,000 ns the host counts 4,400.
  sim.SetTime(5'000);
  wall = 5'004'400;
  const ActivityReport report = recording->Finish(kLimit);
  ASSERT_EQ(report.activities.size(), 2u);
  EXPECT_EQ(report.activities[0].begin, 5'000'000);
  EXPECT_EQ(report.activities[0].end, 5'001'100);
  EXPECT_EQ(report.activities[1].begin, 5'002'200);
  EXPECT_EQ(report.activities[1].end, 5'004'400);
}

TEST_F(CudaActivityTest, BuffersThatComeLateAndFromAnotherThreadAreWaitedFor) {
  Make({.settle = seconds(60)});
  sim.SetHabits({.late = true});
  const auto recording = Record(work);
  Launch(work, "a");
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(Nodes(report), ElementsAre("a"));
  EXPECT_EQ(report.shortfall, "");
}

TEST_F(CudaActivityTest, RecordsMayComeInAnyOrder) {
  Make({.buffer_bytes = 256});  // so that what belongs together is apart
  sim.SetHabits({.backwards = true});
  const auto recording = Record(work);
  for (uint64_t i = 0; i < 5; ++i) Launch(work, StrCat("n", i), 10 + i);
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(Nodes(report), ElementsAre("n0", "n1", "n2", "n3", "n4"));
  EXPECT_EQ(report.shortfall, "");
}

TEST_F(CudaActivityTest, WhatHadNoRoomIsCounted) {
  Make({.max_buffers = 0});
  const auto recording = Record(work);
  Launch(work, "a");
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(report.activities, IsEmpty());
  EXPECT_EQ(report.shortfall, "CUPTI had no room for 3 records");
}

TEST_F(CudaActivityTest, WithoutPermissionTheErrorSaysWhatToDoAndNothingIsOn) {
  sim.FailNext("cuptiActivityEnable", cupti::kInsufficientPrivileges);
  const auto refused = activities->Record(&device, work);
  EXPECT_TRUE(errors::IsPermissionDenied(refused.status())) << refused.status();
  EXPECT_THAT(std::string(Message(refused.status())),
              ::testing::AllOf(HasSubstr("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"),
                               HasSubstr("NVreg_RestrictProfilingToAdminUsers=0")));
  EXPECT_FALSE(activities->any());
  EXPECT_EQ(sim.num_kinds(), 0);
  // It is asked again for the next step.
  const auto recording = Record(work);
  Launch(work, "a");
  EXPECT_THAT(Nodes(recording->Finish(kLimit)), ElementsAre("a"));
}

TEST_F(CudaActivityTest, AnErrorInTheMiddleOfSwitchingOnLeavesNothingOn) {
  for (const char* call : {"cuptiActivityRegisterCallbacks", "cuptiGetVersion"}) {
    sim.FailNext(call, 999);
    const auto refused = activities->Record(&device, work);
    EXPECT_THAT(std::string(Message(refused.status())), HasSubstr(call));
    EXPECT_EQ(sim.num_kinds(), 0);
  }
  sim.FailNext("cuptiActivityEnable", cupti::kMultipleSubscribers);
  EXPECT_TRUE(errors::IsUnavailable(activities->Record(&device, work).status()));
}

TEST_F(CudaActivityTest, RecordsOfAnotherVersionAreNotRead) {
  for (const uint32_t version : {28u, 140000u}) {
    sim.SetVersion(version);
    const auto refused = activities->Record(&device, work);
    EXPECT_TRUE(errors::IsFailedPrecondition(refused.status())) << refused.status();
    EXPECT_THAT(std::string(Message(refused.status())), HasSubstr(StrCat(version)));
  }
}

TEST_F(CudaActivityTest, AMissingLibraryIsNamed) {
  CudaActivities without({.load = []() -> StatusOr<const CuptiCalls*> {
    return errors::NotFound("libcupti.so.13 is not here");
  }});
  EXPECT_TRUE(errors::IsNotFound(without.Record(&device, work).status()));
  EXPECT_FALSE(without.any());
}

TEST_F(CudaActivityTest, OnlyOneReceivesTheBuffersOfAProcess) {
  const auto recording = Record(work);
  CudaActivities second({.load = [this]() -> StatusOr<const CuptiCalls*> { return sim.calls(); }});
  EXPECT_TRUE(errors::IsFailedPrecondition(second.Record(&device, work).status()));
}

TEST_F(CudaActivityTest, StepsAtTheSameTimeGetTheirOwnEach) {
  auto first = Record(work);
  Launch(work, "a", 10);
  auto second = Record(other);
  Launch(other, "b", 20);
  Launch(work, "c", 30);
  EXPECT_THAT(Nodes(first->Finish(kLimit)), ElementsAre("a", "c"));
  first = nullptr;
  EXPECT_TRUE(activities->any());
  EXPECT_GT(sim.num_kinds(), 0) << "the other one goes on";
  Launch(other, "d", 40);
  EXPECT_THAT(Nodes(second->Finish(kLimit)), ElementsAre("b", "d"));
  second = nullptr;
  EXPECT_FALSE(activities->any());
  EXPECT_EQ(sim.num_kinds(), 0);
}

TEST_F(CudaActivityTest, TwoDevicesOfAStepAreApart) {
  SomeDevice peer;
  const auto here = Record(work);
  auto there = activities->Record(&peer, work);
  ASSERT_TRUE(there.ok());
  Launch(work, "here");
  {
    const CudaActivityScope scope(activities.get(), &peer, work.get(), "there",
                                  StreamKind::kCompute);
    sim.Launch("kernel", 9, 10, 11);
  }
  EXPECT_THAT(Nodes(here->Finish(kLimit)), ElementsAre("here"));
  EXPECT_THAT(Nodes((*there)->Finish(kLimit)), ElementsAre("there"));
}

TEST_F(CudaActivityTest, StepsThatAreNotRecordedPushNothingAndAreNobodys) {
  Launch(work, "before");
  auto recording = Record(work);
  Launch(other, "others");
  Launch(nullptr, "nobodys");
  EXPECT_EQ(sim.num_pushed(), 0);
  EXPECT_THAT(recording->Finish(kLimit).activities, IsEmpty());
  recording = nullptr;
  Launch(work, "after");
  EXPECT_EQ(sim.num_pushed(), 0);
}

TEST_F(CudaActivityTest, WhatAnEarlierStepLeftIsNotTheNextOnes) {
  Record(work).reset();  // never finished
  auto dropped = Record(work);
  Launch(work, "a");
  dropped = nullptr;
  const auto recording = Record(work);
  Launch(work, "b");
  EXPECT_THAT(Nodes(recording->Finish(kLimit)), ElementsAre("b"));
}

TEST_F(CudaActivityTest, AFlushThatHangsEndsWithTheDeadline) {
  sim.SetHabits({.hangs = true});
  const auto recording = Record(work);
  Launch(work, "a");
  const ActivityReport report = recording->Finish(milliseconds(20));
  EXPECT_THAT(report.activities, IsEmpty());
  EXPECT_EQ(report.shortfall, "CUPTI did not hand out its buffers within 20 ms");
}

TEST_F(CudaActivityTest, BuffersThatCuptiKeepsAreTold) {
  Make({.settle = milliseconds(1)});
  sim.SetHabits({.keeps = true});
  const auto recording = Record(work);
  Launch(work, "a");
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(report.activities, IsEmpty());
  EXPECT_EQ(report.shortfall, "CUPTI kept 1 of its buffers");
  EXPECT_EQ(sim.num_forced(), 1);
}

TEST_F(CudaActivityTest, WhatOthersHaveNotEndedDoesNotKeepTheBuffers) {
  Make({.settle = milliseconds(1)});
  sim.SetHabits({.waits_for_force = true});
  const auto recording = Record(work);
  Launch(work, "a");
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(Nodes(report), ElementsAre("a"));
  EXPECT_EQ(report.shortfall, "");
}

TEST_F(CudaActivityTest, NothingIsForcedWhileAnotherStepMayLoseByIt) {
  Make({.settle = milliseconds(1)});
  sim.SetHabits({.waits_for_force = true});
  const auto recording = Record(work);
  auto others = Record(other);
  Launch(work, "a");
  std::thread ends([&] {
    while (sim.num_flushes() < 10) std::this_thread::yield();
    others = nullptr;
  });
  const ActivityReport report = recording->Finish(kLimit);
  ends.join();
  EXPECT_THAT(Nodes(report), ElementsAre("a"));
  EXPECT_GE(sim.num_flushes(), 10);
  EXPECT_EQ(sim.num_forced(), 1);
}

TEST_F(CudaActivityTest, ActivitiesWithoutTimesAreTold) {
  const auto recording = Record(work);
  Run(work, "a", [&] { sim.Launch("k", 7, 0, 0); });
  Launch(work, "b");
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(Nodes(report), ElementsAre("b"));
  EXPECT_EQ(report.shortfall, "CUPTI has no times of 1 activities");
}

TEST_F(CudaActivityTest, ErrorsWhileItRecordsAreTold) {
  const auto recording = Record(work);
  sim.FailNext("cuptiActivityPushExternalCorrelationId", 1);
  Launch(work, "a");
  Launch(work, "b");
  EXPECT_EQ(sim.num_pushed(), 1);
  EXPECT_EQ(sim.num_popped(), 1);
  sim.FailNext("cuptiActivityGetNextRecord", 1);
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_THAT(report.activities, IsEmpty());
  EXPECT_EQ(report.shortfall, "CUPTI took no ids for 1 operations; CUPTI could not read 1 buffers");
}

TEST_F(CudaActivityTest, ManyThreadsMayIssueAndSeveralStepsEnd) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 20;
  Make({.buffer_bytes = 1024});
  std::atomic<int> complete{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int step = 0; step < kSteps; ++step) {
        const auto own = MakeRef<DeviceWork>();
        const auto recording = Record(own);
        const std::string node = StrCat(t, "/", step);
        for (uint64_t i = 0; i < 10; ++i) Launch(own, node, 10 + i);
        const ActivityReport report = recording->Finish(kLimit);
        const std::vector<std::string> nodes = Nodes(report);
        complete += nodes == std::vector<std::string>(10, node) && report.shortfall.empty();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(complete.load(), kThreads * kSteps);
  EXPECT_FALSE(activities->any());
}

}  // namespace
}  // namespace millrace
