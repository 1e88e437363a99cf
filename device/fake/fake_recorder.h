// SPDX-License-Identifier: Apache-2.0
// Recordings of the simulated accelerator: operations as they were enqueued.
#ifndef DEVICE_FAKE_FAKE_RECORDER_H_
#define DEVICE_FAKE_FAKE_RECORDER_H_

#include <functional>
#include <string>
#include <vector>

#include "device/capture.h"
#include "device/stream.h"
#include "millrace/status.h"

namespace millrace {

class FakeRecorder final : public OperationRecorder {
 public:
  explicit FakeRecorder(Accelerator* device) : device_(device) {}
  ~FakeRecorder() override { Pause(); }

  // That of this thread which records for the device; null if there is none or it pauses.
  static FakeRecorder* Current(const Accelerator* device);

  void Record(Stream::Operation operation);
  void Refuse(std::string_view what);

  void Resume() override;
  void Pause() override;
  StatusOr<RefPtr<RecordedOperations>> End() override;

 private:
  friend class FakeRecording;
  struct Recorded {
    std::string node;
    std::function<Status()> run;
    bool even_after_error = false;
  };

  Accelerator* const device_;
  std::vector<Recorded> recorded_;
  Status obstacle_;
};

}  // namespace millrace

#endif  // DEVICE_FAKE_FAKE_RECORDER_H_
