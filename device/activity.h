// SPDX-License-Identifier: Apache-2.0
// What an accelerator did for one step: which kernels, copies and fills ran when, in which stream,
// and which node enqueued them.
#ifndef DEVICE_ACTIVITY_H_
#define DEVICE_ACTIVITY_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/stream.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"

namespace millrace {

struct DeviceActivity {
  enum class Kind { kKernel, kFill, kToDevice, kToHost, kOnDevice, kToPeer, kOtherCopy };

  Kind kind = Kind::kKernel;
  std::string name;     // the kernel's function, for people; "" for others
  std::string node;     // that enqueued it
  int64_t stream = 0;   // as the device numbers them
  std::string purpose;  // of the stream: "compute"
  int64_t begin = 0;    // wall clock, ns
  int64_t end = 0;      // not before `begin`
  int64_t bytes = 0;    // that were copied or filled; 0 for kernels
};

// What a recording has come to.
struct ActivityReport {
  std::vector<DeviceActivity> activities;  // by `begin`
  // What is missing, and why, as one clause ("CUPTI had no room for 3 activities"); "" if nothing
  // is known to be.
  std::string shortfall;
};

// The activities of one step at one device. Several may be under way at a device, of several steps:
// each gets its own. When it goes, the recording has ended.
class ActivityRecording {
 public:
  virtual ~ActivityRecording() = default;
  // Once, when nothing of the step is under way on the device. Waits until the device has told of
  // everything, for at most `limit`; what it has not told then is missing.
  virtual ActivityReport Finish(std::chrono::milliseconds limit) = 0;
};

// An Accelerator that can tell. Steps that are not recorded cost it one test of a pointer for each
// operation. Thread-safe.
class ActivityRecorder {
 public:
  virtual ~ActivityRecorder() = default;
  // From now on, of what is enqueued on the account of `work`. The error says what is missing or
  // who refuses, and what to do. The recording must not outlive the device.
  virtual StatusOr<std::unique_ptr<ActivityRecording>> RecordActivities(
      RefPtr<DeviceWork> work) = 0;
};

// Null if it cannot tell.
inline ActivityRecorder* ActivityRecorderOf(Accelerator* accelerator) {
  return dynamic_cast<ActivityRecorder*>(accelerator);
}

// "compute", "copy in", "copy out", "peer".
std::string_view StreamPurpose(StreamKind kind);
inline bool IsCopy(DeviceActivity::Kind kind) {
  return kind != DeviceActivity::Kind::kKernel && kind != DeviceActivity::Kind::kFill;
}

}  // namespace millrace

#endif  // DEVICE_ACTIVITY_H_
