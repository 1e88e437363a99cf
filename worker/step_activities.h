// SPDX-License-Identifier: Apache-2.0
// What the accelerators of a task do for one traced step, from its start to its end.
#ifndef WORKER_STEP_ACTIVITIES_H_
#define WORKER_STEP_ACTIVITIES_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/activity.h"
#include "proto/step_stats.pb.h"

namespace millrace {

// Thread-safe, but for Finish.
class StepActivities {
 public:
  // Asks all accelerators among `devices` to record what is enqueued on the account of `work`. One
  // that does not is left out, and why is logged, once for each reason. Null if none does.
  static std::unique_ptr<StepActivities> Start(std::span<Device* const> devices,
                                               const RefPtr<DeviceWork>& work);

  // Once, when nothing of the step is under way. Calls `done`, which may destroy this, on a host
  // thread of a device, when the devices have told everything, or a deadline of seconds has passed.
  void Finish(std::function<void()> done);
  // What was recorded, once; nothing before Finish has ended. After the host's statistics.
  void MoveTo(pb::StepStats* stats);

 private:
  struct Recorded {
    std::string device;
    Accelerator* accelerator = nullptr;
    std::unique_ptr<ActivityRecording> recording;
    ActivityReport report;
  };

  std::vector<Recorded> recorded_;  // constant once started, but for the reports
  Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;  // reports are there
};

}  // namespace millrace

#endif  // WORKER_STEP_ACTIVITIES_H_
