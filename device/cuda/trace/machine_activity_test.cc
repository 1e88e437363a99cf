// SPDX-License-Identifier: Apache-2.0
// What a machine tells of its activities, over a simulated driver and a simulated CUPTI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "device/activity.h"
#include "device/copy.h"
#include "device/cuda/machine/machine.h"
#include "device/cuda/simulated/simulated_cupti.h"
#include "device/cuda/simulated/simulated_driver.h"
#include "device/cuda/trace/cuda_activity.h"

namespace millrace {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::chrono::milliseconds kLimit(60'000);

class MachineActivityTest : public ::testing::Test {
 protected:
  MachineActivityTest() : driver_(SimulatedDriver::New()) {
    activities_ = std::make_unique<CudaActivities>(CudaActivityOptions{
        .load = [this]() -> StatusOr<const CuptiCalls*> { return cupti_.calls(); },
        .buffer_bytes = 1 << 16,
        .max_buffers = 16,
        .settle = std::chrono::milliseconds(50),
        .wall_nanos = [] { return int64_t{1}; }});
    driver_->SetOnIssue([this](const SimulatedDriver::Issued& issued) {
      const auto on_device = [](const void* at) { return AcceleratorOf(at) != nullptr; };
      if (issued.to == nullptr) return cupti_.Launch("kernel", 7, 10, 11);
      if (issued.from == nullptr) return cupti_.Fill(issued.bytes, 7, 10, 11);
      cupti_.Copy(on_device(issued.to) ? cupti::kHostToDevice : cupti::kDeviceToHost, issued.bytes,
                  8, 10, 11);
    });
    CudaMachineOptions options;
    options.driver = driver_.get();
    options.name = "/job:a/replica:0/task:0/device:GPU:0";
    options.allow_growth = true;
    options.memory_limit = 16 << 20;
    options.activities = activities_.get();
    auto machine = CudaMachineImpl::Start(options);
    EXPECT_TRUE(machine.ok()) << machine.status();
    machine_ = *std::move(machine);
  }
  ~MachineActivityTest() override {
    machine_ = nullptr;
    cupti_.Settle();
  }

  std::unique_ptr<ActivityRecording> Record(const RefPtr<DeviceWork>& work) {
    auto made = ActivityRecorderOf(machine_.get())->RecordActivities(work);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  // Brings a value in, computes something, and takes it back.
  void RunAStep(const RefPtr<DeviceWork>& work) {
    const Tensor value = Tensor::FromValues<float>({1, 2, 3});
    const auto in = CopyToDevice(machine_.get(), machine_->allocator(), value, work.get(), "in");
    ASSERT_TRUE(in.ok()) << in.status();
    machine_->stream(StreamKind::kCompute)
        ->Enqueue({work, "product", [this, data = in->raw_data()] {
                     Status status =
                         driver_->Fill(const_cast<void*>(data), 0, 12, machine_->compute_stream());
                     status.Update(driver_->LaunchFunction(machine_->compute_stream(), [] {}));
                     return status;
                   }});
    Notification arrived;
    CopyToHost(machine_.get(), *in, work.get(), "out", [&](const Status& status, const Tensor&) {
      EXPECT_TRUE(status.ok()) << status;
      arrived.Notify();
    });
    arrived.Wait();
    Notification idle;
    work->WhenIdle([&](const Status&) { idle.Notify(); });
    idle.Wait();
  }

  SimulatedCupti cupti_;
  std::unique_ptr<SimulatedDriver> driver_;
  std::unique_ptr<CudaActivities> activities_;
  std::shared_ptr<CudaMachineImpl> machine_;
};

std::vector<std::string> Texts(const ActivityReport& report) {
  std::vector<std::string> texts;
  for (const DeviceActivity& a : report.activities) {
    texts.push_back(StrCat(a.node, " ", a.name, " ", a.purpose, " ", a.bytes));
  }
  return texts;
}

TEST_F(MachineActivityTest, OperationsAndCopiesBelongToTheirNodes) {
  const auto work = MakeRef<DeviceWork>();
  auto recording = Record(work);
  RunAStep(work);
  const ActivityReport report = recording->Finish(kLimit);
  EXPECT_EQ(report.shortfall, "");
  EXPECT_THAT(Texts(report), UnorderedElementsAre("in  copy in 12", "product  compute 12",
                                                  "product kernel compute 0", "out  copy out 12"));
  EXPECT_EQ(cupti_.num_pushed(), 3);
  EXPECT_EQ(cupti_.num_popped(), 3);
}

TEST_F(MachineActivityTest, StepsThatAreNotRecordedAskCuptiNothing) {
  RunAStep(MakeRef<DeviceWork>());
  EXPECT_EQ(cupti_.num_pushed(), 0);
  EXPECT_EQ(cupti_.num_kinds(), 0);
  // Nor do those beside one that is.
  const auto work = MakeRef<DeviceWork>();
  const auto recording = Record(work);
  RunAStep(MakeRef<DeviceWork>());
  EXPECT_EQ(cupti_.num_pushed(), 0);
  EXPECT_THAT(recording->Finish(kLimit).activities, IsEmpty());
}

TEST_F(MachineActivityTest, AMachineWithoutARecorderSaysSo) {
  CudaMachineOptions options;
  options.driver = driver_.get();
  options.name = "/job:a/replica:0/task:0/device:GPU:1";
  options.ordinal = 1;
  options.allow_growth = true;
  options.memory_limit = 1 << 20;
  const auto machine = CudaMachineImpl::Start(options);
  ASSERT_TRUE(machine.ok()) << machine.status();
  const auto refused = ActivityRecorderOf(machine->get())->RecordActivities(MakeRef<DeviceWork>());
  EXPECT_TRUE(errors::IsUnimplemented(refused.status())) << refused.status();
}

}  // namespace
}  // namespace millrace
