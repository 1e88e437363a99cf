// SPDX-License-Identifier: Apache-2.0
// A kernel of the CPU whose work is enqueued.
#ifndef KERNELS_FAKE_CPU_BODY_H_
#define KERNELS_FAKE_CPU_BODY_H_

#include <memory>

#include "kernels/accelerator/stream_kernel.h"
#include "kernels/kernel.h"

namespace millrace {

// A CPU device whose resources are nobody's, for the kernels that operations of a machine run.
using TwinOf = Device* (*)(Accelerator* machine);
Device* FakeTwin(Accelerator* machine);

// Runs the CPU's kernel for the node on the machine's twin and copies what it made. Null with an
// error recorded if the CPU has none.
std::shared_ptr<StreamBody> MakeCpuBody(KernelConstruction& c, TwinOf twin = &FakeTwin);

}  // namespace millrace

#endif  // KERNELS_FAKE_CPU_BODY_H_
