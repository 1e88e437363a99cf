// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/recorder.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

thread_local CudaRecorder* current = nullptr;

// A graph that can be launched, and what its operations own.
struct Executable {
  ~Executable() {
    if (!context->MakeCurrent().ok()) return;
    context->driver()->DeleteExecutable(handle);
  }
  const std::shared_ptr<CudaContext> context;
  void* const handle;
  const std::vector<std::function<Status()>> owned;
};

class CudaRecording final : public RecordedOperations {
 public:
  CudaRecording(Accelerator* device, void* compute, std::shared_ptr<const Executable> executable,
                int num_operations)
      : device_(device),
        compute_(compute),
        executable_(std::move(executable)),
        num_operations_(num_operations) {}

  int num_operations() const override { return num_operations_; }
  // The operation owns the graph until it has run.
  void Launch(RefPtr<DeviceWork> work, std::string_view node) override {
    device_->stream(StreamKind::kCompute)
        ->Enqueue({std::move(work), node, [executable = executable_, compute = compute_] {
                     return executable->context->driver()->Launch(executable->handle, compute);
                   }});
  }

 private:
  Accelerator* const device_;
  void* const compute_;
  const std::shared_ptr<const Executable> executable_;
  const int num_operations_;
};

}  // namespace

StatusOr<std::unique_ptr<CudaRecorder>> CudaRecorder::New(Parts parts) {
  std::unique_ptr<CudaRecorder> made(new CudaRecorder(std::move(parts)));
  const CudaContext& context = *made->parts_.context;
  MR_RETURN_IF_ERROR(context.MakeCurrent());
  // A library that starts within a capture may spoil it.
  MR_RETURN_IF_ERROR(made->parts_.handles->Match(made->parts_.compute, made->parts_.stream));
  MR_RETURN_IF_ERROR(context.driver()->BeginCapture(made->parts_.stream));
  made->capturing_ = true;
  return made;
}

CudaRecorder::~CudaRecorder() {
  Pause();
  if (capturing_ && parts_.context->MakeCurrent().ok()) {
    CudaDriver* const driver = parts_.context->driver();
    if (const StatusOr<void*> graph = driver->EndCapture(parts_.stream); graph.ok()) {
      driver->DeleteGraph(*graph);
    }
  }
  parts_.gone();
}

CudaRecorder* CudaRecorder::Current(const Accelerator* device) {
  return current != nullptr && current->parts_.device == device ? current : nullptr;
}

void CudaRecorder::Record(Stream::Operation operation) {
  ++num_operations_;
  Status status = parts_.context->MakeCurrent();
  if (status.ok()) {
    const IssueScope scope(parts_.device, parts_.handles, parts_.stream);
    status = operation.run();
  }
  Note(status);
  owned_.push_back(std::move(operation.run));
}

void CudaRecorder::RecordCopy(void* to, const void* from, std::size_t bytes) {
  if (AcceleratorOf(to) != parts_.device || AcceleratorOf(from) != parts_.device) {
    return Refuse("a copy from or to another place");
  }
  ++num_operations_;
  Status status = parts_.context->MakeCurrent();
  if (status.ok() && bytes > 0) {
    status = parts_.context->driver()->Copy(to, from, bytes, parts_.stream);
  }
  Note(status);
}

void CudaRecorder::Refuse(std::string_view what) {
  Note(errors::FailedPrecondition(what, " cannot be recorded"));
}

void CudaRecorder::Resume() { current = this; }

void CudaRecorder::Pause() {
  if (current == this) current = nullptr;
}

StatusOr<RefPtr<RecordedOperations>> CudaRecorder::End() {
  MR_RETURN_IF_ERROR(parts_.context->MakeCurrent());
  CudaDriver* const driver = parts_.context->driver();
  capturing_ = false;
  StatusOr<void*> graph = driver->EndCapture(parts_.stream);
  if (!obstacle_.ok()) {
    if (graph.ok()) driver->DeleteGraph(*graph);
    return obstacle_;
  }
  MR_RETURN_IF_ERROR(graph.status());
  const StatusOr<void*> executable = driver->Instantiate(*graph);
  driver->DeleteGraph(*graph);
  MR_RETURN_IF_ERROR(executable.status());
  std::shared_ptr<const Executable> owner(
      new Executable{parts_.context, *executable, std::move(owned_)});
  return RefPtr<RecordedOperations>(
      new CudaRecording(parts_.device, parts_.compute, std::move(owner), num_operations_));
}

}  // namespace millrace
