// SPDX-License-Identifier: Apache-2.0
// What the simulated accelerator did for traced steps, timed by its own thread.
#ifndef DEVICE_FAKE_FAKE_ACTIVITY_H_
#define DEVICE_FAKE_FAKE_ACTIVITY_H_

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/activity.h"
#include "millrace/status.h"

namespace millrace {

// The recordings of one machine. Thread-safe.
class FakeActivities {
 public:
  // Must outlive the recording. The error of FailNext, if there is one.
  StatusOr<std::unique_ptr<ActivityRecording>> Record(RefPtr<DeviceWork> work);
  bool any() const { return any_.load(std::memory_order_acquire); }
  // Goes to the recording of `work`; nowhere without one.
  void Add(const DeviceWork* work, DeviceActivity activity);
  // Of the next `times` recordings.
  void FailNext(const Status& status, int times);

 private:
  class Recording;
  void Remove(Recording* recording);

  std::atomic<bool> any_{false};  // whether there are recordings
  Mutex mu_;
  std::vector<Recording*> recordings_ ABSL_GUARDED_BY(mu_);
  Status fault_ ABSL_GUARDED_BY(mu_);
  int faults_ ABSL_GUARDED_BY(mu_) = 0;
};

// Of a copy from one place to another: memory of the host, or of accelerators.
DeviceActivity::Kind CopyKind(const void* to, const void* from);

}  // namespace millrace

#endif  // DEVICE_FAKE_FAKE_ACTIVITY_H_
