// SPDX-License-Identifier: Apache-2.0
#include "device/fake/fake_activity.h"

#include <algorithm>
#include <utility>

namespace millrace {

class FakeActivities::Recording final : public ActivityRecording {
 public:
  Recording(FakeActivities* owner, RefPtr<DeviceWork> work)
      : owner_(owner), work_(std::move(work)) {}
  ~Recording() override { owner_->Remove(this); }

  // All is there: an operation is noted before its work knows that it has run.
  ActivityReport Finish(std::chrono::milliseconds) override {
    ActivityReport report;
    {
      MutexLock lock(&owner_->mu_);
      report.activities.swap(activities);
    }
    std::stable_sort(report.activities.begin(), report.activities.end(),
                     [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return report;
  }
  const DeviceWork* work() const { return work_.get(); }

  std::vector<DeviceActivity> activities;  // guarded by the owner's lock

 private:
  FakeActivities* const owner_;
  const RefPtr<DeviceWork> work_;
};

StatusOr<std::unique_ptr<ActivityRecording>> FakeActivities::Record(RefPtr<DeviceWork> work) {
  MutexLock lock(&mu_);
  if (faults_ > 0) {
    --faults_;
    return fault_;
  }
  auto recording = std::make_unique<Recording>(this, std::move(work));
  recordings_.push_back(recording.get());
  any_.store(true, std::memory_order_release);
  return std::unique_ptr<ActivityRecording>(std::move(recording));
}

void FakeActivities::Add(const DeviceWork* work, DeviceActivity activity) {
  if (work == nullptr) return;
  MutexLock lock(&mu_);
  for (Recording* const recording : recordings_) {
    if (recording->work() == work) return recording->activities.push_back(std::move(activity));
  }
}

void FakeActivities::FailNext(const Status& status, int times) {
  MutexLock lock(&mu_);
  fault_ = status;
  faults_ = times;
}

void FakeActivities::Remove(Recording* recording) {
  MutexLock lock(&mu_);
  std::erase(recordings_, recording);
  any_.store(!recordings_.empty(), std::memory_order_release);
}

DeviceActivity::Kind CopyKind(const void* to, const void* from) {
  const Accelerator* const there = AcceleratorOf(to);
  const Accelerator* const here = AcceleratorOf(from);
  if (there == nullptr && here == nullptr) return DeviceActivity::Kind::kOtherCopy;
  if (here == nullptr) return DeviceActivity::Kind::kToDevice;
  if (there == nullptr) return DeviceActivity::Kind::kToHost;
  return there == here ? DeviceActivity::Kind::kOnDevice : DeviceActivity::Kind::kToPeer;
}

}  // namespace millrace
