// SPDX-License-Identifier: Apache-2.0
#include "device/fake/fake_recorder.h"

#include <utility>

#include "base/errors.h"

namespace millrace {
namespace {

thread_local FakeRecorder* current = nullptr;

}  // namespace

// Operations stay apart, so that tests can stop and fail each of them.
class FakeRecording final : public RecordedOperations {
 public:
  FakeRecording(Accelerator* device, std::vector<FakeRecorder::Recorded> recorded)
      : device_(device), recorded_(std::move(recorded)) {}

  int num_operations() const override { return static_cast<int>(recorded_.size()); }
  void Launch(RefPtr<DeviceWork> work, std::string_view) override {
    for (const FakeRecorder::Recorded& one : recorded_) {
      device_->stream(StreamKind::kCompute)
          ->Enqueue({work, one.node,
                     [self = RefPtr<FakeRecording>::Share(this), &one] { return one.run(); },
                     one.even_after_error});
    }
  }

 private:
  Accelerator* const device_;
  const std::vector<FakeRecorder::Recorded> recorded_;
};

FakeRecorder* FakeRecorder::Current(const Accelerator* device) {
  return current != nullptr && current->device_ == device ? current : nullptr;
}

void FakeRecorder::Record(Stream::Operation operation) {
  recorded_.push_back(
      {std::string(operation.node), std::move(operation.run), operation.even_after_error});
}

void FakeRecorder::Refuse(std::string_view what) {
  if (obstacle_.ok()) obstacle_ = errors::FailedPrecondition(what, " cannot be recorded");
}

void FakeRecorder::Resume() { current = this; }

void FakeRecorder::Pause() {
  if (current == this) current = nullptr;
}

StatusOr<RefPtr<RecordedOperations>> FakeRecorder::End() {
  if (!obstacle_.ok()) return obstacle_;
  return RefPtr<RecordedOperations>(new FakeRecording(device_, std::move(recorded_)));
}

}  // namespace millrace
