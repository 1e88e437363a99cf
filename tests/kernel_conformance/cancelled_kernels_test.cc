// SPDX-License-Identifier: Apache-2.0
// Kernels that heed the end of their step while they compute.
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "gtest/gtest.h"
#include "kernels/all_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/run_kernel.h"
#include "ops/all_ops.h"
#include "ops/op_registry.h"

namespace millrace::testing {
namespace {

TEST(CancelledKernelsTest, BiasAddGradEndsWithItsStep) {
  OpRegistry ops;
  ASSERT_TRUE(RegisterAllOps(ops).ok());
  KernelRegistry kernels;
  RegisterAllKernels(kernels);
  ThreadPool pool("kernels", 1);
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool, &resources);
  const OpInfo* const op = ops.Find("BiasAddGrad");
  AttrMap attrs;
  attrs.Set("T", AttrValue(kFloat));
  AddDefaultAttrs(op->def, &attrs);
  const std::vector<DataType> types = {kFloat};
  const auto kernel = kernels.Create(device.get(), op, "node", attrs, types, types);
  ASSERT_TRUE(kernel.ok());

  std::vector<EdgeValue> inputs(1), outputs(1);
  inputs[0].value = Tensor::FromValues<float>({1, 2, 3, 4}, Shape({2, 2}));
  inputs[0].kind = EdgeValue::Kind::kValue;
  CancellationManager cancellation;
  StepEnv env;
  env.cancellation = &cancellation;
  KernelContext ctx(kernel->get(), device.get(), &env, inputs, outputs, types);
  EXPECT_TRUE(RunKernel(kernel->get(), ctx).ok());
  cancellation.StartCancel(errors::Cancelled("the step is over"));
  EXPECT_TRUE(errors::IsCancelled(RunKernel(kernel->get(), ctx)));
}

}  // namespace
}  // namespace millrace::testing
