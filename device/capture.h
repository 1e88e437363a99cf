// SPDX-License-Identifier: Apache-2.0
// Operations of a device that are recorded once and launched as one, again and again.
#ifndef DEVICE_CAPTURE_H_
#define DEVICE_CAPTURE_H_

#include <memory>
#include <string_view>

#include "device/stream.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "tensor/allocator.h"

namespace millrace {

// What was recorded: the same addresses, shapes and host values at every launch. It owns what the
// operations own, but no device memory. Thread-safe; must not outlive its device.
class RecordedOperations : public RefCounted {
 public:
  virtual int num_operations() const = 0;
  // Enqueues them to the compute stream, in the order in which they were recorded, on the account
  // of `work`. May be dropped at once: what was launched runs all the same. `node` names them
  // where a device cannot tell one from the other.
  virtual void Launch(RefPtr<DeviceWork> work, std::string_view node) = 0;
};

// A recording, by the thread that began it.
class OperationRecorder {
 public:
  // What was recorded and not taken by End is dropped.
  virtual ~OperationRecorder() = default;

  // Between the two, whatever this thread enqueues to the compute stream of the device is recorded
  // and does not run; before, between and after, it runs as ever. Operations that are recorded
  // are on nobody's account. Other streams, events and callbacks cannot be recorded: End says so.
  virtual void Resume() = 0;
  virtual void Pause() = 0;
  // Once, when paused. The first thing that could not be recorded.
  virtual StatusOr<RefPtr<RecordedOperations>> End() = 0;
};

// An Accelerator that can record.
class RecordingAccelerator {
 public:
  virtual ~RecordingAccelerator() = default;
  // Paused at first. Memory that operations need while they are issued is taken from `scratch`,
  // which must outlive the recorder. Unavailable while somebody else records,
  // FailedPrecondition if the device does not as it is set up.
  virtual StatusOr<std::unique_ptr<OperationRecorder>> NewRecorder(Allocator* scratch) = 0;
  // Whether what this thread enqueues to the compute stream is being recorded.
  virtual bool IsRecording() const = 0;
};

// Null if it records nothing.
inline RecordingAccelerator* RecorderOf(Accelerator* accelerator) {
  return dynamic_cast<RecordingAccelerator*>(accelerator);
}

}  // namespace millrace

#endif  // DEVICE_CAPTURE_H_
