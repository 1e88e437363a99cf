// SPDX-License-Identifier: Apache-2.0
// Recordings of the CUDA device over a simulated driver.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "device/capture.h"
#include "device/cuda/machine/machine.h"
#include "device/cuda/simulated/simulated_driver.h"

namespace millrace {
namespace {

class RecorderTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  RecorderTest() : driver_(SimulatedDriver::New({.seed = GetParam()})) { Start({}); }
  ~RecorderTest() override {
    gpu_.reset();
    EXPECT_EQ(driver_->Count(), SimulatedDriver::Census()) << "something was not given back";
  }

  void Start(CudaMachineOptions options) {
    options.driver = driver_.get();
    options.name = "/job:a/replica:0/task:0/device:GPU:0";
    options.allow_growth = true;
    options.memory_limit = 16 << 20;
    auto machine = CudaMachineImpl::Start(options);
    ASSERT_TRUE(machine.ok()) << machine.status();
    gpu_ = *std::move(machine);
  }
  StatusOr<std::unique_ptr<OperationRecorder>> NewRecorder() {
    return RecorderOf(gpu_.get())->NewRecorder(gpu_->allocator());
  }
  Stream* compute() { return gpu_->stream(StreamKind::kCompute); }
  // A kernel that counts.
  void Count(std::string_view node, int* counter, DeviceWork* work = nullptr) {
    compute()->Enqueue({RefPtr<DeviceWork>::Share(work), node, [this, counter] {
                          return driver_->LaunchFunction(gpu_->compute_stream(),
                                                         [counter] { ++*counter; });
                        }});
  }
  Status Await(const RefPtr<DeviceWork>& work) {
    const auto done = std::make_shared<Notification>();
    const auto result = std::make_shared<Status>();
    work->WhenIdle([done, result](Status status) {
      *result = std::move(status);
      done->Notify();
    });
    EXPECT_TRUE(done->WaitUntil(DeadlineAfter(std::chrono::seconds(30)))) << work->Pending();
    return *result;
  }

  const std::unique_ptr<SimulatedDriver> driver_;
  std::shared_ptr<CudaMachineImpl> gpu_;
};

INSTANTIATE_TEST_SUITE_P(Orders, RecorderTest, ::testing::Values(0, 1, 2));

TEST_P(RecorderTest, WhatIsRecordedRunsAtEachLaunchAndNotBefore) {
  auto recorder = NewRecorder();
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  int recorded = 0, other = 0;
  const auto work = MakeRef<DeviceWork>();
  Count("paused", &other, work.get());
  (*recorder)->Resume();
  EXPECT_TRUE(RecorderOf(gpu_.get())->IsRecording());
  Count("first", &recorded);
  Count("second", &recorded);
  (*recorder)->Pause();
  Count("paused", &other, work.get());
  auto operations = (*recorder)->End();
  ASSERT_TRUE(operations.ok()) << operations.status();
  EXPECT_EQ((*operations)->num_operations(), 2);
  recorder->reset();
  EXPECT_TRUE(Await(work).ok());
  EXPECT_EQ(other, 2);
  EXPECT_EQ(recorded, 0);
  for (int i = 1; i <= 3; ++i) {
    const auto launched = MakeRef<DeviceWork>();
    (*operations)->Launch(launched, "step");
    EXPECT_TRUE(Await(launched).ok());
    EXPECT_EQ(recorded, 2 * i);
  }
  EXPECT_EQ(driver_->NumCalls("cuGraphLaunch"), 3);
}

TEST_P(RecorderTest, OtherThreadsGoOnMeanwhile) {
  auto recorder = NewRecorder();
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  (*recorder)->Resume();
  int recorded = 0, other = 0;
  Count("mine", &recorded);
  std::thread([&] {
    EXPECT_FALSE(RecorderOf(gpu_.get())->IsRecording());
    const auto work = MakeRef<DeviceWork>();
    Count("yours", &other, work.get());
    EXPECT_TRUE(Await(work).ok());
    EXPECT_EQ(other, 1);
    EXPECT_TRUE(errors::IsUnavailable(NewRecorder().status()));
  }).join();
  (*recorder)->Pause();
  const auto operations = (*recorder)->End();
  ASSERT_TRUE(operations.ok());
  EXPECT_EQ((*operations)->num_operations(), 1);
  EXPECT_EQ(recorded, 0);
  recorder->reset();
  EXPECT_TRUE(NewRecorder().ok()) << "the next one may record";
}

TEST_P(RecorderTest, WhatCannotBeRecordedIsSaid) {
  const struct {
    const char* what;
    std::function<void()> does;
  } kCases[] = {
      {"an event", [this] { compute()->Record(); }},
      {"a callback", [this] { compute()->EnqueueCallback(nullptr, "c", [](const Status&) {}); }},
      {"what another stream does", [this] { gpu_->stream(StreamKind::kCopyIn)->Record(); }},
      {"a copy from or to another place",
       [this] {
         char host[8];
         const RefPtr<Buffer> there = gpu_->allocator()->Allocate(8);
         compute()->EnqueueCopy(nullptr, "copy", there->data(), host, 8);
       }},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.what);
    auto recorder = NewRecorder();
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    (*recorder)->Resume();
    one.does();
    (*recorder)->Pause();
    const auto operations = (*recorder)->End();
    ASSERT_FALSE(operations.ok());
    EXPECT_NE(operations.status().ToString().find(StrCat(one.what, " cannot be recorded")),
              std::string::npos)
        << operations.status();
  }
}

