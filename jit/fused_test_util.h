// SPDX-License-Identifier: Apache-2.0
// Runs a fused program the ways there are, and compares values bit by bit.
#ifndef JIT_FUSED_TEST_UTIL_H_
#define JIT_FUSED_TEST_UTIL_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"
#include "kernels/kernel_registry.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "ops/fused_program.h"
#include "ops/op_registry.h"

namespace millrace::jit {

class FusedRunner {
 public:
  // `threads` beside the caller's.
  explicit FusedRunner(int threads);

  // The kernel of _Fused. What CodeCache::Global() is at its first step serves it.
  StatusOr<std::unique_ptr<Kernel>> MakeKernel(const FusedProgram& program,
                                               const std::vector<Tensor>& inputs);
  // One step of it. With `last_reader` it gets copies of the inputs that nobody else holds, and
  // may make outputs of them.
  StatusOr<std::vector<Tensor>> Run(Kernel* kernel, const FusedProgram& program,
                                    const std::vector<Tensor>& inputs, bool last_reader);
  // The kernels that the instructions had as nodes, one after the other.
  StatusOr<std::vector<Tensor>> RunUnfused(const FusedProgram& program,
                                           const std::vector<Tensor>& inputs);
  // The kernel of Sum, Mean, Max or Min.
  StatusOr<Tensor> Reduce(const std::string& op, const Tensor& input,
                          const std::vector<int64_t>& axes);

 private:
  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool pool_;
  ResourceManager resources_;
  std::unique_ptr<Device> device_;
};

struct RandomCase {
  FusedProgram program;
  std::vector<Tensor> inputs;
};

// Every op and type now and then; operands of the shape, rows of it and scalars, whose values are
// ordinary numbers, zeros of both signs, denormals, infinities and NaN.
RandomCase MakeRandomCase(std::mt19937& random, const Shape& shape);

// Of such values.
Tensor RandomTensor(std::mt19937& random, DataType type, const Shape& shape);

// Floats: each number of a 16-bit type, what lies halfway to the next, and the neighbours of both.
Tensor NumbersAround16BitFloats(DataType type);
// As the type's constructor rounds them.
Tensor RoundedTo(DataType type, const Tensor& floats);

// "" if all bits are the same (any NaN equals any other), else where the first difference is.
std::string Difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace millrace::jit

#endif  // JIT_FUSED_TEST_UTIL_H_
