// SPDX-License-Identifier: Apache-2.0
// Steps of a program on an accelerator that are recorded once and then launched as one: a step
// receives its values, copies them to the places that the recording reads, launches, and sends.
//
// The first steps run as any other. When several had inputs of the same shapes (and the same
// values, where those lie in host memory), what the next one enqueues is recorded, and later
// ones with such inputs launch that. A step that does not fit, because a shape has changed,
// because a variable lies elsewhere or is shared, because the values that an earlier step sent are
// still in use, runs as any other too: it makes no difference but of time.
#ifndef EXECUTOR_CAPTURE_CAPTURED_PROGRAM_H_
#define EXECUTOR_CAPTURE_CAPTURED_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/capture/capture_plan.h"
#include "executor/compiled_graph.h"
#include "executor/executor.h"
#include "kernels/capturable_kernel.h"

namespace millrace {

struct RecordedStep;  // executor/capture/recorded_step.h

// What became of the steps of one program.
struct CaptureReport {
  std::string device;
  int64_t nodes = 0;
  int64_t recordings = 0;
  int64_t recorded_operations = 0;  // in the latest one
  int64_t recorded_bytes = 0;       // of device memory, likewise
  int64_t launched_steps = 0;
  int64_t ordinary_steps = 0;
  // Why the latest step that was not launched was not; "" if there was none.
  std::string reason;
};

// One for each program of an accelerator, beside its CompiledGraph. Thread-safe.
class CapturedProgram {
 public:
  // `graph` must outlive it. A plan that is an error says why nothing is ever recorded.
  CapturedProgram(const CompiledGraph* graph, StatusOr<CapturePlan> plan);
  ~CapturedProgram();
  CapturedProgram(const CapturedProgram&) = delete;
  CapturedProgram& operator=(const CapturedProgram&) = delete;

  // As Executor::RunAsync; `args.env` has a rendezvous with an account of the device's work.
  void RunAsync(const ExecutorArgs& args, DoneCallback done);

  CaptureReport Report() const;

 private:
  class Step;
  struct Variant;

  void RunOrdinarily(const ExecutorArgs& args, DoneCallback done) const;
  // That of the step's inputs; null, with the reason kept, if there can be none.
  Variant* FindVariant(const Step& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A kernel that is about to do what it does in another way; null if there is none.
  const Kernel* FindUnsettled() const;
  // What can be launched for these inputs; null, with the reason kept, if there is none now.
  std::shared_ptr<RecordedStep> Find(const Step& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells why it could not be, before anything was enqueued.
  Status Launch(const Step& step, const std::shared_ptr<RecordedStep>& recording,
                std::vector<Tensor>* sent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // With `waits`, the steps that come may be launched yet, however many there have been.
  void NoteOrdinary(std::string_view reason, bool waits = false);

  const CompiledGraph& graph_;
  const CapturePlan plan_;
  std::vector<std::pair<const Kernel*, const CapturableKernel*>> capturable_;  // constant
  std::atomic<bool> active_{false};

  // Held while a step is recorded or launched; others run as any other meanwhile.
  Mutex mu_;
  std::vector<std::unique_ptr<Variant>> variants_ ABSL_GUARDED_BY(mu_);
  int recordings_left_ ABSL_GUARDED_BY(mu_);

  mutable Mutex report_mu_;
  CaptureReport report_ ABSL_GUARDED_BY(report_mu_);
  int fruitless_ ABSL_GUARDED_BY(report_mu_) = 0;  // steps since the last one that was launched
};

// Of all programs on accelerators of this process, but those that are gone.
std::vector<CaptureReport> CaptureReports();

}  // namespace millrace

#endif  // EXECUTOR_CAPTURE_CAPTURED_PROGRAM_H_
