// SPDX-License-Identifier: Apache-2.0
#include "worker/step_activities.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "executor/stats/activity_stats.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// For all devices together. The step has ended and its caller waits for the trace.
constexpr std::chrono::seconds kLimit(2);

void TellOnce(const Status& refused, const std::string& device) {
  static auto* const mu = new Mutex;
  static auto* const told = new std::set<std::string>;
  {
    MutexLock lock(mu);
    if (!told->insert(std::string(Message(refused))).second) return;
  }
  MR_LOG(kWarning, "traces hold nothing of what ", device, " runs: ", Message(refused));
}

}  // namespace

std::unique_ptr<StepActivities> StepActivities::Start(std::span<Device* const> devices,
                                                      const RefPtr<DeviceWork>& work) {
  auto made = std::make_unique<StepActivities>();
  for (const Device* const device : devices) {
    Accelerator* const accelerator = AcceleratorOf(device);
    if (accelerator == nullptr) continue;
    ActivityRecorder* const recorder = ActivityRecorderOf(accelerator);
    if (recorder == nullptr) continue;
    StatusOr<std::unique_ptr<ActivityRecording>> recording = recorder->RecordActivities(work);
    if (!recording.ok()) {
      TellOnce(recording.status(), device->name());
      continue;
    }
    made->recorded_.push_back({device->name(), accelerator, *std::move(recording), {}});
  }
  return made->recorded_.empty() ? nullptr : std::move(made);
}

void StepActivities::Finish(std::function<void()> done) {
  // Not on this thread, which may be one that others wait for.
  recorded_[0].accelerator->Post([this, done = std::move(done)] {
    const Clock::time_point deadline = Clock::now() + kLimit;
    std::vector<ActivityReport> reports;
    for (Recorded& recorded : recorded_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      reports.push_back(recorded.recording->Finish(std::max(left, std::chrono::milliseconds(0))));
      recorded.recording = nullptr;
      if (!reports.back().shortfall.empty()) {
        MR_LOG(kWarning, "the trace of ", recorded.device,
               " is incomplete: ", reports.back().shortfall);
      }
    }
    {
      MutexLock lock(&mu_);
      for (std::size_t i = 0; i < reports.size(); ++i) {
        recorded_[i].report = std::move(reports[i]);
      }
      finished_ = true;
    }
    done();
  });
}

void StepActivities::MoveTo(pb::StepStats* stats) {
  MutexLock lock(&mu_);
  if (!std::exchange(finished_, false)) return;
  for (const Recorded& recorded : recorded_) {
    AddActivities(recorded.device, recorded.report, stats);
  }
}

}  // namespace millrace
