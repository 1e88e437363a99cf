// Kernels for the simulated accelerator.
#ifndef KERNELS_FAKE_FAKE_KERNELS_H_
#define KERNELS_FAKE_FAKE_KERNELS_H_

#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// The kernels of every accelerator, and for what computes the CPU's kernels, run by the machine's
// thread when their turn in the stream comes. Ops whose outputs have shapes that depend on data,
// or that keep state other than variables behind handles, have none. After all kernels of the CPU.
void RegisterFakeKernels(const OpRegistry& ops, KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_FAKE_FAKE_KERNELS_H_
