// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/kernels_alone.h"

#include <map>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

void Check(const Status& status) {
  if (!status.ok()) MR_LOG(kError, status.ToString());
  MR_CHECK(status.ok());
}

}  // namespace

KernelsAlone::KernelsAlone(TrainedModel& model, int threads)
    : pool_("alone", threads - 1),
      device_(
          NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool_, &resources_)) {
  Check(RegisterAllOps(ops_));
  RegisterAllKernels(kernels_);
  auto init = KernelList::Make(model.InitGraph(), {}, ops_, kernels_, device_.get());
  Check(init.status());
  Check((*init)->Run());
  auto step = KernelList::Make(model.StepGraph(), model.FedNodes(), ops_, kernels_, device_.get());
  Check(step.status());
  step_ = *std::move(step);
  for (int i = 0; i < 20; ++i) Check(step_->Run());
}

double KernelsAlone::Measure(int rounds) {
  const int64_t start = SteadyNanos();
  for (int i = 0; i < rounds; ++i) Check(step_->Run());
  return static_cast<double>(SteadyNanos() - start) / rounds * 1e-6;
}

}  // namespace millrace
