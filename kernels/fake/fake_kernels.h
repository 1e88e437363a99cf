// SPDX-License-Identifier: Apache-2.0
// Kernels for the simulated accelerator.
#ifndef KERNELS_FAKE_FAKE_KERNELS_H_
#define KERNELS_FAKE_FAKE_KERNELS_H_

#include <memory>

#include "kernels/accelerator/stream_kernel.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// The kernels of every accelerator, and for what computes (kernels/accelerator/computing_ops.h)
// the CPU's kernels, run by the machine's thread when their turn in the stream comes. After all
// kernels of the CPU.
void RegisterFakeKernels(const OpRegistry& ops, KernelRegistry& registry);

// For tests: kernels that are made from now on run what `source` makes for them, and the CPU's
// kernel where it makes nothing. Null: the CPU's for all.
using FakeBodySource = std::shared_ptr<StreamBody> (*)(KernelConstruction& c);
void SetFakeBodies(FakeBodySource source);

}  // namespace millrace

#endif  // KERNELS_FAKE_FAKE_KERNELS_H_
