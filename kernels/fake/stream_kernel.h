// A kernel of the CPU whose work is enqueued.
#ifndef KERNELS_FAKE_STREAM_KERNEL_H_
#define KERNELS_FAKE_STREAM_KERNEL_H_

#include <memory>

#include "kernels/kernel_registry.h"

namespace millrace {

// Takes the memory of the outputs, whose shapes the op's shape function knows, and enqueues the
// rest. Leading inputs that are handles of variables are updated in place, or, if others share
// their value, in a copy; those of an op that only reads them are left alone.
std::unique_ptr<Kernel> MakeStreamKernel(KernelConstruction& c);

}  // namespace millrace

#endif  // KERNELS_FAKE_STREAM_KERNEL_H_
