// SPDX-License-Identifier: Apache-2.0
// A training step's kernels without a session.
#ifndef BENCH_EXECUTOR_KERNELS_ALONE_H_
#define BENCH_EXECUTOR_KERNELS_ALONE_H_

#include <memory>

#include "base/thread_pool.h"
#include "bench/executor/kernel_list.h"
#include "bench/executor/trained_model.h"
#include "device/device.h"
#include "device/resource_manager.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// The graph that a model's session runs for a step, with variables of its own, initialised as the
// model's were. Not thread-safe; errors end the program.
class KernelsAlone {
 public:
  KernelsAlone(TrainedModel& model, int threads);
  // Milliseconds of a round of all kernels, over so many.
  double Measure(int rounds);
  int num_kernels() const { return step_->num_calls(); }

 private:
  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool pool_;
  ResourceManager resources_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<KernelList> step_;
};

}  // namespace millrace

#endif  // BENCH_EXECUTOR_KERNELS_ALONE_H_
