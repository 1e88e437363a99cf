// SPDX-License-Identifier: Apache-2.0
// Recordings of a CUDA device: what is issued to a stream of its own becomes a graph.
#ifndef DEVICE_CUDA_MACHINE_RECORDER_H_
#define DEVICE_CUDA_MACHINE_RECORDER_H_

#include <functional>
#include <memory>
#include <vector>

#include "device/capture.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/machine/issue_scope.h"
#include "device/stream.h"
#include "millrace/status.h"

namespace millrace {

class CudaRecorder final : public OperationRecorder {
 public:
  struct Parts {
    Accelerator* device = nullptr;
    std::shared_ptr<CudaContext> context;
    CudaHandlePool* handles = nullptr;
    void* stream = nullptr;   // that captures; nobody else's until the recorder is gone
    void* compute = nullptr;  // the stream to launch into
    Allocator* scratch = nullptr;
    std::function<void()> gone;  // the recorder is
  };
  // Begins the capture.
  static StatusOr<std::unique_ptr<CudaRecorder>> New(Parts parts);
  ~CudaRecorder() override;

  // That of this thread which records for the device; null if there is none or it pauses.
  static CudaRecorder* Current(const Accelerator* device);

  void* stream() const { return parts_.stream; }
  Allocator* scratch() const { return parts_.scratch; }
  void Record(Stream::Operation operation);
  void RecordCopy(void* to, const void* from, std::size_t bytes);
  void Refuse(std::string_view what);

  void Resume() override;
  void Pause() override;
  StatusOr<RefPtr<RecordedOperations>> End() override;

 private:
  explicit CudaRecorder(Parts parts) : parts_(std::move(parts)) {}
  void Note(const Status& status) {
    if (obstacle_.ok()) obstacle_ = status;
  }

  const Parts parts_;
  bool capturing_ = false;
  int num_operations_ = 0;
  std::vector<std::function<Status()>> owned_;  // what operations own
  Status obstacle_;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_RECORDER_H_
