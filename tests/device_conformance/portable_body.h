// SPDX-License-Identifier: Apache-2.0
// What GPUs compute, on the simulated accelerator: the very loops that nvcc compiles, run by the
// machine's thread.
#ifndef TESTS_DEVICE_CONFORMANCE_PORTABLE_BODY_H_
#define TESTS_DEVICE_CONFORMANCE_PORTABLE_BODY_H_

#include <memory>

#include "kernels/accelerator/stream_kernel.h"
#include "kernels/kernel.h"

namespace millrace::testing {

// For SetFakeBodies. Null for an op, or types, that GPUs do not compute.
std::shared_ptr<StreamBody> MakePortableBody(KernelConstruction& c);

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_PORTABLE_BODY_H_