TEST_P(RecorderTest, CopiesOnTheDeviceAndScratchMemoryAreRecorded) {
  const RefPtr<Buffer> from = gpu_->allocator()->Allocate(64), to = gpu_->allocator()->Allocate(64);
  std::memset(from->data(), 7, 64);
  std::memset(to->data(), 0, 64);
  auto recorder = NewRecorder();
  ASSERT_TRUE(recorder.ok());
  (*recorder)->Resume();
  compute()->EnqueueCopy(nullptr, "copy", to->data(), from->data(), 64);
  bool has_scratch = false;
  compute()->Enqueue({nullptr, "scratch", [&] {
                        has_scratch = gpu_->Workspace(1000).ok();
                        return OkStatus();
                      }});
  (*recorder)->Pause();
  const auto operations = (*recorder)->End();
  ASSERT_TRUE(operations.ok());
  EXPECT_TRUE(has_scratch);
  EXPECT_EQ(static_cast<char*>(to->data())[63], 0);
  const auto work = MakeRef<DeviceWork>();
  (*operations)->Launch(work, "step");
  EXPECT_TRUE(Await(work).ok());
  EXPECT_EQ(static_cast<char*>(to->data())[63], 7);
}

TEST_P(RecorderTest, AnErrorOfTheDriverIsThatOfTheRecordingAndLeavesNothing) {
  for (const char* call : {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"}) {
    SCOPED_TRACE(call);
    driver_->FailNext(call, errors::Internal("not today"));
    auto recorder = NewRecorder();
    Status status = recorder.status();
    if (recorder.ok()) status = (*recorder)->End().status();
    EXPECT_EQ(status, errors::Internal("not today"));
  }
  int counter = 0;
  auto recorder = NewRecorder();
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  (*recorder)->Resume();
  Count("again", &counter);
  (*recorder)->Pause();
  EXPECT_TRUE((*recorder)->End().ok());
}

TEST_P(RecorderTest, ARecordingThatIsDroppedWhileItRunsRunsToItsEnd) {
  auto recorder = NewRecorder();
  ASSERT_TRUE(recorder.ok());
  (*recorder)->Resume();
  int counter = 0;
  for (int i = 0; i < 5; ++i) Count("step", &counter);
  (*recorder)->Pause();
  auto operations = (*recorder)->End();
  ASSERT_TRUE(operations.ok());
  driver_->Hold();
  const auto work = MakeRef<DeviceWork>();
  (*operations)->Launch(work, "step");
  *operations = nullptr;
  EXPECT_EQ(driver_->Count().graphs, 1);
  driver_->Release();
  EXPECT_TRUE(Await(work).ok());
  EXPECT_EQ(counter, 5);
}

TEST_P(RecorderTest, WhereEachOperationIsWaitedForNothingIsRecorded) {
  CudaMachineOptions options;
  options.blocking = true;
  gpu_.reset();
  Start(options);
  EXPECT_TRUE(errors::IsFailedPrecondition(NewRecorder().status()));
}

}  // namespace
}  // namespace millrace
